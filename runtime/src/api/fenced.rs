//! Fenced transactions of sqlx: one layer for each of its versions.

use crate::api::{Dialect, FenceSql};
use crate::values::LockError;

/// What can be fenced: a pool, which begins the transaction, or a transaction. Each version of sqlx has its own.
pub trait FenceTarget: Sized {
    /// The transaction.
    type Transaction;
    /// Why it was not fenced.
    type Error: From<LockError>;
    #[doc(hidden)]
    const DATABASE: &'static str;
    #[doc(hidden)]
    fn fence(self, fences: Vec<FenceSql<'_>>) -> impl Future<Output = Fenced<Self>> + Send;
}

pub(crate) type Fenced<T> = Result<<T as FenceTarget>::Transaction, <T as FenceTarget>::Error>;

pub(crate) async fn fenced<'l, T: FenceTarget>(
    target: T,
    fences: impl FnOnce(Dialect) -> Vec<FenceSql<'l>>,
) -> Fenced<T> {
    let dialect = match T::DATABASE {
        "PostgreSQL" => Dialect::Postgres,
        "MySQL" => Dialect::MySql,
        "SQLite" => Dialect::Sqlite,
        other => {
            return Err(LockError::config(format!(
                "a fence is for PostgreSQL, MySQL and SQLite, not {other}: open the pool with the database's own type"
            )).into());
        }
    };
    target.fence(fences(dialect)).await
}

