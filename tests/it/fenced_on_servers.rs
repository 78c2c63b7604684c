//! Fenced transactions of PostgreSQL, and of MariaDB, which takes two statements for a fence, as MySQL does: where they are installed.

use etcd_locked::LockError;
use etcd_locked::sqlx::{Fenceable, FencedError, migration};
use etcd_locked_devkit::{MariaDb, Postgres, Result};
use sqlx::mysql::MySqlConnectOptions;
use sqlx::postgres::PgPoolOptions;
use sqlx::{ColumnIndex, Decode, Executor, IntoArguments, MySqlPool, PgPool, Pool, Type};
use tokio::task::spawn_blocking;

use crate::corner::{Corner, take};
use crate::fenced::{is_refused, written};
use crate::limit::{self, within};
use crate::real_only::say_left_out;
use crate::steps::{When, poll_then_drop};

#[limit::test]
async fn holders_write_to_postgresql_one_after_the_other() {
    if Postgres::is_installed() {
        let server = started(|| Postgres::start(&[])).await;
        let pool = PgPool::connect(&server.url()).await.expect("an answer");
        holders_write_one_after_the_other(pool).await;
    } else {
        leave_out("PostgreSQL");
    }
}

#[limit::test]
async fn holders_write_to_mariadb_one_after_the_other() {
    if MariaDb::is_installed() {
        let server = started(MariaDb::start).await;
        let options: MySqlConnectOptions = server.url().parse().expect("an address");
        let root = MySqlPool::connect_with(options.clone()).await;
        let create = sqlx::query("create database shop");
        create.execute(&root.expect("an answer")).await.expect("an answer");
        let pool = MySqlPool::connect_with(options.database("shop")).await;
        holders_write_one_after_the_other(pool.expect("an answer")).await;
    } else {
        leave_out("MariaDB");
    }
}

/// Nothing but the tokens decides: not what a table made by hand leaves out.
#[limit::test]
async fn postgresql_names_the_overtaken_lock_of_several() {
    if !Postgres::is_installed() {
        return leave_out("PostgreSQL");
    }
    let (_server, pool) = one_connection().await;
    let table = "create table etcd_locked_tokens (name text primary key, token bigint)";
    pool.execute(table).await.expect("an answer");
    let corner = Corner::new().await;
    let (a, b) = (corner.locks().await, corner.locks().await);
    let both = take("free names", a.lock("orders/7").and("orders/8")).await;
    let begun = both.begin_fenced(&pool).await.expect("an answer");
    begun.commit().await.expect("an answer");
    corner.take_away("orders/8").await;
    let next = take("one of the names", b.lock("orders/8")).await;
    let begun = next.begin_fenced(&pool).await.expect("an answer");
    begun.commit().await.expect("an answer");
    for _ in 0..3 {
        let late = both.begin_fenced(&pool).await.expect_err("a refusal");
        let FencedError::Lock(LockError::Lost { name, .. }) = late else { panic!("{late:?}") };
        assert_eq!(name.text(), Some("orders/8"));
        assert!(!is_writing(&pool).await);
    }
    let begun = next.begin_fenced(&pool).await.expect("an answer");
    begun.commit().await.expect("an answer");
}

/// sqlx by itself leaves open what it had begun: <https://github.com/transact-rs/sqlx/issues/4385>.
#[limit::test]
async fn a_begin_that_is_dropped_leaves_nothing_open() {
    if !Postgres::is_installed() {
        return leave_out("PostgreSQL");
    }
    let (_server, pool) = one_connection().await;
    let migrated = pool.execute(migration::<sqlx::Postgres>()).await;
    migrated.expect("an answer");
    let corner = Corner::new().await;
    let locks = corner.locks().await;
    let held = take("a free name", locks.lock("orders/7")).await;
    let mut dropped = 0;
    while dropped < 100 {
        let counts = (1..6).flat_map(|polls| [(polls, When::AtOnce), (polls, When::WhenWoken)]);
        for (polls, when) in counts {
            let begin = poll_then_drop(polls, when, held.begin_fenced(&pool));
            match within("the transaction", begin).await {
                None => dropped += 1,
                Some(begun) => begun.expect("an answer").commit().await.expect("an answer"),
            }
            let open = is_writing(&pool).await;
            assert!(!open, "dropped after {polls} polls, {when:?}");
        }
    }
}

/// A PostgreSQL, and a pool with one connection to it.
async fn one_connection() -> (Postgres, PgPool) {
    let server = started(|| Postgres::start(&[])).await;
    let pool = PgPoolOptions::new().max_connections(1);
    let pool = pool.connect(&server.url()).await.expect("an answer");
    (server, pool)
}

/// Tells whether the connection is inside a transaction that has written: a read outside has no number.
async fn is_writing(pool: &PgPool) -> bool {
    let writes = sqlx::query_scalar("select txid_current_if_assigned() is not null");
    writes.fetch_one(pool).await.expect("an answer")
}

async fn started<S: Send + 'static>(start: impl FnOnce() -> Result<S> + Send + 'static) -> S {
    let server = spawn_blocking(start).await.expect("no panic");
    server.expect("a server")
}

/// Prints that the test leaves itself out.
fn leave_out(server: &str) {
    say_left_out(&format!("{server} is not installed"));
}

async fn holders_write_one_after_the_other<D: Fenceable>(pool: Pool<D>)
where
    for<'c> &'c mut D::Connection: Executor<'c, Database = D>,
    for<'q> D::Arguments<'q>: IntoArguments<'q, D>,
    String: Type<D> + for<'r> Decode<'r, D>,
    usize: ColumnIndex<D::Row>,
{
    for statement in [
        migration::<D>(),
        migration::<D>(),
        "create table orders (writer text)",
        "insert into orders values ('-')",
    ] {
        let executed = sqlx::query(statement).execute(&pool).await;
        executed.expect("an answer");
    }
    let writer = || async {
        let read = sqlx::query_scalar::<D, String>("select writer from orders");
        read.fetch_one(&pool).await.expect("an answer")
    };
    let corner = Corner::new().await;
    let (a, b) = (corner.locks().await, corner.locks().await);
    let first = take("a free name", a.lock("orders/7")).await;
    let transaction = written(&pool, &first, "a").await.expect("an answer");
    transaction.commit().await.expect("an answer");
    let open = written(&pool, &first, "a again").await.expect("an answer");
    corner.take_away("orders/7").await;
    let next = take("the name that was taken away", b.lock("orders/7")).await;
    // The next holder's fence waits for the transaction that is open.
    let (later, ()) = tokio::join!(written(&pool, &next, "b"), async {
        open.commit().await.expect("an answer");
        assert_eq!(writer().await, "a again");
    });
    later.expect("an answer").commit().await.expect("an answer");
    let late = written(&pool, &first, "a, late").await.expect_err("a refusal");
    assert!(is_refused(&late), "{late:?}");
    let own = pool.begin().await.expect("an answer");
    let late = first.fenced(own).await.expect_err("a refusal");
    assert!(is_refused(&late), "{late:?}");
    assert_eq!(writer().await, "b");
}
