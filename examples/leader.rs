//! Leader election: one of several replicas leads for as long as it can, and does the work that only one may do. The others stand
//! by. When the leader ends, its successor leads at once; when it crashes, after the TTL.
//!
//! A leader that is cut off from etcd stops *before* its lease can expire, so it does not overlap its successor. It does not need a
//! message for that: the lease is compared with the clock before each poll, so the work ends at its next await. Only a poll that
//! takes longer than a tenth of the TTL could overlap; the token protects against that.
//!
//! ```sh
//! export ETCD_LOCKED_ENDPOINTS=http://127.0.0.1:2379
//! cargo run -p etcd-locked-examples --bin leader a & cargo run -p etcd-locked-examples --bin leader b & wait
//! ```

use std::convert::Infallible;
use std::time::{Duration, Instant};

use etcd_locked::{LockError, Locked, Name, etcd_locked};
use tokio::time::sleep;

/// Leads until the lock is lost, and returns only the reason. `ttl` is the time that the others wait for a crashed leader.
#[etcd_locked("leaders/billing", wait = "forever", ttl = "5s", proof = office)]
async fn lead(replica: &str) -> Result<Infallible, LockError> {
    let mut term = Term::begin(replica, office);
    loop {
        term.work();
        sleep(Duration::from_millis(50)).await;
    }
}

/// Term of the leader. It is dropped with the body, so its `Drop` is the place to clean up, without an await.
struct Term<'a> {
    replica: &'a str,
    pieces: u32,
    last: Instant,
}

impl<'a> Term<'a> {
    /// Begins a term; the proof shows that the lock is held.
    fn begin(replica: &'a str, office: &Locked<Name>) -> Self {
        // Writes to other stores should carry this token, so that a store can refuse an older one: see the example `fencing`.
        println!("{replica} leads, with token {}", office.token().as_i64());
        let last = Instant::now();
        Self { replica, pieces: 0, last }
    }

    fn work(&mut self) {
        self.pieces += 1;
        self.last = Instant::now();
    }
}

impl Drop for Term<'_> {
    fn drop(&mut self) {
        let (pieces, since) = (self.pieces, self.last.elapsed());
        println!(
            "{} has stopped after {pieces} pieces of work, the last {since:.0?} ago",
            self.replica
        );
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let replica = std::env::args().nth(1).unwrap_or("a".to_owned());
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    let ended = tokio::select! {
        error = stand(&replica) => Err(error),
        _ = tokio::signal::ctrl_c() => Ok(()),
        _ = terminate.recv() => Ok(()),
    };
    // The dropped future has released the lock; the shutdown awaits that the release reaches etcd.
    etcd_locked::shutdown(Duration::from_secs(5)).await;
    println!("{replica} has ended");
    Ok(ended?)
}

/// Stands for election until an error is permanent, such as a missing permission. A loss is not: the work may end at any point.
async fn stand(replica: &str) -> LockError {
    loop {
        println!("{replica} stands by");
        let Err(error) = lead(replica).await;
        println!("{replica} does not lead: {error:?}");
        if !error.is_retryable() && !matches!(error, LockError::Lost { .. }) {
            return error;
        }
        sleep(Duration::from_secs(1)).await;
    }
}