/// Writes the message that raises tokens and begins a transaction: PostgreSQL takes what stands before a `begin` in one message into
/// that transaction. sqlx shows no rows of it, so a statement that returns none divides by zero, and PostgreSQL begins nothing. The
/// message has no parameters. A name cannot close its quotes, or stand for a parameter: names, and the prefix, are of letters, digits, `/` and `._~:@=+-%`.
fn begin_in_postgres(fences: &[FenceSql<'_>]) -> String {
    let raise = fences.iter().map(|fence| {
        let (name, token) = (format!("'{}'", fence.name()), fence.token().to_string());
        let sql = fence.sql().replace("$1", &name).replace("$2", &token);
        format!("with no_later_holder as ({sql}) select 1 / count(*) from no_later_holder; ")
    });
    raise.chain(["begin".to_owned()]).collect()
}

const NO_RUNTIME: &str = "a transaction of a pool is begun in a task of its own, and the caller runs on no tokio runtime; call it from one, or \
                          fence a transaction that you begin";

/// Writes the layer for a version of sqlx, with its bound on arguments, and how it takes a statement that was put together.
macro_rules! layer {
    ($sqlx:ident, [$($arguments:tt)*], $statement:expr) => {
        use ::$sqlx::database::HasStatementCache;
        use ::$sqlx::{Database, Encode, Error, Executor, IntoArguments, Pool, Transaction, Type};
        use tokio::runtime::Handle;

        pub use super::FenceTarget;
        use super::{FenceSql, Fenced, LockError, NO_RUNTIME, begin_in_postgres};

        /// Why a transaction was not fenced. It is rolled back then.
        #[derive(Debug, thiserror::Error)]
        pub enum FencedError {
            /// [`LockError::Lost`]: the lock is lost; [`LossCause::Overtaken`](crate::LossCause) where only the database knows it yet.
            /// [`LockError::Config`]: not one of the three databases; or a pool, and no tokio runtime. [`LockError::RuntimeEnded`]: that has ended.
            #[error(transparent)]
            Lock(#[from] LockError),
            /// The database failed; most often the table is missing: see [`Dialect::migration`](crate::Dialect::migration).
            #[error("the token of the lock could not be written to the database")]
            Database(#[from] Error),
        }

        impl<D: Database + HasStatementCache> FenceTarget for Transaction<'_, D>
        where
            for<'c> &'c mut D::Connection: Executor<'c, Database = D>,
            $($arguments)*,
            for<'q> &'q str: Encode<'q, D>,
            str: Type<D>,
            i64: Type<D> + for<'q> Encode<'q, D>,
        {
            type Transaction = Self;
            type Error = FencedError;
            const DATABASE: &'static str = D::NAME;

            async fn fence(mut self, fences: Vec<FenceSql<'_>>) -> Fenced<Self> {
                for fence in fences {
                    // A statement with a name would fail behind PgBouncer.
                    let query = |sql| ::$sqlx::query(sql).persistent(D::NAME != "PostgreSQL");
                    let query = |sql| query(sql).bind(fence.name()).bind(fence.token());
                    if let Some(before) = fence.before() {
                        query(before).execute(&mut *self).await?;
                    }
                    let row = query(fence.sql()).fetch_optional(&mut *self).await?;
                    self = confirmed(self, fence.confirm(row.is_some())).await?;
                }
                Ok(self)
            }
        }

        impl<D: Database> FenceTarget for &Pool<D>
        where
            Transaction<'static, D>: FenceTarget<Transaction = Transaction<'static, D>, Error = FencedError>,
        {
            type Transaction = Transaction<'static, D>;
            type Error = FencedError;
            const DATABASE: &'static str = D::NAME;

            async fn fence(self, fences: Vec<FenceSql<'_>>) -> Fenced<Self> {
                if D::NAME != "PostgreSQL" {
                    return begun(self, None).await?.fence(fences).await;
                }
                let begun = begun(self, Some(begin_in_postgres(&fences))).await;
                let is_refused = matches!(&begun, Err(FencedError::Database(Error::Database(error)))
                    if error.code().as_deref() == Some("22012")); // division by zero
                // Of several names the first stands for all. The statements may have waited for long.
                let confirm = fences.first().map_or(Ok(()), |fence| fence.confirm(!is_refused));
                match (begun, confirm) {
                    (Ok(begun), confirm) => confirmed(begun, confirm).await,
                    (Err(error), Ok(())) => Err(error),
                    (Err(_), Err(lost)) => Err(lost.into()),
                }
            }
        }

        /// Rolls a transaction back whose fence is refused.
        async fn confirmed<D: Database>(
            transaction: Transaction<'_, D>,
            confirmed: Result<(), LockError>,
        ) -> Result<Transaction<'_, D>, FencedError> {
            let Err(lost) = confirmed else { return Ok(transaction) };
            let _ = transaction.rollback().await; // a connection that has gone has no transaction
            Err(lost.into())
        }

        /// Begins a transaction in a task, which rolls it back if the caller is dropped meanwhile (see the module). The caller waits for
        /// the connection itself: dropped, it wants none any more.
        async fn begun<D: Database>(
            pool: &Pool<D>,
            statement: Option<String>,
        ) -> Result<Transaction<'static, D>, FencedError> {
            let runtime = Handle::try_current().map_err(|_| LockError::config(NO_RUNTIME))?;
            let connection = pool.acquire().await?;
            // What `Pool::begin_with` does with its connection; hidden in sqlx's docs.
            let begin = Transaction::begin(connection, statement.map($statement));
            match runtime.spawn(begin).await {
                Ok(begun) => Ok(begun?),
                Err(ended) if ended.is_panic() => std::panic::resume_unwind(ended.into_panic()),
                Err(_) => Err(LockError::RuntimeEnded { what: "the tokio runtime has ended" }.into()),
            }
        }
    };
}

/// Fenced transactions of sqlx 0.9: a holder that was paused cannot commit after a later one has written (feature `sqlx`, Rust 1.94).
///
/// [`FenceSql`] says how, after [Kleppmann 2016](https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html).
///
/// ```no_run
/// # async fn example(db: sqlx::SqlitePool) -> Result<(), Box<dyn std::error::Error>> {
/// let order = etcd_locked::lock("orders/7").await?;
/// order.hold(async {
///     let mut transaction = order.fenced(&db).await?;
///     sqlx::query("update orders set state = 'paid' where id = 7").execute(&mut *transaction).await?;
///     transaction.commit().await?;
///     Ok::<_, Box<dyn std::error::Error>>(())
/// }).await??;
/// # Ok(()) }
/// ```
///
/// **Read in the transaction what you write from.** What was read before may be older than a commit of the last holder. The book's page
/// [Fencing](https://github.com/etcd-locked/etcd-locked/blob/main/book/src/fencing.md#fenced-transactions) has what to know of each database, and of PgBouncer.
///
/// A transaction of a pool is begun in a task on the caller's tokio runtime, because a body may be dropped at any await, and sqlx leaves a
/// transaction open whose `begin` is dropped ([sqlx#4385](https://github.com/transact-rs/sqlx/issues/4385)). Without a runtime:
/// [`LockError::Config`].
#[cfg(feature = "sqlx")]
pub mod sqlx {
    use ::sqlx::{AssertSqlSafe, SqlSafeStr};

    layer!(sqlx, [D::Arguments: IntoArguments<D>], |text| AssertSqlSafe(text).into_sql_str());
}

/// Fenced transactions of sqlx 0.8 (feature `sqlx-0-8`): all is as with sqlx 0.9, in the module `sqlx`.
#[cfg(feature = "sqlx-0-8")]
pub mod sqlx_0_8 {
    layer!(sqlx_0_8, [for<'q> D::Arguments<'q>: IntoArguments<'q, D>], Into::into);
}
