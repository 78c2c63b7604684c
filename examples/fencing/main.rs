//! Fenced transactions of PostgreSQL, with sqlx, tokio-postgres, diesel and sea-orm: a file to copy for each.
//!
//! A lost lock stops its body, but not a request that has left the process. A fence makes the database refuse that request. Each run
//! pays an invoice under its lock, and waits for Enter before each step. Stop a payer with Ctrl-Z for longer than its TTL, and pay the
//! same invoice in a second terminal. Then continue the first payer with `fg`: it is refused, or it commits before the other writes.
//!
//! ```sh
//! export ETCD_LOCKED_ENDPOINTS=http://127.0.0.1:2379 ETCD_LOCKED_TTL=5s DATABASE_URL=postgres://postgres@127.0.0.1/postgres
//! cargo run -p etcd-locked-examples --bin fencing -- migrate
//! cargo run -p etcd-locked-examples --bin fencing -- tokio-postgres alice 7
//! ```

mod with_diesel;
mod with_sea_orm;
mod with_sqlx;
mod with_tokio_postgres;

use std::time::Duration;

use etcd_locked::{etcd_locked, lock_names};
use tokio::io::{AsyncBufReadExt, BufReader, Lines, Stdin, stdin};

/// The example prints every error in the same way; a service distinguishes them.
type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

lock_names! {
    /// Invoice that only one payer at a time pays.
    pub(crate) Invoice = "invoices/<id: i64>";
}

/// Names the payer of an invoice. `$1` is the invoice, `$2` the payer.
const PAY: &str = "insert into invoices values ($1, $2) on conflict (id) do update set paid_by = excluded.paid_by";

#[tokio::main]
async fn main() -> Result {
    let url = std::env::var("DATABASE_URL")?;
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (client, who, id) = match &args[..] {
        [migrate] if migrate == "migrate" => return with_sqlx::migrate(&url).await,
        [client, who, id] => (client, who, id.parse()?),
        _ => return Err("use: fencing migrate | <client> <payer> <invoice>".into()),
    };
    let mut payer = Payer { name: format!("{who} {id}"), enter: BufReader::new(stdin()).lines() };
    match pay(client, &url, &mut payer, id).await {
        Ok(()) => println!("{who} {id}: committed"),
        Err(error) => println!("{who} {id}: not committed: {error}"),
    }
    etcd_locked::shutdown(Duration::from_secs(5)).await;
    Ok(())
}

/// With `on_lost = "continue"` the body continues after the loss of its lock, so only the database can refuse it.
#[etcd_locked(Invoice { id }, wait = "forever", on_lost = "continue", proof = invoice)]
async fn pay(client: &str, url: &str, payer: &mut Payer, id: i64) -> Result {
    match client {
        "diesel" => with_diesel::pay(url, invoice, payer).await,
        "sea-orm" => with_sea_orm::pay(url, invoice, payer).await,
        "sqlx" => with_sqlx::pay(url, invoice, payer).await,
        "tokio-postgres" => with_tokio_postgres::pay(url, invoice, payer).await,
        _ => Err("the clients are diesel, sea-orm, sqlx and tokio-postgres".into()),
    }
}

pub(crate) struct Payer {
    name: String,
    enter: Lines<BufReader<Stdin>>,
}

impl Payer {
    /// Waits for Enter before a step.
    pub(crate) async fn steps(&mut self, step: &str) -> Result {
        println!("{}: Enter to {step}", self.name);
        self.enter.next_line().await?;
        Ok(())
    }
}
