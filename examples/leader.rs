//! One replica of several leads, for as long as it can: it polls a mailbox, moves data, feeds a queue, whatever must be done by
//! one. The others stand by. When the leader ends, its successor is there at once; when it crashes, after the TTL.
//!
//! And when it is cut off from etcd, it stops *before* its lease can have run out, so no successor ever works beside it. For
//! that it needs nobody to tell it: before each poll its lease is compared with the clock, and so the work ends at its next
//! await at the latest.
//!
//! ```sh
//! export ETCD_LOCKED_ENDPOINTS=http://127.0.0.1:2379
//! cargo run -p etcd-locked-examples --bin leader a & cargo run -p etcd-locked-examples --bin leader b & wait
//! ```

use std::convert::Infallible;
use std::time::{Duration, Instant};

use etcd_locked::{LockError, etcd_locked};
use tokio::time::sleep;

/// Leads until that is over, and comes back only to say why. `ttl`: how long the others wait for a leader that has crashed.
#[etcd_locked("leaders/billing", wait = "forever", ttl = "5s")]
async fn lead(replica: &str) -> Result<Infallible, LockError> {
    let mut term = Term::begin(replica);
    loop {
        term.work();
        sleep(Duration::from_millis(50)).await;
    }
}

/// Dropped wherever the body is, so here is the place to tidy up; without an await, as nothing is polled any more.
struct Term<'a> {
    replica: &'a str,
    pieces: u32,
    last: Instant,
}

impl<'a> Term<'a> {
    fn begin(replica: &'a str) -> Self {
        // What it writes elsewhere should carry this number, for stores that refuse an older one: see the example `fencing`.
        let token = etcd_locked::current().map_or(0, |held| held.token().as_i64());
        println!("{replica} leads, with token {token}");
        let last = Instant::now();
        Self {
            replica,
            pieces: 0,
            last,
        }
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
    // Whatever it held it has let go of with its future. Here that reaches etcd.
    etcd_locked::shutdown(Duration::from_secs(5)).await;
    println!("{replica} has ended");
    Ok(ended?)
}

/// Stands for election again and again, until there is no hope in that: no right to the key, say, or no endpoint.
async fn stand(replica: &str) -> LockError {
    loop {
        println!("{replica} stands by");
        let Err(error) = lead(replica).await;
        println!("{replica} does not lead: {error}");
        if !error.is_retryable() {
            return error;
        }
        sleep(Duration::from_secs(1)).await;
    }
}
