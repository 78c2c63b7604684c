//! Fenced transactions of a database: a holder that was paused cannot commit after a later one has written (feature `sqlx`).
//!
//! A table of the database ([`migration`]) has the highest token that any transaction of a lock's holders has shown, by name. A
//! transaction begins by raising it, which locks the row until its end: holders write one after the other, and one that is late finds a
//! greater token and is refused. Tables of your own get no column for it.
//! [Kleppmann 2016](https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html) is the source of the rule.
//!
//! ```no_run
//! # async fn example(db: sqlx::SqlitePool) -> Result<(), Box<dyn std::error::Error>> {
//! let order = etcd_locked::lock("orders/7").await?;
//! order.hold(async {
//!     let mut transaction = order.begin_fenced(&db).await?;
//!     sqlx::query("update orders set state = 'paid' where id = 7").execute(&mut *transaction).await?;
//!     transaction.commit().await?;
//!     Ok::<_, Box<dyn std::error::Error>>(())
//! }).await??;
//! # Ok(()) }
//! ```
//!
//! - **Read in the transaction what you write from.** What was read before may be older than a commit of the last holder.
//! - It costs no exchange in PostgreSQL, one statement in SQLite, three in MySQL.
//! - A holder that is paused with a transaction open keeps the next one's waiting until its connection ends: set a limit for that in the
//!   database, such as PostgreSQL's `idle_in_transaction_session_timeout`.
//! - In a cluster of MySQL or MariaDB with several writers nothing waits across nodes: there the later of two holders' commits fails.
//! - [`LockError::Lost`] from the body's call says that the body was dropped, perhaps while the database committed: such a commit came
//!   before the next holder's all the same.
//! - Begin one at a time: a second of the same name, as in a [`reentrant`](crate::Acquire::reentrant) call, waits for the end of the first.
//! - Readers and permits have none of this: their tokens do not follow each other.
//! - A transaction is begun in a task on the caller's tokio runtime, because a body may be dropped at any await, and sqlx leaves a
//!   transaction open whose `begin` is dropped ([sqlx#4385](https://github.com/transact-rs/sqlx/issues/4385)). Without a runtime:
//!   [`LockError::Config`].

use std::panic::resume_unwind;

use ::sqlx::{
    ColumnIndex, Database, Decode, Encode, Executor, IntoArguments, Pool, Row, Transaction, Type,
};
use tokio::runtime::Handle;
use tokio::task::JoinError;

use crate::engine::{OwnedLock, OwnedLocks};
use crate::values::{LockError, LossCause};

const MYSQL: &str = "MySQL";
const POSTGRES: &str = "PostgreSQL";
const SQLITE: &str = "SQLite";

/// Raises a token, and answers it; nothing, if a greater one is there. PostgreSQL and SQLite.
const RAISE: &str = "insert into etcd_locked_tokens (name, token) values ($1, $2) \
                     on conflict (name) do update set token = excluded.token \
                     where etcd_locked_tokens.token <= excluded.token returning token";

/// MySQL and MariaDB return nothing of the kind from an insert, so theirs takes two statements, behind one that lowers the holder's own
/// token by one: so each of its transactions changes the row. A cluster with several writers compares no other rows when it commits.
const LOWER_IN_MYSQL: &str = "insert into etcd_locked_tokens (name, token) values (?, ?) \
                              on duplicate key update token = if(token = values(token) + 1, values(token), token)";
const RAISE_IN_MYSQL: &str = "insert into etcd_locked_tokens (name, token) values (?, ?) \
                              on duplicate key update token = greatest(token, values(token))";
const READ_IN_MYSQL: &str = "select token from etcd_locked_tokens where name = ? for update";

/// What PostgreSQL says of a token that cannot be raised, before the number of its name.
const OVERTAKEN: &str = "etcd-locked: a later holder was first, of name ";

