//! Fenced transactions: what a holder that was overtaken cannot write. On SQLite.

use std::time::Duration;

use etcd_locked::sqlx::{Fenceable, FencedError, migration};
use etcd_locked::{Group, LockError, LockGuard, Locks, LossCause};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};
use sqlx::{Executor, IntoArguments, Pool, Sqlite, SqlitePool, Transaction};
use tempfile::TempDir;

use crate::corner::{Corner, take};
use crate::limit::{self, within};

/// A database with a row, which is to have the name of its last writer.
struct Database {
    pool: SqlitePool,
    _place: TempDir,
}

impl Database {
    async fn new() -> Self {
        let place = tempfile::tempdir().expect("an answer");
        let options = SqliteConnectOptions::new()
            .filename(place.path().join("orders"))
            .create_if_missing(true)
            .busy_timeout(Duration::from_secs(30));
        let pool = SqlitePoolOptions::new().connect_with(options).await;
        let database = Self { pool: pool.expect("an answer"), _place: place };
        database.execute(migration::<Sqlite>()).await;
        database.execute(migration::<Sqlite>()).await;
        database.execute("create table orders (writer text)").await;
        database.execute("insert into orders values ('-')").await;
        database
    }

    async fn execute(&self, statement: &str) {
        sqlx::query(statement).execute(&self.pool).await.expect("an answer");
    }

    async fn write<N: Group>(&self, guard: &LockGuard<N>, writer: &str) -> Result<(), FencedError> {
        Ok(self.written(guard, writer).await?.commit().await?)
    }

    /// A fenced transaction that has written, and is open.
    async fn written<N: Group>(
        &self,
        guard: &LockGuard<N>,
        writer: &str,
    ) -> Result<Transaction<'static, Sqlite>, FencedError> {
        written(&self.pool, guard, writer).await
    }

    async fn writer(&self) -> String {
        let read = sqlx::query_scalar("select writer from orders");
        read.fetch_one(&self.pool).await.expect("an answer")
    }
}

/// A fenced transaction of any database that has written, and is open.
pub(crate) async fn written<D, N>(
    pool: &Pool<D>,
    guard: &LockGuard<N>,
    writer: &str,
) -> Result<Transaction<'static, D>, FencedError>
where
    D: Fenceable,
    N: Group,
    for<'c> &'c mut D::Connection: Executor<'c, Database = D>,
    for<'q> D::Arguments<'q>: IntoArguments<'q, D>,
{
    let mut transaction = within("the fence", guard.begin_fenced(pool)).await?;
    // Databases differ in how they write a placeholder.
    sqlx::query(&format!("update orders set writer = '{writer}'"))
        .execute(&mut *transaction)
        .await?;
    Ok(transaction)
}

/// Tells whether it is a late holder's.
pub(crate) fn is_refused(error: &FencedError) -> bool {
    matches!(error, FencedError::Lock(LockError::Lost { .. }))
}

/// A corner, a database, and two engines, the first of which has a lock.
async fn held() -> (Corner, Database, [Locks; 2], LockGuard) {
    let (corner, [a, b]) = Corner::with_engines().await;
    let first = take("a free name", a.lock("orders/7")).await;
    (corner, Database::new().await, [a, b], first)
}

#[limit::test]
async fn an_overtaken_holder_is_refused() {
    let (corner, database, [_a, b], first) = held().await;
    database.write(&first, "a").await.unwrap();
    database.write(&first, "a again").await.unwrap();
    corner.take_away("orders/7").await;
    let next = take("the name that was taken away", b.lock("orders/7")).await;
    database.write(&next, "b").await.unwrap();
    let late = database.write(&first, "a, late").await.unwrap_err();
    assert!(is_refused(&late), "{late:?}");
    within("the loss", first.lost()).await;
    let late = database.write(&first, "a, late").await.unwrap_err();
    let FencedError::Lock(LockError::Lost { cause, .. }) = late else { panic!("{late:?}") };
    assert_eq!(cause, LossCause::Deleted);
    assert_eq!(database.writer().await, "b");
    next.locked().begin_fenced(&database.pool).await.unwrap();
}

