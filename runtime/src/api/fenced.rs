//! Fenced transactions of sqlx: one layer for each of its versions.

use crate::api::{Dialect, FenceSql};
use crate::values::LockError;

/// Target of a fence: a pool, which begins the transaction, or a transaction. Each version of sqlx has its own targets.
pub trait FenceTarget: Sized {
    /// The fenced transaction.
    type Transaction;
    /// The error if the transaction could not be fenced.
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
                "fenced transactions work on PostgreSQL, MySQL and SQLite, not on {other}: open the pool with the database's own type"
            )).into());
        }
    };
    target.fence(fences(dialect)).await
}

/// Writes a message that raises the tokens and begins a transaction. PostgreSQL includes statements before `begin` in the same message in
/// that transaction. sqlx does not show their rows. So a statement without a row divides by zero, and PostgreSQL begins nothing. The
/// message takes no parameters. Names and the prefix consist of letters, digits, `/` and `._~:@=+-%`, so they can neither close the
/// quotes nor look like a parameter.
fn begin_in_postgres(fences: &[FenceSql<'_>]) -> String {
    let raise = fences.iter().map(|fence| {
        let (name, token) = (format!("'{}'", fence.name()), fence.token().to_string());
        let sql = fence.sql().replace("$1", &name).replace("$2", &token);
        format!("with no_later_holder as ({sql}) select 1 / count(*) from no_later_holder; ")
    });
    raise.chain(["begin".to_owned()]).collect()
}

const NO_RUNTIME: &str = "a transaction of a pool begins in a tokio task, and this call runs outside a tokio runtime: call it on one, \
                          or begin the transaction yourself and fence that";

/// Generates the layer for one version of sqlx, with its bound on arguments and its conversion of a composed statement.
macro_rules! layer {
    ($sqlx:ident, [$($arguments:tt)*], $statement:expr) => {
        use ::$sqlx::database::HasStatementCache;
        use ::$sqlx::{Database, Encode, Error, Executor, IntoArguments, Pool, Transaction, Type};
        use tokio::runtime::Handle;

        pub use super::FenceTarget;
        use super::{FenceSql, Fenced, LockError, NO_RUNTIME, begin_in_postgres};

        /// Reason why a transaction was not fenced. The transaction is rolled back.
        #[derive(Debug, thiserror::Error)]
        pub enum FencedError {
            /// [`LockError::Lost`] if the lock is lost, by [`LossCause::Overtaken`](crate::LossCause) if only the database knows yet.
            /// [`LockError::Config`] for another database, or for a pool outside a tokio runtime. [`LockError::RuntimeEnded`] if that
            /// runtime ended.
            #[error(transparent)]
            Lock(#[from] LockError),
            /// The database failed. Most often the table is missing: see [`Dialect::migration`](crate::Dialect::migration).
            #[error("the lock's token could not be written to the table `etcd_locked_tokens` (`Dialect::migration` creates it)")]
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
                    // A named statement would fail behind PgBouncer.
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
                // The first of several names stands for all. The statements may have waited for long.
                let confirm = fences.first().map_or(Ok(()), |fence| fence.confirm(!is_refused));
                match (begun, confirm) {
                    (Ok(begun), confirm) => confirmed(begun, confirm).await,
                    (Err(error), Ok(())) => Err(error),
                    (Err(_), Err(lost)) => Err(lost.into()),
                }
            }
        }

        /// Rolls the transaction back if its fence is refused.
        async fn confirmed<D: Database>(
            transaction: Transaction<'_, D>,
            confirmed: Result<(), LockError>,
        ) -> Result<Transaction<'_, D>, FencedError> {
            let Err(lost) = confirmed else { return Ok(transaction) };
            let _ = transaction.rollback().await; // if it fails, the connection is gone, and the transaction with it
            Err(lost.into())
        }

        /// Begins a transaction in a task, which rolls it back if the caller is dropped meanwhile (see the module). The caller itself
        /// waits for the connection, so a dropped caller requests none.
        async fn begun<D: Database>(
            pool: &Pool<D>,
            statement: Option<String>,
        ) -> Result<Transaction<'static, D>, FencedError> {
            let runtime = Handle::try_current().map_err(|_| LockError::config(NO_RUNTIME))?;
            let connection = pool.acquire().await?;
            // `Pool::begin_with` does the same with its connection. The function is hidden in sqlx's docs.
            let begin = Transaction::begin(connection, statement.map($statement));
            match runtime.spawn(begin).await {
                Ok(begun) => Ok(begun?),
                Err(ended) if ended.is_panic() => std::panic::resume_unwind(ended.into_panic()),
                Err(_) => Err(LockError::RuntimeEnded { what: "the caller's tokio runtime has ended" }.into()),
            }
        }
    };
}

/// Fenced transactions of sqlx 0.9: a paused holder cannot commit after a later one has written (feature `sqlx`, Rust 1.94).
///
/// [`FenceSql`] explains the method, after [Kleppmann 2016](https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html).
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
/// **Read inside the transaction what your writes depend on.** What was read before may be older than a commit of the last holder. The
/// book's page [Fencing](https://github.com/etcd-locked/etcd-locked/blob/main/book/src/fencing.md#fenced-transactions) covers each database.
///
/// `fenced(&pool)` begins its transaction in a task on the caller's tokio runtime. The reason is that a body may be dropped at any await,
/// and sqlx leaves a transaction open if its `begin` is dropped ([sqlx#4385](https://github.com/transact-rs/sqlx/issues/4385)). Without a
/// runtime it returns [`LockError::Config`].
#[cfg(feature = "sqlx")]
pub mod sqlx {
    use ::sqlx::{AssertSqlSafe, SqlSafeStr};

    layer!(sqlx, [D::Arguments: IntoArguments<D>], |text| AssertSqlSafe(text).into_sql_str());
}

/// Fenced transactions of sqlx 0.8 (feature `sqlx-0-8`). Everything works as with sqlx 0.9, in the module `sqlx`.
#[cfg(feature = "sqlx-0-8")]
pub mod sqlx_0_8 {
    layer!(sqlx_0_8, [for<'q> D::Arguments<'q>: IntoArguments<'q, D>], Into::into);
}
