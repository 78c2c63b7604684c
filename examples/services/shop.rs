//! The shop behind all three services: shelves and orders in SQLite, a bank, a printer. It takes no locks; its callers hold
//! them.

use std::env::{self, VarError};
use std::error;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use etcd_locked::LockError;
use serde::Serialize;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePool};
use tokio::time::sleep;

const TABLES: &str = "
    create table if not exists shelves (sku text primary key, pieces integer not null);
    create table if not exists orders (
        id integer primary key, sku text not null, pieces integer not null, state text not null, invoice text not null
    );
";

/// The shop; clones use the same connections.
#[derive(Debug, Clone)]
pub(crate) struct Shop {
    store: SqlitePool,
    bank: Duration,
    printer: Duration,
}

/// An order in the store.
#[derive(Debug, Serialize)]
pub(crate) struct Order {
    pub(crate) id: u64,
    pub(crate) sku: String,
    pub(crate) pieces: u32,
    /// `paying` until the bank has paid, then `paid`.
    pub(crate) state: String,
    /// `none`, `printing`, `printed`.
    pub(crate) invoice: String,
}

/// The pieces of an article that are left, and those that were paid for.
#[derive(Debug, Serialize)]
pub(crate) struct Shelf {
    pub(crate) left: u32,
    pub(crate) sold: u32,
}

/// The reason why a request is not carried out.
#[derive(Debug)]
pub(crate) enum Error {
    SoldOut,
    UnknownArticle,
    UnknownOrder,
    /// The lock was refused, or lost during the body.
    Lock(LockError),
    Store(sqlx::Error),
}

/// The only conversion that `#[etcd_locked]` needs of an error type.
impl From<LockError> for Error {
    fn from(error: LockError) -> Self {
        Self::Lock(error)
    }
}

impl From<sqlx::Error> for Error {
    fn from(error: sqlx::Error) -> Self {
        Self::Store(error)
    }
}

impl Shop {
    /// Opens the database `SHOP_DATABASE`, which several processes may use at a time.
    ///
    /// `SHOP_BANK_MS` and `SHOP_PRINTER_MS` set how long bank and printer take.
    pub(crate) async fn open() -> Result<Self, Box<dyn error::Error>> {
        let database = env::var_os("SHOP_DATABASE").map_or("shop.db".into(), PathBuf::from);
        let options = SqliteConnectOptions::new()
            .filename(database)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .busy_timeout(Duration::from_secs(10));
        let store = SqlitePool::connect_with(options).await?;
        sqlx::raw_sql(TABLES).execute(&store).await?;
        Ok(Self {
            store,
            bank: milliseconds("SHOP_BANK_MS", 5)?,
            printer: milliseconds("SHOP_PRINTER_MS", 5)?,
        })
    }

    /// Sets the pieces of an article. The caller holds its `Shelf`.
    pub(crate) async fn restock(&self, sku: &str, pieces: u32) -> Result<(), Error> {
        sqlx::query("insert or replace into shelves (sku, pieces) values (?, ?)")
            .bind(sku)
            .bind(pieces)
            .execute(&self.store)
            .await?;
        Ok(())
    }

    /// Reads how many pieces are left and how many were sold.
    pub(crate) async fn shelf(&self, sku: &str) -> Result<Shelf, Error> {
        let left = self.left(sku).await?;
        let paid = "select coalesce(sum(pieces), 0) from orders where sku = ? and state = 'paid'";
        let (sold,) = sqlx::query_as(paid)
            .bind(sku)
            .fetch_one(&self.store)
            .await?;
        Ok(Shelf { left, sold })
    }

    /// Places an order: writes it down, has the bank pay, takes the pieces off the shelf. The caller holds its `Order` and the
    /// article's `Shelf`.
    ///
    /// Must not be dropped in the middle, or the order stays `paying` although the bank may have paid. A second request for a
    /// paid order only returns it; for an order that a crash left unpaid, it continues.
    pub(crate) async fn place(&self, id: u64, sku: &str, pieces: u32) -> Result<Order, Error> {
        match self.order(id).await {
            Ok(order) if order.state == "paid" => return Ok(order),
            Ok(_) | Err(Error::UnknownOrder) => {}
            Err(error) => return Err(error),
        }
        // No transaction can stay open for as long as a bank takes, so from here to the end only the lock excludes others.
        let left = self.left(sku).await?;
        let left = left.checked_sub(pieces).ok_or(Error::SoldOut)?;
        let begun = "insert or replace into orders values (?, ?, ?, 'paying', 'none')";
        sqlx::query(begun)
            .bind(id.cast_signed())
            .bind(sku)
            .bind(pieces)
            .execute(&self.store)
            .await?;
        sleep(self.bank).await; // the bank gets the order's number, so it pays for an order once

        let mut both = self.store.begin().await?;
        sqlx::query("update shelves set pieces = ? where sku = ?")
            .bind(left)
            .bind(sku)
            .execute(&mut *both)
            .await?;
        sqlx::query("update orders set state = 'paid' where id = ?")
            .bind(id.cast_signed())
            .execute(&mut *both)
            .await?;
        both.commit().await?;
        self.order(id).await
    }

    /// Reads an order, without a lock.
    pub(crate) async fn order(&self, id: u64) -> Result<Order, Error> {
        let found = sqlx::query_as("select sku, pieces, state, invoice from orders where id = ?")
            .bind(id.cast_signed())
            .fetch_optional(&self.store)
            .await?;
        let (sku, pieces, state, invoice) = found.ok_or(Error::UnknownOrder)?;
        Ok(Order {
            id,
            sku,
            pieces,
            state,
            invoice,
        })
    }

    /// Prints the invoice of an order. The caller holds its `Order`, or two invoices would be printed on one sheet.
    ///
    /// May be dropped in the middle, because the next call prints again.
    pub(crate) async fn invoice(&self, id: u64) -> Result<Order, Error> {
        self.order(id).await?;
        self.invoice_is(id, "printing").await?;
        sleep(self.printer).await;
        self.invoice_is(id, "printed").await?;
        self.order(id).await
    }

    async fn invoice_is(&self, id: u64, state: &str) -> Result<(), Error> {
        sqlx::query("update orders set invoice = ? where id = ?")
            .bind(state)
            .bind(id.cast_signed())
            .execute(&self.store)
            .await?;
        Ok(())
    }

    async fn left(&self, sku: &str) -> Result<u32, Error> {
        let found = sqlx::query_as("select pieces from shelves where sku = ?")
            .bind(sku)
            .fetch_optional(&self.store)
            .await?;
        let (left,) = found.ok_or(Error::UnknownArticle)?;
        Ok(left)
    }
}

impl fmt::Display for Error {
    /// Writes the text for the customer.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SoldOut => "sold out",
            Self::UnknownArticle => "no such article",
            Self::UnknownOrder => "no such order",
            // The errors themselves name hosts and files, so they are for the log only.
            Self::Lock(_) => "busy, try again",
            Self::Store(_) => "the shop is out of order",
        })
    }
}

impl error::Error for Error {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Self::Lock(error) => Some(error),
            Self::Store(error) => Some(error),
            _ => None,
        }
    }
}

fn milliseconds(variable: &str, usual: u64) -> Result<Duration, Box<dyn error::Error>> {
    let value = match env::var(variable) {
        Ok(value) => value.parse()?,
        Err(VarError::NotPresent) => usual,
        Err(error) => return Err(error.into()),
    };
    Ok(Duration::from_millis(value))
}