/// Writes the message that raises tokens and begins a transaction: PostgreSQL takes what stands before a `begin` in one message into
/// that transaction. Where a greater token is there, a text that is no number is cast: PostgreSQL quotes it in its error, and begins
/// nothing. The text depends on a column, so PostgreSQL casts it only then. The refusal rests on no constraint, which a table made by
/// hand may lack. The message has no parameters. No name ends its quotes: names, and the prefix, are of letters, digits, `/` and `._~:@=+-%`.
fn begin_in_postgres(locks: &[&OwnedLock]) -> String {
    let raise = locks.iter().enumerate().map(|(at, lock)| {
        let name = lock.name_of_key();
        let token = lock.token.as_i64();
        format!(
            "insert into etcd_locked_tokens (name, token) values ('{name}', {token}) \
             on conflict (name) do update set token = case when etcd_locked_tokens.token <= excluded.token \
             then excluded.token else cast('{OVERTAKEN}{at}.' || left(excluded.name, 0) as bigint) end; "
        )
    });
    raise.chain(["begin".to_owned()]).collect()
}

/// Returns the lock whose token could not be raised; `None` if that was not the error.
fn overtaken<'l>(locks: &[&'l OwnedLock], error: &FencedError) -> Option<&'l OwnedLock> {
    let FencedError::Database(::sqlx::Error::Database(error)) = error else { return None };
    let (_, number) = error.message().split_once(OVERTAKEN)?;
    let (number, _) = number.split_once('.')?;
    locks.get(number.parse::<usize>().ok()?).copied()
}

/// Why a transaction was not fenced. It is rolled back then.
#[derive(Debug, thiserror::Error)]
pub enum FencedError {
    /// [`LockError::Lost`]: the lock is lost; [`LossCause::Overtaken`] where only the database knows it yet.
    /// [`LockError::Config`]: a database that is not one of the three; or `begin_fenced` on no tokio runtime.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The database failed; most often the table is missing: see [`migration`].
    #[error("the token of the lock could not be written to the database: {0}")]
    Database(#[from] ::sqlx::Error),
}

/// A database whose transactions can be fenced: those of sqlx for PostgreSQL, for MySQL and MariaDB, and for SQLite.
pub trait Fenceable: Database + Sized {
    /// Executes a statement with a name, and a token if there is one; answers the number that it returns.
    #[doc(hidden)]
    fn number(
        connection: &mut Self::Connection,
        statement: &'static str,
        name: &str,
        token: Option<i64>,
    ) -> impl Future<Output = Result<Option<i64>, ::sqlx::Error>> + Send;
}

impl<D> Fenceable for D
where
    D: Database,
    for<'c> &'c mut D::Connection: Executor<'c, Database = D>,
    for<'q> D::Arguments<'q>: IntoArguments<'q, D>,
    for<'q> &'q str: Encode<'q, D>,
    str: Type<D>,
    i64: Type<D> + for<'q> Encode<'q, D> + for<'r> Decode<'r, D>,
    usize: ColumnIndex<D::Row>,
{
    async fn number(
        connection: &mut D::Connection,
        statement: &'static str,
        name: &str,
        token: Option<i64>,
    ) -> Result<Option<i64>, ::sqlx::Error> {
        let mut query = ::sqlx::query(statement).bind(name);
        if let Some(token) = token {
            query = query.bind(token);
        }
        let row = query.fetch_optional(connection).await?;
        row.map(|row| row.try_get(0)).transpose()
    }
}

/// The table that fenced transactions need, as a statement in the words of a database; it does nothing where the table is there.
///
/// Execute it with your migrations. The table has one small row for each name that was ever fenced. A row may be deleted when no
/// call holds its name, or waits for it.
///
/// After etcd was wiped or restored from a snapshot (log code `etcd.history_lost`), tokens begin again below those in the table, and
/// every fenced transaction is refused: empty the table then, while no body runs.
///
/// ```no_run
/// # async fn migrate(db: sqlx::SqlitePool) -> Result<(), ::sqlx::Error> {
/// sqlx::query(etcd_locked::sqlx::migration::<sqlx::Sqlite>()).execute(&db).await?;
/// # Ok(()) }
/// ```
#[must_use]
pub fn migration<D: Fenceable>() -> &'static str {
    if D::NAME == MYSQL {
        // Names differ by case, and are ASCII, whatever the database's own alphabet is.
        "create table if not exists etcd_locked_tokens \
         (name varchar(1280) character set ascii collate ascii_bin not null primary key, token bigint not null)"
    } else {
        "create table if not exists etcd_locked_tokens (name varchar(1280) not null primary key, token bigint not null)"
    }
}

