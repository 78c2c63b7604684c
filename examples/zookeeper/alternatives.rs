//! Variants of the recipe's lock: readers with a writer, and a reentrant call.

use std::time::Duration;

use etcd_locked::{LockError, Locks, etcd_locked};
use tokio::sync::Barrier;

use crate::{Result, client, end};

/// Shows two readers that hold the lock together, and a writer that waits for both.
pub(crate) async fn readers() -> Result<()> {
    let clients = [client("a").await?, client("b").await?, client("c").await?];
    let [a, b, c] = &clients;
    // Each reader waits inside for the other, so the two end only if they hold the lock together.
    let together = Barrier::new(3);
    let writer = async {
        together.wait().await;
        println!("c wants to write");
        write(c, "c").await
    };
    tokio::try_join!(read(a, "a", &together), read(b, "b", &together), writer)?;
    end(clients).await;
    Ok(())
}

#[etcd_locked("zookeeper/report", locks = locks, shared)]
async fn read(locks: &Locks, who: &str, together: &Barrier) -> Result<(), LockError> {
    println!("{who} reads");
    together.wait().await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    println!("{who} has read");
    Ok(())
}

#[etcd_locked("zookeeper/report", locks = locks)]
async fn write(locks: &Locks, who: &str) -> Result<(), LockError> {
    println!("{who} writes");
    Ok(())
}

/// Shows a function under a lock that calls another under the same lock.
pub(crate) async fn again() -> Result<()> {
    let a = client("a").await?;
    ship(&a, 7).await?;
    end([a]).await;
    Ok(())
}

#[etcd_locked("zookeeper/orders/<id>", locks = locks)]
async fn ship(locks: &Locks, id: u64) -> Result<(), LockError> {
    println!("a ships order {id}");
    bill(locks, id).await?;
    // Without `reentrant` the call is refused at once, instead of waiting for its own task.
    match check(locks, id).await {
        Err(error) => println!("a checks order {id}: {error}"),
        Ok(()) => println!("a checks order {id}"),
    }
    Ok(())
}

/// Runs under the lock of `ship`, or under a separate lock.
#[etcd_locked("zookeeper/orders/<id>", locks = locks, reentrant)]
async fn bill(locks: &Locks, id: u64) -> Result<(), LockError> {
    println!("a bills order {id}, under the same lock");
    Ok(())
}

#[etcd_locked("zookeeper/orders/<id>", locks = locks)]
async fn check(locks: &Locks, id: u64) -> Result<(), LockError> {
    let _ = id;
    Ok(())
}
