//! Scheduled job that every replica starts at the same time and exactly one does.
//!
//! The lock excludes two replicas at once, and `min_hold` excludes a second one soon after. The name stays locked for `min_hold`
//! from the start of the work, even if the work is shorter and its replica has ended. So a replica whose clock is late skips the
//! job. If a replica crashes in the middle of the work, the next one to try after the lease's TTL does the job.
//!
//! ```sh
//! export ETCD_LOCKED_ENDPOINTS=http://127.0.0.1:2379
//! for replica in a b c; do cargo run -p etcd-locked-examples --bin nightly $replica & done; wait
//! ```

use std::time::Duration;

use etcd_locked::{LockError, etcd_locked};

/// Does the job. `wait = "none"` tries once; with `on_held = "skip"` the others return `None` without running the body.
/// `min_hold` is longer than the difference between the replicas' clocks, and shorter than the time to the next run. With cron and
/// NTP that is some minutes. It counts from the start: for a job that takes an hour, an hour and some minutes.
#[etcd_locked("jobs/nightly", wait = "none", on_held = "skip", min_hold = "8s")]
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
    // No set-up: the first lock connects to ETCD_LOCKED_ENDPOINTS.
    let done = nightly(&replica).await;
    // Releases held locks, and leaves to etcd those that `min_hold` keeps.
    etcd_locked::shutdown(Duration::from_secs(5)).await;
    match done {
        Ok(Some(report)) => println!("replica {replica}: done, {} invoices", report.invoices),
        Ok(None) => println!("replica {replica}: skipped, another does it or has just done it"),
        Err(error) => {
            eprintln!("replica {replica}: {error:?}");
            return std::process::ExitCode::FAILURE;
        }
    }
    std::process::ExitCode::SUCCESS
}
