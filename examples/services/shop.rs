//! Shop behind all three services: shelves and orders in SQLite, a bank, a printer. It does not take locks; its callers hold
//! them, and pass proofs. Its writes under a lock are fenced: a replica that was suspended for a minute in the middle of an
//! order cannot write into the order or the shelf of the next one.

use std::env::{self, VarError};
use std::error;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use etcd_locked::sqlx::FencedError;
use etcd_locked::{Dialect, LockError, Locked};
use serde::Serialize;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePool};
use sqlx::{Sqlite, SqliteExecutor, Transaction};
use tokio::time::sleep;

use crate::locks;

const TABLES: &str = "
    create table if not exists shelves (sku text primary key, pieces integer not null);
    create table if not exists orders (
        id integer primary key, sku text not null, pieces integer not null, state text not null, invoice text not null
    );
";

/// Shop; clones use the same connections.
#[derive(Debug, Clone)]
pub(crate) struct Shop {
    store: SqlitePool,
    bank: Duration,
    printer: Duration,
}

/// Order in the store.
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

/// Pieces of an article that are left, and those that were paid for.
#[derive(Debug, Serialize)]
pub(crate) struct Shelf {
    pub(crate) left: u32,
    pub(crate) sold: u32,
}

/// Reason why a request fails.
#[derive(Debug)]
pub(crate) enum Error {
    SoldOut,
    UnknownArticle,
    UnknownOrder,
    /// The lock was refused, or lost during the body.
    Lock(LockError),
    Store(sqlx::Error),
}

/// Only this conversion is needed for an error type with `#[etcd_locked]`.
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

impl From<FencedError> for Error {
    fn from(error: FencedError) -> Self {
        match error {
            FencedError::Lock(error) => Self::Lock(error),
            FencedError::Database(error) => Self::Store(error),
        }
    }
}

impl Shop {
    /// Opens the database `SHOP_DATABASE`, which several processes may use at the same time.
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
        sqlx::query(Dialect::Sqlite.migration()).execute(&store).await?;
        Ok(Self {
            store,
            bank: milliseconds("SHOP_BANK_MS", 5)?,
            printer: milliseconds("SHOP_PRINTER_MS", 5)?,
        })
    }

    /// Sets the pieces of an article.
    pub(crate) async fn restock(
        &self,
        shelf: &Locked<locks::Shelf<'_>>,
        sku: &str,
        pieces: u32,
    ) -> Result<(), Error> {
        let mut fenced = shelf.fenced(&self.store).await?;
        sqlx::query("insert or replace into shelves (sku, pieces) values (?, ?)")
            .bind(sku)
            .bind(pieces)
            .execute(&mut *fenced)
            .await?;
        Ok(fenced.commit().await?)
    }

    /// Reads how many pieces are left and how many were sold.
    pub(crate) async fn shelf(&self, sku: &str) -> Result<Shelf, Error> {
        let left = left(&self.store, sku).await?;
        let paid = "select coalesce(sum(pieces), 0) from orders where sku = ? and state = 'paid'";
        let (sold,) = sqlx::query_as(paid).bind(sku).fetch_one(&self.store).await?;
        Ok(Shelf { left, sold })
    }

    /// Places an order: writes it down, makes the bank pay, and takes the pieces off the shelf.
    ///
    /// Must not be dropped in the middle, or the order stays `paying` although the bank may have paid. A second request for a
    /// paid order only returns it. An order that a crash left unpaid begins again, with the values of this request.
    pub(crate) async fn place(
        &self,
        order: &Locked<locks::Order>,
        shelf: &Locked<locks::Shelf<'_>>,
        sku: &str,
        pieces: u32,
    ) -> Result<Order, Error> {
        let id = order.name().id;
        let mut begun = self.fenced(order, shelf).await?;
        // Only the fences make certain that no transaction of earlier holders changes what is read here.
        match find(&mut *begun, id).await {
            Ok(order) if order.state == "paid" => return Ok(order),
            Ok(_) | Err(Error::UnknownOrder) => {}
            Err(error) => return Err(error),
        }
        let left = left(&mut *begun, sku).await?;
        let left = left.checked_sub(pieces).ok_or(Error::SoldOut)?;
        sqlx::query("insert or replace into orders values (?, ?, ?, 'paying', 'none')")
            .bind(id.cast_signed())
            .bind(sku)
            .bind(pieces)
            .execute(&mut *begun)
            .await?;
        begun.commit().await?;
        // A transaction cannot stay open for as long as a bank takes, so until the end the locks exclude others. If they are
        // lost meanwhile, and the next holders write, the second transaction is refused.
        sleep(self.bank).await; // the bank gets the order's number, so it pays for an order once

        let mut both = self.fenced(order, shelf).await?;
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

    /// Begins a transaction that is refused if these locks are lost. All orders confirm their fences in this sequence, so that
    /// they cannot wait for each other in a cycle.
    async fn fenced(
        &self,
        order: &Locked<locks::Order>,
        shelf: &Locked<locks::Shelf<'_>>,
    ) -> Result<Transaction<'static, Sqlite>, Error> {
        let fenced = order.fenced(&self.store).await?;
        Ok(shelf.fenced(fenced).await?)
    }

    /// Reads an order, without a lock.
    pub(crate) async fn order(&self, id: u64) -> Result<Order, Error> {
        find(&self.store, id).await
    }

    /// Prints the invoice of an order; without its lock, two invoices would be printed on one sheet.
    ///
    /// May be dropped in the middle, because the next call prints again.
    pub(crate) async fn invoice(&self, order: &Locked<locks::Order>) -> Result<Order, Error> {
        let id = order.name().id;
        self.order(id).await?;
        self.invoice_is(order, "printing").await?;
        sleep(self.printer).await;
        self.invoice_is(order, "printed").await?;
        self.order(id).await
    }

    async fn invoice_is(&self, order: &Locked<locks::Order>, state: &str) -> Result<(), Error> {
        let mut fenced = order.fenced(&self.store).await?;
        sqlx::query("update orders set invoice = ? where id = ?")
            .bind(state)
            .bind(order.name().id.cast_signed())
            .execute(&mut *fenced)
            .await?;
        Ok(fenced.commit().await?)
    }
}

async fn find(store: impl SqliteExecutor<'_>, id: u64) -> Result<Order, Error> {
    let found = sqlx::query_as("select sku, pieces, state, invoice from orders where id = ?")
        .bind(id.cast_signed())
        .fetch_optional(store)
        .await?;
    let (sku, pieces, state, invoice) = found.ok_or(Error::UnknownOrder)?;
    Ok(Order { id, sku, pieces, state, invoice })
}

async fn left(store: impl SqliteExecutor<'_>, sku: &str) -> Result<u32, Error> {
    let found = sqlx::query_as("select pieces from shelves where sku = ?")
        .bind(sku)
        .fetch_optional(store)
        .await?;
    let (left,) = found.ok_or(Error::UnknownArticle)?;
    Ok(left)
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
