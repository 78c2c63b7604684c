//! Fenced row in a database, which refuses a late write.
//!
//! The loss of a lock stops its body, but not the requests that have left the process: a statement on the wire, a job in a queue,
//! a single poll that lasts for minutes. The fencing token helps against those. It grows from owner to owner, each write carries
//! it, and the row refuses a token older than its own. The example runs on SQLite, or on `DATABASE_URL`:
//!
//! ```sh
//! export ETCD_LOCKED_ENDPOINTS=http://127.0.0.1:2379
//! cargo run -p etcd-locked-examples --bin fencing
//! DATABASE_URL=postgres://postgres@127.0.0.1/postgres cargo run -p etcd-locked-examples --bin fencing
//! ```

mod store;

use etcd_locked::etcd_client::DeleteOptions;
use etcd_locked::{Config, Locked, Locks, etcd_locked, lock_names};
use tokio::sync::oneshot;

use crate::store::Store;

/// The example only ends and prints an error, whatever it is; a service tells them apart.
type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

lock_names! {
    /// An invoice, which one client at a time pays.
    pub(crate) Invoice = "invoices/<id: i64>";
}

const INVOICE: i64 = 7;

#[tokio::main]
async fn main() -> Result {
    let url = std::env::var("DATABASE_URL").unwrap_or("sqlite::memory:".to_owned());
    let store = Store::connect(&url).await?;
    let shown = show(&store).await;
    let removed = store.remove().await; // in any case
    shown.and(removed)
}

async fn show(store: &Store) -> Result {
    println!("== the token: on {}", store.kind());
    a_late_write(store).await?;
    println!("== the version column: no lock, and a second try");
    two_versions(store).await
}

/// Shows a late write of `a`. The two clients have an engine each, so they act as two processes.
async fn a_late_write(store: &Store) -> Result {
    let (a, b) = (client("a").await?, client("b").await?);
    store.insert(INVOICE).await?;

    let (held, is_held) = oneshot::channel();
    let (go_on, late) = oneshot::channel();
    let slow = tokio::spawn({
        let (a, store) = (a.clone(), store.clone());
        async move { pay_slowly(&a, &store, held, late).await }
    });
    let _ = is_held.await;
    // The same as `etcdctl del --prefix locks/invoices/7/`; an expired lease has the same effect, but takes longer.
    let key = format!("locks/invoices/{INVOICE}/");
    let mut etcd = a.client().await?;
    etcd.delete(key, Some(DeleteOptions::new().with_prefix())).await?;
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

#[etcd_locked(Invoice { id }, locks = locks, proof = invoice)]
async fn pay(locks: &Locks, store: &Store, who: &str, id: i64) -> Result {
    write(store, who, invoice).await
}

/// Pays late: `on_lost = "continue"` lets the body write after the loss of its lock.
#[etcd_locked(Invoice { id: INVOICE }, locks = locks, on_lost = "continue", proof = invoice)]
async fn pay_slowly(
    locks: &Locks,
    store: &Store,
    held: oneshot::Sender<()>,
    late: oneshot::Receiver<()>,
) -> Result {
    let token = invoice.token().as_i64();
    println!("a has the lock, with token {token}, and is slow");
    let _ = held.send(());
    let _ = late.await;
    write(store, "a", invoice).await
}

/// Writes with the token of the lock under which it runs: without that lock it cannot be called.
async fn write(store: &Store, who: &str, invoice: &Locked<Invoice>) -> Result {
    let (id, token) = (invoice.name().id, invoice.token().as_i64());
    let state = format!("paid by {who}");
    store.set_unguarded(id, &state).await?;
    match store.set(id, &state, token).await? {
        true => println!("{who} writes, with token {token}: done"),
        false => println!("{who} writes, with token {token}: refused, it is too late"),
    }
    Ok(())
}

/// Shows the optimistic way: no client waits, and the second one does its work again. That is enough for one row of one database.
/// It is not enough if the work must not be done twice or reaches beyond the row: a mail, a payment, a file.
async fn two_versions(store: &Store) -> Result {
    let (a, b) = (store.read(INVOICE).await?, store.read(INVOICE).await?);
    for (who, mut read) in [("a", a), ("b", b)] {
        while !store.set_version(INVOICE, &format!("sent by {who}"), read.version).await? {
            println!("{who} has read version {}: refused, reads again", read.version);
            read = store.read(INVOICE).await?;
        }
        println!("{who} has read version {}: done", read.version);
    }
    Ok(())
}

async fn client(name: &str) -> Result<Locks> {
    Ok(Locks::connect(Config::from_env()?.service(name)).await?)
}
