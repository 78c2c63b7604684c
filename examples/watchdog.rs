//! Work longer than the TTL: three tasks, one after another. Other libraries need a watchdog task for each lock. Here the
//! engine renews leases at a third of their TTL, and stops the body if a lease is lost anyway.
//!
//! ```sh
//! ETCD_LOCKED_ENDPOINTS=http://127.0.0.1:2379 cargo run -p etcd-locked-examples --bin watchdog
//! ```

use std::time::Duration;

use etcd_locked::{LockError, etcd_locked};
use tokio::time::sleep;

/// Works under the lock, for longer than its TTL. Below five seconds a change of etcd's leader may cost the lock; a longer TTL makes a
/// crashed holder block others for longer.
#[etcd_locked("watchdog/report", ttl = "5s", wait = "forever")]
async fn work(task: u32) -> Result<(), LockError> {
    println!("task {task} has the lock");
    sleep(Duration::from_secs(6)).await;
    println!("task {task} is done");
    Ok(())
}

// On one thread the tasks begin, and queue, in the order in which they are spawned.
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let tasks: Vec<_> = (1..=3).map(|task| tokio::spawn(work(task))).collect();
    for task in tasks {
        task.await??;
    }
    etcd_locked::shutdown(Duration::from_secs(5)).await;
    Ok(())
}
