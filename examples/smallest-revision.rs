//! Contender for a lock: the key with the smallest revision owns it, and each other contender watches the key before its own. Run
//! some in separate windows, and kill one that waits: the next one skips it after its lease has expired.
//!
//! ```sh
//! export ETCD_LOCKED_ENDPOINTS=http://127.0.0.1:2379
//! cargo run -p etcd-locked-examples --bin smallest-revision -- A & cargo run -p etcd-locked-examples --bin smallest-revision -- B & cargo run -p etcd-locked-examples --bin smallest-revision -- C
//! ```

use std::time::Duration;

use etcd_locked::{LockError, etcd_locked};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

/// Works under the lock. The attribute does the rest: lease, heartbeat, queue and watch. A crashed contender blocks others for
/// 15 seconds.
#[etcd_locked("contest/demo", ttl = "15s", wait = "forever", proof = contest)]
async fn work(name: &str, begun: oneshot::Sender<()>) -> Result<(), LockError> {
    let _ = begun.send(());
    // The revision grows from owner to owner, so it is a fencing token.
    let revision = contest.token().revision();
    println!("{name}: lock successfully. [revision]:{revision}");
    sleep(Duration::from_secs(6)).await;
    println!("{name}: the work is done, unlock.");
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), LockError> {
    let name = std::env::args().nth(1).unwrap_or_else(|| "A".to_owned());
    let (begun, has_begun) = oneshot::channel();
    let waiting = async {
        if timeout(Duration::from_millis(500), has_begun).await.is_err() {
            println!("{name}: keep waiting until the lock is released.");
        }
    };
    let (done, ()) = tokio::join!(work(&name, begun), waiting);
    etcd_locked::shutdown(Duration::from_secs(5)).await;
    done
}