/// Begins a transaction, and shows it the tokens of locks of a call, in as few exchanges as the database allows.
pub(crate) async fn begin<'l, D: Fenceable>(
    call: &OwnedLocks,
    locks: impl IntoIterator<Item = &'l OwnedLock>,
    pool: &Pool<D>,
) -> Result<Transaction<'static, D>, FencedError> {
    let locks = in_order(locks);
    if D::NAME != POSTGRES {
        let transaction = begun(pool, None).await?;
        return fence(call, locks, transaction).await;
    }
    match begun(pool, Some(begin_in_postgres(&locks))).await {
        // The statements may have waited for long.
        Ok(transaction) if call.lost().is_none() => Ok(transaction),
        Ok(transaction) => {
            transaction.rollback().await?;
            Err(refused(call, locks.first().copied().unwrap_or(&call.first)))
        }
        Err(error) => Err(overtaken(&locks, &error).map_or(error, |lock| refused(call, lock))),
    }
}

/// Begins a transaction in a task, which rolls it back if the caller is dropped meanwhile (see the module). The caller waits for the
/// connection itself: dropped, it wants none any more.
async fn begun<D: Fenceable>(
    pool: &Pool<D>,
    statement: Option<String>,
) -> Result<Transaction<'static, D>, FencedError> {
    let runtime = Handle::try_current().map_err(|_| {
        LockError::config(
            "`begin_fenced` begins the transaction in a task of its own, and the caller runs on no tokio runtime; call it from \
             one, or use `fenced` on a transaction that you begin",
        )
    })?;
    let connection = pool.acquire().await?;
    // What `Pool::begin_with` does with its connection; hidden in sqlx's docs.
    let begin = Transaction::begin(connection, statement.map(Into::into));
    match runtime.spawn(begin).await.map_err(JoinError::try_into_panic) {
        Ok(begun) => Ok(begun?),
        Err(Ok(panic)) => resume_unwind(panic),
        Err(Err(_)) => {
            let ended = "the tokio runtime ended while a transaction was being begun";
            Err(LockError::config(ended).into())
        }
    }
}

/// Shows the tokens of exclusive locks of a call to a transaction: those of readers do not follow each other.
pub(crate) async fn fence<'t, 'l, D: Fenceable>(
    call: &OwnedLocks,
    locks: impl IntoIterator<Item = &'l OwnedLock>,
    mut transaction: Transaction<'t, D>,
) -> Result<Transaction<'t, D>, FencedError> {
    for lock in in_order(locks) {
        let is_latest = raise(&mut transaction, lock.name_of_key(), lock.token.as_i64()).await?;
        // A statement may have waited for long.
        if is_latest && call.lost().is_none() {
            continue;
        }
        transaction.rollback().await?;
        return Err(refused(call, lock));
    }
    Ok(transaction)
}

/// In one order, so that transactions of several names do not wait for each other in a cycle.
fn in_order<'l>(locks: impl IntoIterator<Item = &'l OwnedLock>) -> Vec<&'l OwnedLock> {
    let mut locks: Vec<_> = locks.into_iter().collect();
    locks.sort_by(|one, other| one.name_of_key().cmp(other.name_of_key()));
    locks
}

fn refused(call: &OwnedLocks, lock: &OwnedLock) -> FencedError {
    let name = lock.name.clone();
    let cause = call.lost().unwrap_or(LossCause::Overtaken);
    LockError::Lost { name, cause }.into()
}

/// Raises the highest token that was seen under a name, which has the prefix; false if it is greater than this one.
async fn raise<D: Fenceable>(
    transaction: &mut Transaction<'_, D>,
    name: &str,
    token: i64,
) -> Result<bool, FencedError> {
    match D::NAME {
        POSTGRES | SQLITE => {
            let raised = D::number(&mut *transaction, RAISE, name, Some(token)).await?;
            Ok(raised.is_some())
        }
        MYSQL => {
            D::number(&mut *transaction, LOWER_IN_MYSQL, name, Some(token - 1)).await?;
            D::number(&mut *transaction, RAISE_IN_MYSQL, name, Some(token)).await?;
            let highest = D::number(&mut *transaction, READ_IN_MYSQL, name, None).await?;
            Ok(highest == Some(token))
        }
        other => Err(LockError::config(format!(
            "a fence is for PostgreSQL, MySQL and SQLite, not {other}: open the pool with the database's own type"
        )).into()),
    }
}
