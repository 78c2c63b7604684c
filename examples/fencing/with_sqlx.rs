//! Payment with sqlx, which has the feature `sqlx`: `fenced` is one line.

use etcd_locked::{Dialect, Locked};
use sqlx::PgPool;

use crate::{Invoice, PAY, Payer, Result};

pub(crate) async fn migrate(url: &str) -> Result {
    let db = PgPool::connect(url).await?;
    sqlx::query(Dialect::Postgres.migration()).execute(&db).await?;
    let invoices =
        "create table if not exists invoices (id bigint primary key, paid_by text not null)";
    sqlx::query(invoices).execute(&db).await?;
    Ok(())
}

pub(crate) async fn pay(url: &str, invoice: &Locked<Invoice>, payer: &mut Payer) -> Result {
    let db = PgPool::connect(url).await?;
    payer.steps("fence").await?;
    let mut transaction = invoice.fenced(&db).await?;
    payer.steps("write").await?;
    let pay = sqlx::query(PAY).bind(invoice.name().id).bind(&payer.name);
    pay.execute(&mut *transaction).await?;
    payer.steps("commit").await?;
    Ok(transaction.commit().await?)
}
