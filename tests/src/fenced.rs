//! Fenced transactions of a process that a test stops in the middle of them.

use etcd_locked::sqlx::{FenceTarget, FencedError};
use etcd_locked::{LockError, lock};
use sqlx::{AssertSqlSafe, Database, Executor, MySql, Pool, Postgres, Sqlite, Transaction};
use tokio::sync::Notify;

/// Locks a name and writes under the lock, in a fenced transaction of the database with this URL. At the step it prints `stops` and
/// waits for a signal. After that it continues even if the lock is lost, because it runs outside `hold`.
///
/// # Errors
/// Those of the lock, of the fence, and of the database.
pub async fn write_and_stop(
    name: &str,
    step: &str,
    url: &str,
    go: &Notify,
) -> Result<(), FencedError> {
    match url.split(':').next() {
        Some("postgres") => stop_in(Pool::<Postgres>::connect(url).await?, name, step, go).await,
        Some("mysql") => stop_in(Pool::<MySql>::connect(url).await?, name, step, go).await,
        _ => stop_in(Pool::<Sqlite>::connect(url).await?, name, step, go).await,
    }
}

async fn stop_in<D: Database>(
    pool: Pool<D>,
    name: &str,
    step: &str,
    go: &Notify,
) -> Result<(), FencedError>
where
    for<'c> &'c mut D::Connection: Executor<'c, Database = D>,
    Transaction<'static, D>:
        FenceTarget<Transaction = Transaction<'static, D>, Error = FencedError>,
{
    let guard = lock(name).wait_forever().await.map_err(FencedError::Lock)?;
    let stops = async |at| {
        if step == at {
            let goes = go.notified();
            println!("stops {name}");
            goes.await;
        }
    };
    let mut transaction = match step {
        "begun" => {
            let transaction = pool.begin().await?;
            stops("begun").await;
            guard.fenced(transaction).await?
        }
        _ => guard.fenced(&pool).await?,
    };
    stops("fenced").await;
    write(&mut transaction, name, "stopped").await?;
    stops("written").await;
    Ok(transaction.commit().await?)
}

/// Names the writer in the row of a lock. Databases differ in how they write a placeholder.
///
/// # Errors
/// Those of the database.
pub async fn write<D: Database>(
    transaction: &mut Transaction<'static, D>,
    name: &str,
    writer: &str,
) -> sqlx::Result<()>
where
    for<'c> &'c mut D::Connection: Executor<'c, Database = D>,
{
    let update = format!("update orders set writer = '{writer}' where name = '{name}'");
    sqlx::raw_sql(AssertSqlSafe(update)).execute(&mut **transaction).await.map(drop)
}

/// Returns the word for how it ended.
#[must_use]
pub fn ended(result: &Result<(), FencedError>) -> &'static str {
    match result {
        Ok(()) => "committed",
        Err(FencedError::Lock(LockError::Lost { .. })) => "refused",
        Err(_) => "failed",
    }
}
