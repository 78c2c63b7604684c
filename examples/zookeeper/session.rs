//! Expired session: a client's work stops with its lock, and the client continues with another session. The program does not have
//! to reconnect or register anything again.

use std::future::pending;
use std::time::Duration;

use etcd_locked::{LockError, Locks, etcd_locked};

use crate::nodes::{nodes, session};
use crate::{Result, client, end};

const LOCK: &str = "zookeeper/session";

pub(crate) async fn show() -> Result<()> {
    let a = client("a").await?;
    let mut etcd = a.client().await?;
    let work = tokio::spawn({
        let a = a.clone();
        async move { work(&a).await }
    });
    crate::nodes::until(&mut etcd, LOCK, 1).await?;
    let lease = expire(&a).await?;
    match work.await? {
        Err(error) => println!("a has stopped: {error}"),
        Ok(()) => println!("a has not stopped"),
    }

    let held = a.lock(LOCK).await?;
    for node in nodes(&mut etcd, LOCK).await? {
        let same = if node.lease() == lease { "the same" } else { "another" };
        println!("a locks, with token {}, in {same} session {}", held.token(), session(&node));
    }
    held.release().await?;
    end([a]).await;
    Ok(())
}

#[etcd_locked("zookeeper/session", locks = locks, proof = held)]
async fn work(locks: &Locks) -> Result<(), LockError> {
    println!("a locks, with token {}", held.token());
    pending().await
}

/// Revokes the lease of the holder, as etcd does after a TTL without renewal.
async fn expire(a: &Locks) -> Result<i64> {
    let mut etcd = a.client().await?;
    tokio::time::sleep(Duration::from_millis(200)).await; // the work has begun
    let held = nodes(&mut etcd, LOCK).await?;
    let node = held.first().ok_or("a has no node")?;
    println!("session {} expires", session(node));
    etcd.lease_revoke(node.lease()).await?;
    Ok(node.lease())
}
