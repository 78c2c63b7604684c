//! Worker process of `cargo xtask fenced`: it writes into a ledger under a lock, and waits where it is to be stopped.
//!
//! It reads commands from standard input, one a line, and reports on standard output:
//!
//! | command | output |
//! |---|---|
//! | `prepare <database>` | `prepared <version>` once the tables are there |
//! | `play <name> <database> <holder> <step> <body> <fence>` | `held <token>`; after `begin`, where there is such a step, `stops`, and it goes on after `go`; `done <end>`; after `end`, `over` |
//! | `ledger <database>` | `paid <name> <holder> <token>` for each committed write, in the order of the commits; then `read` |
//!
//! A database is a URL. Steps are `unfenced`, `written`, `limited` and `none`; bodies `dropped`, `polled` and `on`; fences `fenced`
//! and `bare`. The process ends with its standard input.

use std::cell::Cell;
use std::error::Error;
use std::future::{Future, poll_fn};
use std::io::{self, Write};
use std::pin::pin;
use std::thread;
use std::time::Duration;

use etcd_locked::sqlx::{Fenceable, FencedError, migration};
use etcd_locked::{LockError, LockGuard};
use etcd_locked_tests::commands;
use sqlx::postgres::PgConnectOptions;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode};
use sqlx::{
    ConnectOptions, Connection, Encode, Executor, IntoArguments, PgConnection, Pool, Postgres,
    Sqlite, SqliteConnection, Type,
};
use tokio::sync::mpsc::UnboundedReceiver;

/// TTL of all locks: the shortest that etcd grants.
const TTL: Duration = Duration::from_secs(2);

/// How long a lock and a row of the database are waited for: longer than a process is stopped.
const PATIENCE: Duration = Duration::from_secs(60);

/// The ledger. It has no column for a token that would refuse anything: it only tells which holder has written.
const LEDGER: &str =
    "create table ledger (name text not null, holder text not null, token bigint not null)";
/// The same, whose numbers are the order of the commits: SQLite has one writing transaction at a time.
const LEDGER_IN_SQLITE: &str = "create table ledger (id integer primary key autoincrement, name text not null, \
                                holder text not null, token bigint not null)";
const PAY: &str = "insert into ledger (name, holder, token) values ($1, $2, $3)";

/// A mark in PostgreSQL's own log, from which on it tells what was committed, in the order of the commits.
const MARK: &str =
    "select pg_create_logical_replication_slot('ledger', 'test_decoding')::text as slot";
const COMMITTED: &str = "select data from pg_logical_slot_peek_changes('ledger', null, null)";

/// Has PostgreSQL end this session when it leaves its transaction idle for so long.
const LIMITED: &str = "set local idle_in_transaction_session_timeout = '1s'";

type Fault = Box<dyn Error + Send + Sync>;
type Commands = UnboundedReceiver<String>;

/// Where a holder waits, to be stopped there.
#[derive(Clone, Copy, PartialEq)]
enum Step {
    /// In its transaction, before `fenced`.
    Unfenced,
    /// Before the commit of what it has written.
    Written,
    /// The same, and the database has a limit for idle transactions.
    Limited,
    /// Nowhere.
    None,
}

/// What runs the transaction.
#[derive(Clone, Copy, PartialEq)]
enum Body {
    /// `hold`, which drops it after a loss.
    Dropped,
    /// `hold`, but it is stopped in the middle of a poll, which goes on.
    Polled,
    /// No `hold`: it goes on after a loss.
    On,
}

struct Play<'a> {
    name: &'a str,
    database: &'a str,
    holder: &'a str,
    step: Step,
    body: Body,
    fenced: bool,
}

