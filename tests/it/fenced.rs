//! Fenced transactions: an overtaken holder cannot write. Tests use SQLite, and PostgreSQL and MariaDB if installed.

use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use etcd_locked::sqlx::{FenceTarget, FencedError};
use etcd_locked::{Dialect, Group, LockError, LockGuard, Locks, LossCause};
use etcd_locked_devkit::{MariaDb, Postgres, Process, until};
use etcd_locked_tests::fenced::write;
use rustix::process::geteuid;
use sqlx::mysql::MySqlPoolOptions;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{
    AssertSqlSafe, ColumnIndex, Database, Decode, Executor, MySqlPool, Pool, Row, SqlitePool,
    Transaction, Type,
};
use tempfile::TempDir;
use tokio::task::{JoinSet, LocalSet};
use tokio::time::sleep;

use crate::corner::{Corner, take};
use crate::limit::{self, blocking, within};
use crate::real_only::say_left_out;
use crate::steps::{When, poll_then_drop};

/// Number of transactions that are stopped, at each step in turn.
const STOPPED: usize = 20;
const STEPS: [&str; 3] = ["begun", "fenced", "written"];

fn name(id: usize) -> String {
    format!("orders/{id}")
}

/// Migrates twice, and makes a row for each of these names, which holds the name of its last writer.
async fn prepare<D: Database>(pool: &Pool<D>, of: Dialect, ids: impl IntoIterator<Item = usize>)
where
    for<'c> &'c mut D::Connection: Executor<'c, Database = D>,
{
    let create = "create table orders (name varchar(40) primary key, writer varchar(40))";
    let rows = ids.into_iter().map(|id| format!("insert into orders values ('{}', '-')", name(id)));
    let tables = [of.migration(), of.migration(), create].map(str::to_owned);
    for statement in tables.into_iter().chain(rows) {
        sqlx::raw_sql(AssertSqlSafe(statement)).execute(pool).await.expect("an answer");
    }
}

async fn writer<D: Database>(pool: &Pool<D>, name: &str) -> String
where
    for<'c> &'c mut D::Connection: Executor<'c, Database = D>,
    String: Type<D> + for<'r> Decode<'r, D>,
    usize: ColumnIndex<D::Row>,
{
    let read = format!("select writer from orders where name = '{name}'");
    sqlx::raw_sql(AssertSqlSafe(read)).fetch_one(pool).await.expect("an answer").get(0)
}

/// Returns an open fenced transaction that has written.
async fn written<D: Database, N: Group>(
    pool: &Pool<D>,
    guard: &LockGuard<N>,
    name: &str,
    writer: &str,
) -> Result<Transaction<'static, D>, FencedError>
where
    for<'c> &'c mut D::Connection: Executor<'c, Database = D>,
    Transaction<'static, D>:
        FenceTarget<Transaction = Transaction<'static, D>, Error = FencedError>,
{
    let mut transaction = within("the fence", guard.fenced(pool)).await?;
    write(&mut transaction, name, writer).await?;
    Ok(transaction)
}

/// Stops a process in the middle of its transactions until others have its locks, then lets it continue. Everything it still commits
/// comes before the next holder's write. `targets` has a database for each lock, by URL and pool.
async fn stopped_holders_commit_nothing_late<D: Database>(targets: Vec<(String, Pool<D>)>)
where
    for<'c> &'c mut D::Connection: Executor<'c, Database = D>,
    Transaction<'static, D>:
        FenceTarget<Transaction = Transaction<'static, D>, Error = FencedError>,
    String: Type<D> + for<'r> Decode<'r, D>,
    usize: ColumnIndex<D::Row>,
{
    let (corner, [next]) = Corner::with_engines().await;
    // Rows of tokens that are inserted concurrently would wait for each other: databases lock the gaps between rows.
    for (id, (_, pool)) in targets.iter().enumerate() {
        let guard = take("a free name", next.lock(name(id))).await;
        let first = written(pool, &guard, &name(id), "first").await.expect("the only holder");
        first.commit().await.expect("an answer");
        guard.release().await.expect("released");
    }
    let mut stopped = corner.worker([("ETCD_LOCKED_TTL", "2s")]);
    for (id, (url, _)) in targets.iter().enumerate() {
        let step = STEPS[id % STEPS.len()];
        stopped.asked(&format!("fenced {} {step} {url}", name(id)), "stops").await;
    }
    stopped.stop();
    let local = LocalSet::new();
    let mut writes = JoinSet::new();
    for (id, (_, pool)) in targets.iter().enumerate() {
        let (call, pool) = (next.lock(name(id)).wait_forever(), pool.clone());
        let write = async move {
            let guard = take("the lock of a stopped holder", call).await;
            let transaction = written(&pool, &guard, &name(id), "next").await;
            transaction.expect("the only holder").commit().await.expect("an answer");
            guard.release().await.expect("released");
        };
        writes.spawn_local_on(write, &local);
    }
    let all = async {
        // The next holders have all locks, and have written wherever no open transaction blocks them.
        let unstopped = STOPPED.div_ceil(STEPS.len());
        for _ in 0..unstopped {
            within("a write", writes.join_next()).await.expect("one more").expect("no panic");
        }
        // Time for the others to wait in the database, behind the open transactions.
        sleep(Duration::from_secs(1)).await;
        stopped.cont();
        stopped.send("go");
        for _ in 0..STOPPED {
            let ended = stopped.says("ended").await;
            assert!(!ended.ends_with("begun committed"), "`{ended}`: too late");
        }
        within("the other writes", async { while writes.join_next().await.is_some() {} }).await;
    };
    local.run_until(all).await;
    for (id, (_, pool)) in targets.iter().enumerate() {
        let last = writer(pool, &name(id)).await;
        assert_eq!(last, "next", "{} at the step {}", name(id), STEPS[id % STEPS.len()]);
    }
}

