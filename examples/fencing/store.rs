//! Table of invoices, with the same statements for SQLite and PostgreSQL.

use sqlx::any::{AnyPoolOptions, install_default_drivers};
use sqlx::{AnyPool, Row};

use crate::Result;

#[derive(Debug, Clone)]
pub(crate) struct Store {
    pool: AnyPool,
}

#[derive(Debug)]
pub(crate) struct Invoice {
    pub(crate) state: String,
    pub(crate) unguarded: String,
    pub(crate) version: i64,
}

impl Store {
    /// Creates the table, unless a killed process has left one.
    pub(crate) async fn connect(url: &str) -> Result<Self> {
        install_default_drivers();
        // One connection: each to `sqlite::memory:` would be a database of its own.
        let pool = AnyPoolOptions::new().max_connections(1).connect(url).await?;
        sqlx::query(
            "create table if not exists etcd_locked_invoices (id bigint primary key, state text not null, unguarded text not null, \
             token bigint not null, version bigint not null)",
        )
        .execute(&pool)
        .await?;
        Ok(Self { pool })
    }

    pub(crate) fn kind(&self) -> String {
        self.pool.connect_options().database_url.scheme().to_owned()
    }

    pub(crate) async fn insert(&self, id: i64) -> Result {
        let delete = "delete from etcd_locked_invoices where id = $1";
        sqlx::query(delete).bind(id).execute(&self.pool).await?;
        let insert = "insert into etcd_locked_invoices values ($1, 'open', 'open', 0, 1)";
        sqlx::query(insert).bind(id).execute(&self.pool).await?;
        Ok(())
    }

    /// Writes with a fence; false if a later owner of the lock has written. `<=`, because one owner may write several times.
    pub(crate) async fn set(&self, id: i64, state: &str, token: i64) -> Result<bool> {
        let update = "update etcd_locked_invoices set state = $1, token = $2, version = version + 1 \
                      where id = $3 and token <= $2";
        let update = sqlx::query(update).bind(state).bind(token).bind(id);
        Ok(update.execute(&self.pool).await?.rows_affected() == 1)
    }

    /// Writes without a fence, for comparison.
    pub(crate) async fn set_unguarded(&self, id: i64, state: &str) -> Result {
        let update = "update etcd_locked_invoices set unguarded = $1 where id = $2";
        sqlx::query(update).bind(state).bind(id).execute(&self.pool).await?;
        Ok(())
    }

    /// Writes optimistically; false if the row has changed since this version was read.
    pub(crate) async fn set_version(&self, id: i64, state: &str, version: i64) -> Result<bool> {
        let update = "update etcd_locked_invoices set state = $1, version = version + 1 where id = $2 and version = $3";
        let update = sqlx::query(update).bind(state).bind(id).bind(version);
        Ok(update.execute(&self.pool).await?.rows_affected() == 1)
    }

    pub(crate) async fn read(&self, id: i64) -> Result<Invoice> {
        let select = "select state, unguarded, version from etcd_locked_invoices where id = $1";
        let row = sqlx::query(select).bind(id).fetch_one(&self.pool).await?;
        Ok(Invoice {
            state: row.try_get("state")?,
            unguarded: row.try_get("unguarded")?,
            version: row.try_get("version")?,
        })
    }

    /// Drops the table.
    pub(crate) async fn remove(self) -> Result {
        sqlx::query("drop table etcd_locked_invoices").execute(&self.pool).await?;
        self.pool.close().await;
        Ok(())
    }
}
