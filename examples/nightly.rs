//! A scheduled job that every replica starts at the same time and exactly one does.
//!
//! The lock keeps two from doing it at once, and `at_least` from doing it one after the other: it stays locked for a while
//! after the work, also if the replica that did it has ended. So a replica whose clock is late finds it locked and skips.
//! A replica that crashes in the middle of the work leaves the job to whoever tries after the lease's TTL.
//!
//! ```sh
//! export ETCD_LOCKED_ENDPOINTS=http://127.0.0.1:2379
//! for replica in a b c; do cargo run -p etcd-locked-examples --bin nightly $replica & done; wait
//! ```

use std::time::Duration;

use etcd_locked::{LockError, etcd_locked};

/// `wait = "none"`: one try. `on_held = "skip"`: the others return `None` without running the body. `at_least`: longer than
/// the replicas' clocks may differ, shorter than the time to the next run. With cron and NTP, some minutes are more like it.
#[etcd_locked("jobs/nightly", wait = "none", on_held = "skip", at_least = "8s")]
async fn nightly(replica: &str) -> Result<Option<Report>, LockError> {
    println!("replica {replica}: does the job");
    tokio::time::sleep(Duration::from_secs(2)).await; // the work
    Ok(Some(Report { invoices: 17 }))
}

struct Report {
    invoices: u32,
}

#[tokio::main]
async fn main() -> std::process::ExitCode {
    let replica = std::env::args().nth(1).unwrap_or("a".to_owned());
    // Nothing to set up: the first lock connects to what ETCD_LOCKED_ENDPOINTS says.
    let done = nightly(&replica).await;
    // Gives back what is held, but not what `at_least` has promised.
    etcd_locked::shutdown(Duration::from_secs(5)).await;
    match done {
        Ok(Some(report)) => println!("replica {replica}: done, {} invoices", report.invoices),
        Ok(None) => println!("replica {replica}: skipped, another is at it or has just done it"),
        Err(error) => {
            eprintln!("replica {replica}: {error}");
            return std::process::ExitCode::FAILURE;
        }
    }
    std::process::ExitCode::SUCCESS
}
