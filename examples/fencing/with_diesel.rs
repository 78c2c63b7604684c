//! Payment with diesel, through diesel-async.

use diesel::sql_query;
use diesel::sql_types::{BigInt, Text};
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl};
use etcd_locked::{Dialect, Locked};

use crate::{Invoice, PAY, Payer, Result};

pub(crate) async fn pay(url: &str, invoice: &Locked<Invoice>, payer: &mut Payer) -> Result {
    let mut db = AsyncPgConnection::establish(url).await?;
    db.transaction(async |db| {
        payer.steps("fence").await?;
        let fence = invoice.fence_sql(Dialect::Postgres);
        let raise = sql_query(fence.sql());
        let raise = raise.bind::<Text, _>(fence.name()).bind::<BigInt, _>(fence.token());
        fence.confirm(raise.execute(db).await? == 1)?; // an error rolls back
        payer.steps("write").await?;
        let pay = sql_query(PAY).bind::<BigInt, _>(invoice.name().id);
        pay.bind::<Text, _>(&payer.name).execute(db).await?;
        payer.steps("commit").await
    })
    .await
}
