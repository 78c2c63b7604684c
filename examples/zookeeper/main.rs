//! ZooKeeper's lock recipe, step by step, including the problems that the recipe leaves to the reader.
//!
//! In ZooKeeper each contender has an ephemeral sequential node, the lowest owns the lock, and each watches the one before it.
//! Here each has a key attached to a lease, the oldest owns the lock, and each watches those before it. A ZooKeeper client is a
//! [`Locks`] here; most processes need one, and never see it. The example `fencing` shows writes that a late holder cannot commit.
//!
//! ```sh
//! ETCD_LOCKED_ENDPOINTS=http://127.0.0.1:2379 cargo run -p etcd-locked-examples --bin zookeeper
//! ```

mod alternatives;
mod cycle;
mod nodes;
mod queue;
mod session;

use std::time::Duration;

use etcd_locked::{Config, LockError, Locks};

type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

/// TTL of a session whose client has gone: short, to keep the example quick.
const SESSION: Duration = Duration::from_secs(5);

#[tokio::main]
async fn main() -> Result<()> {
    if std::env::args().nth(1).as_deref() == Some("wait") {
        return queue::wait().await;
    }
    println!("== lock, tryLock, unlock");
    basics().await?;
    println!("== sequential nodes, and a waiter that vanishes");
    queue::show().await?;
    println!("== a session expires");
    session::show().await?;
    println!("== A-B and B-A");
    cycle::show().await?;
    println!("== read-write lock");
    alternatives::readers().await?;
    println!("== reentrant lock");
    alternatives::again().await
}

async fn basics() -> Result<()> {
    let (a, b) = (client("a").await?, client("b").await?);
    let held = a.lock("zookeeper/basics").await?;
    println!("a locks, with token {}", held.token());
    match b.lock("zookeeper/basics").try_once().await {
        Err(LockError::Held { holder, .. }) => {
            let by = holder.map_or("unknown".to_owned(), |holder| holder.service().to_owned());
            println!("b tries: held by {by}");
        }
        other => println!("b tries: {other:?}"),
    }
    held.release().await?;
    println!("a unlocks");
    let held = b.lock("zookeeper/basics").try_once().await?;
    println!("b tries: locks, with token {}", held.token());
    held.release().await?;
    println!("b unlocks");
    end([a, b]).await;
    Ok(())
}

/// Connects a client with a separate session.
async fn client(name: &str) -> Result<Locks> {
    let config = Config::from_env()?.service(name).ttl(SESSION);
    Ok(Locks::connect(config).await?)
}

/// Ends the sessions of these clients.
async fn end<const N: usize>(clients: [Locks; N]) {
    for client in clients {
        client.shutdown(Duration::from_secs(5)).await;
    }
}
