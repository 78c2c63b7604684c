//! A row in a database that a late writer cannot spoil.
//!
//! A lock that is lost stops its body, but not what has left the process already: a statement on the wire, a job in a queue, a
//! single poll that lasts for minutes. Against those helps the fencing token. It grows from owner to owner, each write brings
//! it along, and the row refuses what is older than what it has seen. Here on SQLite, or on what `DATABASE_URL` says:
//!
//! ```sh
//! export ETCD_LOCKED_ENDPOINTS=http://127.0.0.1:2379
//! cargo run -p etcd-locked-examples --bin fencing
//! DATABASE_URL=postgres://postgres@127.0.0.1/postgres cargo run -p etcd-locked-examples --bin fencing
//! ```

mod error;
mod store;

use etcd_locked::etcd_client::DeleteOptions;
use etcd_locked::{Config, Locks, etcd_locked};
use tokio::sync::oneshot;

use crate::error::AppError;
use crate::store::Store;

const INVOICE: i64 = 7;

#[tokio::main]
async fn main() -> Result<(), AppError> {
    let url = std::env::var("DATABASE_URL").unwrap_or("sqlite::memory:".to_owned());
    let store = Store::connect(&url).await?;
    let shown = show(&store).await;
    let removed = store.remove().await; // in any case
    shown.and(removed)
}

async fn show(store: &Store) -> Result<(), AppError> {
    println!("== the token: on {}", store.kind());
    a_late_write(store).await?;
    println!("== the version column: no lock, and a second try");
    two_versions(store).await
}

/// Two processes, as it were: each has an engine of its own.
async fn a_late_write(store: &Store) -> Result<(), AppError> {
    let (a, b) = (client("a").await?, client("b").await?);
    store.insert(INVOICE).await?;

    let (held, is_held) = oneshot::channel();
    let (go_on, late) = oneshot::channel();
    let slow = tokio::spawn({
        let (a, store) = (a.clone(), store.clone());
        async move { pay_slowly(&a, &store, held, late).await }
    });
    let _ = is_held.await;
    // `etcdctl del --prefix locks/invoices/7/`. That its lease runs out, because it is cut off or stopped, takes longer.
    let key = format!("locks/invoices/{INVOICE}/");
    let mut etcd = a.client().await?;
    etcd.delete(key, Some(DeleteOptions::new().with_prefix()))
        .await?;
    println!("an operator takes the lock from a");

    pay(&b, store, "b", INVOICE).await?;
    let _ = go_on.send(());
    slow.await??;

    let invoice = store.read(INVOICE).await?;
    println!("the row with the token says `{}`", invoice.state);
    println!("the one without says `{}`", invoice.unguarded);
    a.shutdown(std::time::Duration::from_secs(5)).await;
    b.shutdown(std::time::Duration::from_secs(5)).await;
    Ok(())
}

#[etcd_locked("invoices/<id>", locks = locks)]
async fn pay(locks: &Locks, store: &Store, who: &str, id: i64) -> Result<(), AppError> {
    write(store, who, id, token()).await
}

/// `on_lost = "continue"` makes sure that the write really is late; nothing else would.
#[etcd_locked("invoices/7", locks = locks, on_lost = "continue")]
async fn pay_slowly(
    locks: &Locks,
    store: &Store,
    held: oneshot::Sender<()>,
    late: oneshot::Receiver<()>,
) -> Result<(), AppError> {
    let token = token();
    println!("a has the lock, with token {token}, and is slow");
    let _ = held.send(());
    let _ = late.await;
    write(store, "a", INVOICE, token).await
}

/// To be taken at the beginning: it is of this body.
fn token() -> i64 {
    etcd_locked::current().map_or(0, |lock| lock.token().as_i64())
}

async fn write(store: &Store, who: &str, id: i64, token: i64) -> Result<(), AppError> {
    let state = format!("paid by {who}");
    store.set_unguarded(id, &state).await?;
    match store.set(id, &state, token).await? {
        true => println!("{who} writes, with token {token}: done"),
        false => println!("{who} writes, with token {token}: refused, it is too late"),
    }
    Ok(())
}

/// The optimistic way: nobody waits, and who comes second does its work again. For one row of one database that is enough. It
/// is not where the work must not be done twice, or reaches beyond the row: a mail, a payment, a file.
async fn two_versions(store: &Store) -> Result<(), AppError> {
    let (a, b) = (store.read(INVOICE).await?, store.read(INVOICE).await?);
    for (who, mut read) in [("a", a), ("b", b)] {
        while !store
            .set_version(INVOICE, &format!("sent by {who}"), read.version)
            .await?
        {
            println!(
                "{who} has read version {}: refused, reads again",
                read.version
            );
            read = store.read(INVOICE).await?;
        }
        println!("{who} has read version {}: done", read.version);
    }
    Ok(())
}

async fn client(name: &str) -> Result<Locks, AppError> {
    Ok(Locks::connect(Config::from_env()?.service(name)).await?)
}