/// Starts PostgreSQL; if it is not installed, prints that the test is left out.
async fn postgres() -> Option<Postgres> {
    if !Postgres::is_installed() {
        say_left_out("PostgreSQL is not installed");
        return None;
    }
    Some(blocking(|| Postgres::start(&[])).await)
}

/// Makes a separate SQLite with these rows, because SQLite has one writing transaction at a time.
async fn sqlite(place: &TempDir, ids: impl IntoIterator<Item = usize>) -> (String, SqlitePool) {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let file = place.path().join(NEXT.fetch_add(1, Ordering::Relaxed).to_string());
    let options = SqliteConnectOptions::new().filename(&file).create_if_missing(true);
    let pool = SqlitePool::connect_with(options.busy_timeout(Duration::from_secs(30))).await;
    let pool = pool.expect("an answer");
    prepare(&pool, Dialect::Sqlite, ids).await;
    (format!("sqlite:{}", file.display()), pool)
}

#[limit::test]
async fn stopped_holders_write_nothing_late_to_sqlite() {
    let place = tempfile::tempdir().expect("a directory");
    let mut targets = Vec::new();
    for id in 0..STOPPED {
        targets.push(sqlite(&place, [id]).await);
    }
    stopped_holders_commit_nothing_late(targets).await;
}

#[limit::test]
async fn stopped_holders_write_nothing_late_to_postgresql() {
    let Some(server) = postgres().await else { return };
    let pool = PgPoolOptions::new().max_connections(2 * STOPPED as u32);
    let pool = pool.connect(&server.url()).await.expect("an answer");
    prepare(&pool, Dialect::Postgres, 0..STOPPED).await;
    stopped_holders_commit_nothing_late(vec![(server.url(), pool); STOPPED]).await;
}

/// Starts PgBouncer in front of a server, in transaction mode, and returns it with its address. It refuses to run as root.
fn pgbouncer(server: &Postgres) -> Option<(Process, String)> {
    let url = server.url();
    let options: PgConnectOptions = url.parse().expect("an address");
    let place = options.get_socket().expect("a socket");
    let (file, at) = (place.join("pgbouncer.ini"), place.display());
    let settings = format!(
        "[databases]\npostgres = host={at} user=postgres\n[pgbouncer]\nunix_socket_dir = {at}\nlisten_port = 6432\nauth_type = any\n\
         pool_mode = transaction\ndefault_pool_size = 50\nignore_startup_parameters = extra_float_digits\n"
    );
    std::fs::write(&file, settings).expect("a file");
    let mut command = std::process::Command::new("pgbouncer");
    command.arg("-q").args(["-u", "nobody"].iter().filter(|_| geteuid().is_root())).arg(file);
    let started = Process::start("PgBouncer", &mut command).ok()?;
    let serves = || UnixStream::connect(place.join(".s.PGSQL.6432")).is_ok();
    until("PgBouncer serves", Duration::from_secs(20), serves).expect("a start");
    let (url, database) = url.rsplit_once('/').expect("a path");
    Some((started, format!("{url}:6432/{database}?statement-cache-capacity=0")))
}

