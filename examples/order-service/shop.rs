//! Data of the shop. Any database would do; this one is the same etcd, used without transactions.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use std::{env, process};

use etcd_locked::etcd_client::{self, Client, DeleteOptions, GetOptions};
use serde::Serialize;

use crate::error::AppError;

/// The shop: a shelf `shop/<sku>/stock`, and an entry `shop/<sku>/sold/<order>` in the book for each piece sold.
#[derive(Clone)]
pub(crate) struct Shop {
    etcd: Client,
}

/// The receipt of a customer.
#[derive(Serialize)]
pub(crate) struct Receipt {
    order: String,
    left: u64,
}

/// The stock of an article.
#[derive(Serialize)]
pub(crate) struct Stock {
    left: u64,
    sold: i64,
}

impl Shop {
    pub(crate) async fn open(endpoints: &str) -> Result<Self, etcd_client::Error> {
        let endpoints: Vec<_> = endpoints.split(',').map(str::trim).collect();
        let etcd = Client::connect(endpoints, None).await?;
        Ok(Self { etcd })
    }

    /// Reads, waits, writes: correct only if no other request sells this article meanwhile.
    pub(crate) async fn sell(&self, sku: &str) -> Result<Receipt, AppError> {
        let left = self.left(sku).await?.checked_sub(1).ok_or(AppError::SoldOut)?;
        payment().await;

        let order = order_number();
        let mut etcd = self.etcd.kv_client();
        etcd.put(shelf(sku), left.to_string(), None).await?;
        etcd.put(format!("{}{order}", book(sku)), "", None).await?;
        Ok(Receipt { order, left })
    }

    pub(crate) async fn restock(&self, sku: &str, pieces: u64) -> Result<(), AppError> {
        let mut etcd = self.etcd.kv_client();
        let all = DeleteOptions::new().with_prefix();
        etcd.delete(book(sku), Some(all)).await?;
        etcd.put(shelf(sku), pieces.to_string(), None).await?;
        Ok(())
    }

    pub(crate) async fn stock(&self, sku: &str) -> Result<Stock, AppError> {
        let left = self.left(sku).await?;
        let count = GetOptions::new().with_prefix().with_count_only();
        let mut etcd = self.etcd.kv_client();
        let sold = etcd.get(book(sku), Some(count)).await?.count();
        Ok(Stock { left, sold })
    }

    async fn left(&self, sku: &str) -> Result<u64, AppError> {
        let shelf = self.etcd.kv_client().get(shelf(sku), None).await?;
        let left = shelf.kvs().first().and_then(|shelf| shelf.value_str().ok()?.parse().ok());
        left.ok_or(AppError::UnknownArticle)
    }
}

fn shelf(sku: &str) -> String {
    format!("shop/{sku}/stock")
}

fn book(sku: &str) -> String {
    format!("shop/{sku}/sold/")
}

/// Waits for the bank, which takes `ORDER_SERVICE_PAYMENT_MS` milliseconds, or 5 by default.
async fn payment() {
    let set = env::var("ORDER_SERVICE_PAYMENT_MS").ok().and_then(|set| set.parse().ok());
    tokio::time::sleep(Duration::from_millis(set.unwrap_or(5))).await;
}

/// Returns an order number that is unique among the processes of one machine.
fn order_number() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    format!("{}-{}", process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}
