//! The shop's own data. It could be any database; here it is the etcd at hand, used without transactions.

use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use etcd_locked::etcd_client::{self, Client};
use serde::Serialize;

use crate::error::AppError;

/// Shelf `shop/<sku>/stock`, and one entry `shop/<sku>/sold/<order>` in the book for each piece sold.
#[derive(Clone)]
pub(crate) struct Shop {
    etcd: Client,
}

/// What a customer gets.
#[derive(Serialize)]
pub(crate) struct Receipt {
    order: String,
    left: u64,
}

impl Shop {
    pub(crate) async fn open(endpoints: &str) -> Result<Self, etcd_client::Error> {
        let endpoints: Vec<_> = endpoints.split(',').map(str::trim).collect();
        Ok(Self {
            etcd: Client::connect(endpoints, None).await?,
        })
    }

    /// Read, think, write: right only as long as nobody else sells this article meanwhile.
    pub(crate) async fn sell(&self, sku: &str) -> Result<Receipt, AppError> {
        let left = self
            .stock(sku)
            .await?
            .checked_sub(1)
            .ok_or(AppError::SoldOut)?;
        payment().await;

        let order = order_number();
        let mut etcd = self.etcd.kv_client();
        etcd.put(format!("shop/{sku}/stock"), left.to_string(), None)
            .await?;
        etcd.put(format!("shop/{sku}/sold/{order}"), "", None)
            .await?;
        Ok(Receipt { order, left })
    }

    async fn stock(&self, sku: &str) -> Result<u64, AppError> {
        let shelf = self
            .etcd
            .kv_client()
            .get(format!("shop/{sku}/stock"), None)
            .await?;
        let stock = shelf
            .kvs()
            .first()
            .and_then(|shelf| shelf.value_str().ok()?.parse().ok());
        stock.ok_or(AppError::UnknownArticle)
    }
}

/// The bank takes its time.
async fn payment() {
    tokio::time::sleep(Duration::from_millis(5)).await;
}

/// Unique among the processes of one machine.
fn order_number() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    format!("{}-{}", process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}