impl<'a> Play<'a> {
    fn parse(words: &[&'a str]) -> Option<Self> {
        let [name, database, holder, step, body, fence] = *words else {
            return None;
        };
        Some(Self {
            name,
            database,
            holder,
            step: match step {
                "unfenced" => Step::Unfenced,
                "written" => Step::Written,
                "limited" => Step::Limited,
                "none" => Step::None,
                _ => return None,
            },
            body: match body {
                "dropped" => Body::Dropped,
                "polled" => Body::Polled,
                "on" => Body::On,
                _ => return None,
            },
            fenced: fence == "fenced",
        })
    }
}

#[tokio::main]
async fn main() -> Result<(), Fault> {
    let mut commands = commands();
    while let Some(line) = commands.recv().await {
        let words: Vec<_> = line.split(' ').collect();
        match words[..] {
            ["prepare", database] => prepare(database).await?,
            ["ledger", database] => ledger(database).await?,
            ["play", ref rest @ ..] => {
                let play = Play::parse(rest).ok_or_else(|| format!("cannot play `{line}`"))?;
                match play.database.starts_with("postgres:") {
                    true => {
                        let options: PgConnectOptions = play.database.parse()?;
                        let options = options.disable_statement_logging();
                        self::play(
                            &play,
                            Pool::<Postgres>::connect_lazy_with(options),
                            &mut commands,
                        )
                        .await?;
                    }
                    false => {
                        let pool = Pool::<Sqlite>::connect_lazy_with(sqlite(play.database)?);
                        self::play(&play, pool, &mut commands).await?;
                    }
                }
            }
            // What a body that was dropped has not read.
            ["go"] => {}
            _ => return Err(format!("cannot make sense of `{line}`").into()),
        }
    }
    Ok(())
}

/// Plays a holder, from the lock to its end.
async fn play<D>(play: &Play<'_>, pool: Pool<D>, commands: &mut Commands) -> Result<(), Fault>
where
    D: Fenceable,
    for<'c> &'c mut D::Connection: Executor<'c, Database = D>,
    for<'q> D::Arguments<'q>: IntoArguments<'q, D>,
    for<'q> &'q str: Encode<'q, D> + Type<D>,
    i64: Type<D> + for<'q> Encode<'q, D>,
{
    // Connects, so that the transaction takes no longer than others.
    drop(pool.acquire().await?);
    let lock = etcd_locked::lock(play.name).ttl(TTL).wait(PATIENCE);
    let guard = match lock.await {
        Ok(guard) => guard,
        Err(error) => return say(&format!("failed {error}")),
    };
    say(&format!("held {}", guard.token().as_i64()))?;
    until("begin", commands).await?;
    let stops = Cell::new(false);
    let paid = {
        let mut paid = pin!(async {
            let body = pay(play, &pool, &guard, commands, &stops);
            match play.body {
                Body::On => Ok(body.await),
                _ => guard.hold(body).await,
            }
        });
        let polled = poll_fn(|cx| {
            let polled = paid.as_mut().poll(cx);
            // Only now has the poll ended, and the gate is before the next.
            if polled.is_pending() && stops.take() {
                report("stops");
            }
            polled
        });
        polled.await
    };
    let end = match paid {
        Ok(Ok(())) => "committed".to_owned(),
        // The gate's refusal, and that of `fenced`.
        Err(LockError::Lost { .. }) => "dropped".to_owned(),
        Ok(Err(FencedError::Lock(LockError::Lost { .. }))) => "lost".to_owned(),
        Ok(Err(FencedError::Database(error))) => format!("database {error}"),
        Ok(Err(other)) => format!("failed {other}"),
        Err(other) => format!("failed {other}"),
    };
    say(&format!("done {}", end.replace('\n', " ")))?;
    until("end", commands).await?;
    // It fails where the lock was lost.
    let _ = guard.release().await;
    // Rolls back what was dropped.
    pool.close().await;
    say("over")
}

/// Pays under the lock: one transaction, with a line in the ledger.
async fn pay<D>(
    play: &Play<'_>,
    pool: &Pool<D>,
    guard: &LockGuard,
    commands: &mut Commands,
    stopping: &Cell<bool>,
) -> Result<(), FencedError>
where
    D: Fenceable,
    for<'c> &'c mut D::Connection: Executor<'c, Database = D>,
    for<'q> D::Arguments<'q>: IntoArguments<'q, D>,
    for<'q> &'q str: Encode<'q, D> + Type<D>,
    i64: Type<D> + for<'q> Encode<'q, D>,
{
    let mut transaction = match play.step {
        Step::Unfenced => {
            let transaction = pool.begin().await?;
            stops(play.body, commands, stopping).await;
            match play.fenced {
                true => guard.fenced(transaction).await?,
                false => transaction,
            }
        }
        _ if play.fenced => guard.begin_fenced(pool).await?,
        _ => pool.begin().await?,
    };
    if play.step == Step::Limited {
        sqlx::query(LIMITED).execute(&mut *transaction).await?;
    }
    sqlx::query(PAY)
        .bind(play.name)
        .bind(play.holder)
        .bind(guard.token().as_i64())
        .execute(&mut *transaction)
        .await?;
    if matches!(play.step, Step::Written | Step::Limited) {
        stops(play.body, commands, stopping).await;
    }
    Ok(transaction.commit().await?)
}

/// Waits to be stopped, and to go on.
async fn stops(body: Body, commands: &mut Commands, stopping: &Cell<bool>) {
    match body {
        // The thread sleeps inside this poll, so that the gate comes too late for what follows.
        Body::Polled => {
            report("stops");
            while commands.try_recv().is_err() && !commands.is_closed() {
                thread::sleep(Duration::from_millis(1));
            }
        }
        Body::Dropped | Body::On => {
            stopping.set(true);
            drop(commands.recv().await);
        }
    }
}

/// Awaits a command, past those of bodies that were dropped.
async fn until(command: &str, commands: &mut Commands) -> Result<(), Fault> {
    while let Some(line) = commands.recv().await {
        if line == command {
            return Ok(());
        }
    }
    Err("no more commands".into())
}

async fn prepare(database: &str) -> Result<(), Fault> {
    let version: String = if database.starts_with("postgres:") {
        let mut connection = PgConnection::connect(database).await?;
        for statement in [migration::<Postgres>(), LEDGER, MARK] {
            sqlx::query(statement).execute(&mut connection).await?;
        }
        let version = sqlx::query_scalar("show server_version");
        version.fetch_one(&mut connection).await?
    } else {
        let mut options = sqlite(database)?.create_if_missing(true);
        // The file keeps it, so those who open it later need not know.
        if database.ends_with(".wal") {
            options = options.journal_mode(SqliteJournalMode::Wal);
        }
        let mut connection = SqliteConnection::connect_with(&options).await?;
        for statement in [migration::<Sqlite>(), LEDGER_IN_SQLITE] {
            sqlx::query(statement).execute(&mut connection).await?;
        }
        let version = sqlx::query_scalar("select sqlite_version()");
        version.fetch_one(&mut connection).await?
    };
    say(&format!("prepared {version}"))
}

/// Says what was committed, in the order of the commits.
async fn ledger(database: &str) -> Result<(), Fault> {
    if database.starts_with("postgres:") {
        let mut connection = PgConnection::connect(database).await?;
        let changes: Vec<String> = sqlx::query_scalar(COMMITTED).fetch_all(&mut connection).await?;
        for change in changes {
            if let Some(paid) = paid(&change) {
                say(&paid)?;
            }
        }
    } else {
        let mut connection = SqliteConnection::connect_with(&sqlite(database)?).await?;
        let rows = sqlx::query_as("select name, holder, token from ledger order by id");
        let rows: Vec<(String, String, i64)> = rows.fetch_all(&mut connection).await?;
        for (name, holder, token) in rows {
            say(&format!("paid {name} {holder} {token}"))?;
        }
    }
    say("read")
}

/// Reads a line of PostgreSQL's log; `None` unless it is about the ledger.
fn paid(change: &str) -> Option<String> {
    let columns = change.strip_prefix("table public.ledger: INSERT: ")?;
    let values: Vec<_> = columns
        .split(' ')
        .filter_map(|column| column.split_once("]:"))
        .map(|(_, value)| value.trim_matches('\''))
        .collect();
    Some(format!("paid {}", values.join(" ")))
}

fn sqlite(database: &str) -> Result<SqliteConnectOptions, Fault> {
    let options: SqliteConnectOptions = database.parse()?;
    Ok(options.busy_timeout(PATIENCE).disable_statement_logging())
}

/// Says a line in a place that can return no error. Without standard output the process soon ends, by its standard input.
fn report(line: &str) {
    let _ = say(line);
}

fn say(line: &str) -> Result<(), Fault> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}