#[limit::test]
async fn a_transaction_that_is_open_comes_before_the_next_holders() {
    let (corner, database, [_a, b], first) = held().await;
    let mut open = first.begin_fenced(&database.pool).await.unwrap();
    corner.take_away("orders/7").await;
    let next = take("the name that was taken away", b.lock("orders/7")).await;
    let (written, ()) = tokio::join!(database.write(&next, "b"), async {
        sqlx::query("update orders set writer = 'a'").execute(&mut *open).await.unwrap();
        open.commit().await.unwrap();
    });
    written.unwrap();
    assert_eq!(database.writer().await, "b");
}

#[limit::test]
async fn a_read_after_the_fence_sees_the_last_holders_commit() {
    let (corner, database, [_a, b], first) = held().await;
    let open = database.written(&first, "a").await.unwrap();
    corner.take_away("orders/7").await;
    let next = take("the name that was taken away", b.lock("orders/7")).await;
    // It has the lock, and what it reads without a fence is about to change.
    assert_eq!(database.writer().await, "-");
    let (read, ()) = tokio::join!(
        async {
            let fenced = next.begin_fenced(&database.pool);
            let mut fenced = within("the fence", fenced).await.unwrap();
            let read = sqlx::query_scalar("select writer from orders");
            let read: String = read.fetch_one(&mut *fenced).await.unwrap();
            read
        },
        async { open.commit().await.unwrap() }
    );
    assert_eq!(read, "a");
}

#[limit::test]
async fn a_late_holders_own_transaction_is_refused() {
    let (corner, database, [_a, b], first) = held().await;
    let own = database.pool.begin().await.unwrap();
    let open = first.fenced(own).await.unwrap();
    open.commit().await.unwrap();
    corner.take_away("orders/7").await;
    let next = take("the name that was taken away", b.lock("orders/7")).await;
    database.write(&next, "b").await.unwrap();
    let own = database.pool.begin().await.unwrap();
    let late = first.fenced(own).await.unwrap_err();
    assert!(is_refused(&late), "{late:?}");
}

#[limit::test]
async fn a_dropped_body_makes_way_for_the_next_holder() {
    let (corner, database, [_a, b], first) = held().await;
    let body = first.hold(async {
        let open = database.written(&first, "a").await.unwrap();
        corner.take_away("orders/7").await;
        std::future::pending::<()>().await;
        drop(open);
    });
    let lost = within("the loss", body).await.unwrap_err();
    assert_matches!(lost, LockError::Lost { .. });
    let next = take("the name that was taken away", b.lock("orders/7")).await;
    database.write(&next, "b").await.unwrap();
    assert_eq!(database.writer().await, "b");
}

#[limit::test]
async fn several_names_are_fenced_together() {
    let (corner, database) = (Corner::new().await, Database::new().await);
    let (a, b) = (corner.locks().await, corner.locks().await);
    let both = take("free names", a.lock("orders/8").and("orders/7")).await;
    database.write(&both, "a").await.unwrap();
    corner.take_away("orders/8").await;
    let next = take("one of the names", b.lock("orders/8")).await;
    database.write(&next, "b").await.unwrap();
    let late = database.write(&both, "a, late").await.unwrap_err();
    assert!(is_refused(&late), "{late:?}");
    assert_eq!(database.writer().await, "b");
}

#[limit::test]
async fn tokens_of_another_etcd_are_named() {
    let (corner, database) = (Corner::new().await, Database::new().await);
    let locks = corner.locks().await;
    let held = take("a free name", locks.lock("orders/7")).await;
    database.write(&held, "a").await.unwrap();
    let later = "update etcd_locked_tokens set token = 9223372036854775807";
    database.execute(later).await;
    let refused = database.write(&held, "a").await.unwrap_err();
    assert!(refused.to_string().contains("empty it"), "{refused}");
    assert!(held.is_held());
}

#[limit::test]
async fn a_missing_table_is_the_databases_error() {
    let (corner, database) = (Corner::new().await, Database::new().await);
    database.execute("drop table etcd_locked_tokens").await;
    let locks = corner.locks().await;
    let held = take("a free name", locks.lock("orders/7")).await;
    let refused = database.write(&held, "a").await;
    assert_matches!(refused, Err(FencedError::Database(_)));
}
