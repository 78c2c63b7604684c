//! Worker of row B21: what a fenced transaction costs on PostgreSQL, compared with one that checks a token in a column of its own
//! table. Its arguments are its kind and settings of the server. It prints `ready`, and one line of JSON for each line that it reads.
//!
//! One task writes one account repeatedly under one lock, in batches of all kinds in turn.
//!
//! It is a separate program because sqlx makes `tracing` pass everything to `log`, which would slow down all other rows.

use std::error::Error;
use std::io::stdin;
use std::time::Instant;

use etcd_locked::{Config, Dialect, LockGuard, Locks};
use etcd_locked_devkit::Postgres as Server;
use serde_json::{Value, json};
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, PgPool};
use tokio::runtime::Builder;

type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

/// Batches of each kind. All kinds take turns, so that other load of the machine affects all of them.
const BATCHES: usize = 200;
/// Transactions per batch.
const TRANSACTIONS: u32 = 10;

const ACCOUNTS: &str =
    "create table accounts (id bigint primary key, balance bigint not null, token bigint not null)";
const OPEN: &str = "insert into accounts values (7, 0, 0)";
const PAY: &str = "update accounts set balance = balance + 1 where id = $1";
const PAY_BY_HAND: &str =
    "update accounts set balance = balance + 1, token = $2 where id = $1 and token <= $2";

/// Guard of a transaction against overtaken holders.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Fenced,
    ByHand,
    Bare,
}

fn main() -> Result<()> {
    // The arguments begin with `--peer fenced`, as those of every worker.
    let settings: Vec<String> = std::env::args().skip(3).collect();
    let server = Server::start(&settings.iter().map(String::as_str).collect::<Vec<_>>())?;
    println!("ready");
    for order in stdin().lines() {
        order?;
        println!("{}", measure(&server)?);
    }
    Ok(())
}

/// Measures all kinds, in seconds per transaction of each batch. The lock is in an embedded etcd, which is idle meanwhile.
fn measure(server: &Server) -> Result<Value> {
    let options: PgConnectOptions = server.url().parse()?;
    let runtime = Builder::new_multi_thread().enable_all().build()?;
    // In a task, like a handler.
    let measured = runtime.spawn(async move {
        let pool = PgPool::connect_with(options.disable_statement_logging()).await?;
        for statement in [Dialect::Postgres.migration(), ACCOUNTS, OPEN] {
            sqlx::query(statement).execute(&pool).await?;
        }
        let locks = Locks::connect(Config::embedded()).await?;
        let account = locks.lock("accounts/7").await?;
        let kinds = [Kind::Fenced, Kind::ByHand, Kind::Bare];
        let mut times = kinds.map(|_| Vec::new());
        for number in 0..=BATCHES {
            for (kind, times) in kinds.into_iter().zip(&mut times) {
                let begun = Instant::now();
                for _ in 0..TRANSACTIONS {
                    pay(&pool, &account, kind).await?;
                }
                let each = begun.elapsed().as_secs_f64() / f64::from(TRANSACTIONS);
                // The first batches prepare statements.
                if number > 0 {
                    times.push(each);
                }
            }
        }
        account.release().await?;
        pool.close().await;
        let [fenced, by_hand, bare] = times;
        Ok(json!({ "fenced": fenced, "by_hand": by_hand, "bare": bare }))
    });
    runtime.block_on(measured)?
}

async fn pay(pool: &PgPool, account: &LockGuard, kind: Kind) -> Result<()> {
    let mut transaction = match kind {
        Kind::Fenced => account.fenced(pool).await?,
        Kind::ByHand | Kind::Bare => pool.begin().await?,
    };
    let pay = match kind {
        Kind::ByHand => sqlx::query(PAY_BY_HAND).bind(7_i64).bind(account.token().as_i64()),
        Kind::Fenced | Kind::Bare => sqlx::query(PAY).bind(7_i64),
    };
    if pay.execute(&mut *transaction).await?.rows_affected() != 1 {
        return Err("the account was not written".into());
    }
    Ok(transaction.commit().await?)
}