#[limit::test]
async fn stopped_holders_write_nothing_late_through_pgbouncer() {
    let Some(server) = postgres().await else { return };
    let bouncer = pgbouncer(&server);
    let Some((_bouncer, url)) = bouncer else { return say_left_out("no PgBouncer is installed") };
    let pool = PgPoolOptions::new().max_connections(2 * STOPPED as u32);
    let pool = pool.connect(&url).await.expect("an answer");
    prepare(&pool, Dialect::Postgres, 0..STOPPED).await;
    // Clients take turns on one connection of PgBouncer. A statement of the first must not disturb the second.
    let locks = Corner::new().await.locks().await;
    let held = take("a free name", locks.lock("orders/new")).await;
    for _ in 0..2 {
        let own = sqlx::PgPool::connect(&url).await.unwrap().begin().await.unwrap();
        held.fenced(own).await.unwrap().commit().await.unwrap();
    }
    stopped_holders_commit_nothing_late(vec![(url, pool); STOPPED]).await;
}

#[limit::test]
async fn stopped_holders_write_nothing_late_to_mariadb() {
    if !MariaDb::is_installed() {
        return say_left_out("MariaDB is not installed");
    }
    let server = blocking(MariaDb::start).await;
    let root = MySqlPool::connect(&server.url()).await.expect("an answer");
    root.execute("create database shop").await.expect("an answer");
    let url = server.url().replace("localhost?", "localhost/shop?");
    let pool = MySqlPoolOptions::new().max_connections(2 * STOPPED as u32);
    let pool = pool.connect(&url).await.expect("an answer");
    prepare(&pool, Dialect::MySql, 0..STOPPED).await;
    // A cluster with several writers compares changed rows, so a second transaction with the same token must change its row too.
    let locks = Corner::new().await.locks().await;
    let held = take("a free name", locks.lock("orders/new")).await;
    for _ in 0..2 {
        let mut fenced = held.fenced(&pool).await.expect("the only holder");
        sleep(Duration::from_millis(200)).await; // the table of transactions is up to 100 ms old
        let changed = "select trx_rows_modified from information_schema.innodb_trx where trx_mysql_thread_id = connection_id()";
        let changed: u64 = sqlx::query_scalar(changed).fetch_one(&mut *fenced).await.expect("one");
        assert!(changed > 0);
        fenced.commit().await.expect("an answer");
    }
    stopped_holders_commit_nothing_late(vec![(url, pool); STOPPED]).await;
}

/// Makes a corner, an SQLite, and two engines, of which the first has a lock.
async fn held() -> (Corner, TempDir, SqlitePool, [Locks; 2], LockGuard) {
    let (corner, [a, b]) = Corner::with_engines().await;
    let first = take("a free name", a.lock("orders/7")).await;
    let place = tempfile::tempdir().expect("a directory");
    let pool = sqlite(&place, [7]).await.1;
    (corner, place, pool, [a, b], first)
}

/// Writes in a fenced transaction, and commits.
async fn commit<N: Group>(
    pool: &SqlitePool,
    guard: &LockGuard<N>,
    writer: &str,
) -> Result<(), FencedError> {
    Ok(written(pool, guard, "orders/7", writer).await?.commit().await?)
}

#[limit::test]
async fn an_overtaken_holder_is_refused() {
    let (corner, _place, pool, [_a, b], first) = held().await;
    commit(&pool, &first, "a").await.unwrap();
    commit(&pool, &first, "a again").await.unwrap();
    corner.take_away("orders/7").await;
    let next = take("the name that was taken away", b.lock("orders/7")).await;
    commit(&pool, &next, "b").await.unwrap();
    let own = pool.begin().await.unwrap();
    let late =
        [commit(&pool, &first, "a").await.unwrap_err(), first.fenced(own).await.unwrap_err()];
    for late in late {
        assert_matches!(late, FencedError::Lock(LockError::Lost { .. }));
    }
    within("the loss", first.lost()).await;
    let late = commit(&pool, &first, "a, late").await.unwrap_err();
    let FencedError::Lock(LockError::Lost { cause, .. }) = late else { panic!("{late:?}") };
    assert_eq!(cause, LossCause::Gone);
    assert_eq!(writer(&pool, "orders/7").await, "b");
    next.locked().fenced(&pool).await.unwrap();
}

