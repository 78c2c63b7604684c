//! A job that every replica starts at the same time and exactly one does.
//!
//! The lock keeps two from doing it at once, not from doing it one after the other: a replica whose clock is late by more
//! than the job takes would do it again. A job that must not run twice a night notes in its own store that it has run.
//!
//! ```sh
//! export ETCD_LOCKED_ENDPOINTS=http://127.0.0.1:2379
//! cargo run --bin nightly & cargo run --bin nightly
//! ```

use std::time::Duration;

use etcd_locked::{LockError, etcd_locked};

/// `wait = "none"`: one try. `on_held = "skip"`: the others return `None` without running the body.
#[etcd_locked("jobs/nightly", wait = "none", on_held = "skip")]
async fn nightly() -> Result<Option<Report>, LockError> {
    tokio::time::sleep(Duration::from_secs(3)).await; // the work
    Ok(Some(Report { invoices: 17 }))
}

struct Report {
    invoices: u32,
}

#[tokio::main]
async fn main() -> std::process::ExitCode {
    // Nothing to set up: the first lock connects to what ETCD_LOCKED_ENDPOINTS says.
    let done = nightly().await;
    etcd_locked::shutdown(Duration::from_secs(5)).await;
    match done {
        Ok(Some(report)) => println!("done: {} invoices", report.invoices),
        Ok(None) => println!("skipped: another replica is at it"),
        Err(error) => {
            eprintln!("nightly: {error}");
            return std::process::ExitCode::FAILURE;
        }
    }
    std::process::ExitCode::SUCCESS
}
