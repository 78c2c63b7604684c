//! Queue of four clients, of which the third is killed.

use std::future::pending;
use std::time::Duration;

use etcd_locked::{LockError, Locks, etcd_locked};
use tokio::process::Command;

use crate::nodes::{nodes, session, until};
use crate::{Result, client, end};

const LOCK: &str = "zookeeper/queue";

pub(crate) async fn show() -> Result<()> {
    let (a, b, d) = (client("a").await?, client("b").await?, client("d").await?);
    let mut etcd = a.client().await?;

    let held = a.lock(LOCK).await?;
    println!("a locks");
    let second = tokio::spawn(take(b.clone(), "b"));
    until(&mut etcd, LOCK, 2).await?;
    // `c` is a separate process, so that it can be killed.
    let mut c = Command::new(std::env::current_exe()?);
    let mut c = c.arg("wait").kill_on_drop(true).spawn()?;
    until(&mut etcd, LOCK, 3).await?;
    let last = tokio::spawn(take(d.clone(), "d"));
    until(&mut etcd, LOCK, 4).await?;
    for (name, node) in ["a", "b", "c", "d"].iter().zip(nodes(&mut etcd, LOCK).await?) {
        println!("node of {name}: {}, {}", node.create_revision(), session(&node));
    }

    c.kill().await?;
    println!("c is killed");
    until(&mut etcd, LOCK, 3).await?;
    println!("its node has gone with its session");
    println!("a unlocks");
    held.release().await?;
    second.await??;
    last.await??;
    end([a, b, d]).await;
    Ok(())
}

#[etcd_locked("zookeeper/queue", locks = &locks, wait = "forever")]
async fn take(locks: Locks, who: &'static str) -> Result<(), LockError> {
    println!("{who} locks");
    tokio::time::sleep(Duration::from_millis(100)).await;
    println!("{who} unlocks");
    Ok(())
}

/// Runs the part of `c`, in a separate process.
pub(crate) async fn wait() -> Result<()> {
    let c = client("c").await?;
    let held = c.lock(LOCK).wait_forever().await?;
    println!("c locks");
    held.hold(pending::<()>()).await?;
    Ok(())
}
