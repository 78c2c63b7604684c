//! Three tasks, and work that takes three times the TTL. What other libraries do with a watchdog task beside each lock happens
//! by itself here: leases are renewed at a third of their TTL, and where one is lost all the same, the body is stopped.
//!
//! ```sh
//! ETCD_LOCKED_ENDPOINTS=http://127.0.0.1:2379 cargo run -p etcd-locked-examples --bin watchdog
//! ```

use std::time::Duration;

use etcd_locked::{LockError, etcd_locked};
use tokio::time::sleep;

/// Two seconds are the shortest TTL etcd knows. Take a longer one, unless a crashed holder must block nobody for longer: below
/// five, a change of etcd's leader may cost the lock.
#[etcd_locked("watchdog/report", ttl = "2s", wait = "forever")]
async fn work(task: u32) -> Result<(), LockError> {
    println!("task {task} has the lock");
    sleep(Duration::from_secs(6)).await;
    println!("task {task} is done");
    Ok(())
}

// On one thread the tasks begin, and so queue, in the order in which they are spawned.
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let tasks: Vec<_> = (1..=3).map(|task| tokio::spawn(work(task))).collect();
    for task in tasks {
        task.await??;
    }
    etcd_locked::shutdown(Duration::from_secs(5)).await;
    Ok(())
}