#[limit::test]
async fn a_read_after_the_fence_sees_the_last_holders_commit() {
    let (corner, _place, pool, [_a, b], first) = held().await;
    let open = written(&pool, &first, "orders/7", "a").await.unwrap();
    corner.take_away("orders/7").await;
    let next = take("the name that was taken away", b.lock("orders/7")).await;
    // It has the lock, but what it reads without a fence is about to change.
    assert_eq!(writer(&pool, "orders/7").await, "-");
    let read = async {
        let fenced = next.fenced(&pool);
        let mut fenced = within("the fence", fenced).await.unwrap();
        let read = sqlx::query_scalar::<_, String>("select writer from orders");
        read.fetch_one(&mut *fenced).await.unwrap()
    };
    let (read, ()) = tokio::join!(read, async { open.commit().await.unwrap() });
    assert_eq!(read, "a");
}

#[limit::test]
async fn several_names_are_fenced_together() {
    let (corner, _place, pool, [a, b], first) = held().await;
    first.release().await.unwrap();
    let both = take("free names", a.lock("orders/8").and("orders/7")).await;
    commit(&pool, &both, "a").await.unwrap();
    corner.take_away("orders/8").await;
    let next = take("one of the names", b.lock("orders/8")).await;
    commit(&pool, &next, "b").await.unwrap();
    for _ in 0..3 {
        let late = commit(&pool, &both, "a, late").await.unwrap_err();
        let FencedError::Lock(LockError::Lost { name, .. }) = late else { panic!("{late:?}") };
        // The fence names the overtaken lock. After the engine knows of the loss, the error has the first name of the group.
        assert_matches!(name.text(), Some("orders/7" | "orders/8"));
    }
    assert_eq!(writer(&pool, "orders/7").await, "b");
}

#[limit::test]
async fn tokens_of_another_etcd_and_a_missing_table_are_named() {
    let (_corner, _place, pool, _engines, held) = held().await;
    commit(&pool, &held, "a").await.unwrap();
    let later = "update etcd_locked_tokens set token = 9223372036854775807";
    pool.execute(later).await.unwrap();
    let refused = commit(&pool, &held, "a").await.unwrap_err();
    assert!(refused.to_string().contains("empty it"), "{refused}");
    assert!(held.is_held());
    pool.execute("drop table etcd_locked_tokens").await.unwrap();
    let refused = commit(&pool, &held, "a").await;
    assert_matches!(refused, Err(FencedError::Database(_)));
}

#[limit::test]
async fn sqlx_0_8_is_refused_a_token_that_is_too_small() {
    let Some(server) = postgres().await else { return };
    let pool = sqlx_0_8::PgPool::connect(&server.url()).await.unwrap();
    sqlx_0_8::query(Dialect::Postgres.migration()).execute(&pool).await.unwrap();
    let locks = Corner::new().await.locks().await;
    let held = take("a free name", locks.lock("orders/7")).await;
    held.fenced(&pool).await.unwrap().commit().await.unwrap();
    let later = "update etcd_locked_tokens set token = token + 1";
    sqlx_0_8::raw_sql(later).execute(&pool).await.unwrap();
    let own = held.fenced(pool.begin().await.unwrap()).await;
    for refused in [held.fenced(&pool).await, own] {
        assert!(refused.unwrap_err().to_string().contains("a later holder wrote first"));
    }
}

/// sqlx alone leaves open what it began: <https://github.com/transact-rs/sqlx/issues/4385>.
#[limit::test]
async fn a_begin_that_is_dropped_leaves_nothing_open() {
    let Some(server) = postgres().await else { return };
    let pool = PgPoolOptions::new().max_connections(1).connect(&server.url()).await;
    let pool = pool.expect("an answer");
    prepare(&pool, Dialect::Postgres, []).await;
    let locks = Corner::new().await.locks().await;
    let held = take("a free name", locks.lock("orders/7")).await;
    let mut dropped = 0;
    while dropped < 100 {
        let counts = (1..6).flat_map(|polls| [(polls, When::AtOnce), (polls, When::WhenWoken)]);
        for (polls, when) in counts {
            let begin = poll_then_drop(polls, when, held.fenced(&pool));
            match within("the transaction", begin).await {
                None => dropped += 1,
                Some(begun) => begun.expect("an answer").commit().await.expect("an answer"),
            }
            // A transaction that has written has an id; a read outside of one does not.
            let writes = sqlx::query_scalar("select txid_current_if_assigned() is not null");
            let open: bool = writes.fetch_one(&pool).await.expect("an answer");
            assert!(!open, "dropped after {polls} polls, {when:?}");
        }
    }
}
