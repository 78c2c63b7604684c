//! Payment with tokio-postgres.

use etcd_locked::{Dialect, Locked};
use tokio_postgres::NoTls;

use crate::{Invoice, PAY, Payer, Result};

pub(crate) async fn pay(url: &str, invoice: &Locked<Invoice>, payer: &mut Payer) -> Result {
    let (mut client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    let transaction = client.transaction().await?;
    payer.steps("fence").await?;
    let fence = invoice.fence_sql(Dialect::Postgres);
    let row = transaction.query_opt(fence.sql(), &[&fence.name(), &fence.token()]).await?;
    fence.confirm(row.is_some())?; // an error drops the transaction, which rolls it back
    payer.steps("write").await?;
    transaction.execute(PAY, &[&invoice.name().id, &payer.name]).await?;
    payer.steps("commit").await?;
    Ok(transaction.commit().await?)
}
