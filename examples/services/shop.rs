//! The shop that all three services are a door to: shelves and orders in SQLite, a bank, a printer. It takes no locks; who
//! calls it has them.

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

/// An order, as the store has it.
#[derive(Debug, Serialize)]
pub(crate) struct Order {
    pub(crate) id: u64,
    pub(crate) sku: String,
    pub(crate) pieces: u32,
    /// `paying` while the bank is asked, then `paid`.
    pub(crate) state: String,
    /// `none`, `printing`, `printed`.
    pub(crate) invoice: String,
}

/// What there is of an article, and what was paid for.
#[derive(Debug, Serialize)]
pub(crate) struct Shelf {
    pub(crate) left: u32,
    pub(crate) sold: u32,
}

/// Why something is not done.
#[derive(Debug)]
pub(crate) enum Error {
    SoldOut,
    UnknownArticle,
    UnknownOrder,
    /// The lock could not be had, or was lost under way.
    Lock(LockError),
    Store(sqlx::Error),
}

/// All that `#[etcd_locked]` asks of an error type.
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
    /// `SHOP_BANK_MS` and `SHOP_PRINTER_MS` are how long bank and printer take.
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

    /// That many pieces of an article, from now on. Under its `Shelf`.
    pub(crate) async fn restock(&self, sku: &str, pieces: u32) -> Result<(), Error> {
        sqlx::query("insert or replace into shelves (sku, pieces) values (?, ?)")
            .bind(sku)
            .bind(pieces)
            .execute(&self.store)
            .await?;
        Ok(())
    }

    /// What is left, and what was sold.
    pub(crate) async fn shelf(&self, sku: &str) -> Result<Shelf, Error> {
        let left = self.left(sku).await?;
        let paid = "select coalesce(sum(pieces), 0) from orders where sku = ? and state = 'paid'";
        let (sold,) = sqlx::query_as(paid)
            .bind(sku)
            .fetch_one(&self.store)
            .await?;
        Ok(Shelf { left, sold })
    }

    /// An order and all that belongs to it: it is written down, the bank pays, the pieces leave the shelf. Under its `Order`
    /// and the article's `Shelf`.
    ///
    /// Not to be dropped in the middle: then there is an order that is `paying` for ever, and nobody knows of what was paid.
    /// Asked for again, an order that is paid is only told; one that is not, after a crash, is carried on.
    pub(crate) async fn place(&self, id: u64, sku: &str, pieces: u32) -> Result<Order, Error> {
        match self.order(id).await {
            Ok(order) if order.state == "paid" => return Ok(order),
            Ok(_) | Err(Error::UnknownOrder) => {}
            Err(error) => return Err(error),
        }
        // No transaction can be open for as long as a bank takes, so between here and the end there is nothing but the lock.
        let left = self.left(sku).await?;
        let left = left.checked_sub(pieces).ok_or(Error::SoldOut)?;
        let begun = "insert or replace into orders values (?, ?, ?, 'paying', 'none')";
        sqlx::query(begun)
            .bind(id.cast_signed())
            .bind(sku)
            .bind(pieces)
            .execute(&self.store)
            .await?;
        sleep(self.bank).await; // told the order's number, it pays for an order once

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

    /// An order as it stands, for which nobody has to wait.
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

    /// Prints the invoice of an order. Under its `Order`: two at a time would be printed on one sheet.
    ///
    /// May be dropped in the middle: the next one begins anew.
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
    /// For the customer.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SoldOut => "sold out",
            Self::UnknownArticle => "no such article",
            Self::UnknownOrder => "no such order",
            // The errors themselves name hosts and files: for the log.
            Self::Lock(_) => "somebody is at it",
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
