//! Payment with sea-orm.

use etcd_locked::{Dialect, Locked};
use sea_orm::{ConnectionTrait, Database, DbBackend, Statement, TransactionTrait};

use crate::{Invoice, PAY, Payer, Result};

pub(crate) async fn pay(url: &str, invoice: &Locked<Invoice>, payer: &mut Payer) -> Result {
    let statement = |sql, values| Statement::from_sql_and_values(DbBackend::Postgres, sql, values);
    let db = Database::connect(url).await?;
    let transaction = db.begin().await?;
    payer.steps("fence").await?;
    let fence = invoice.fence_sql(Dialect::Postgres);
    let raise = statement(fence.sql(), [fence.name().into(), fence.token().into()]);
    let row = transaction.query_one_raw(raise).await?;
    fence.confirm(row.is_some())?; // an error drops the transaction, which rolls it back
    payer.steps("write").await?;
    let pay = statement(PAY, [invoice.name().id.into(), payer.name.as_str().into()]);
    transaction.execute_raw(pay).await?;
    payer.steps("commit").await?;
    Ok(transaction.commit().await?)
}
