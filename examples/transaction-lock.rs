//! Single try: one transaction takes the lock if it is free. Otherwise the program prints its holder and ends. The engine renews
//! the lease for as long as the work takes.
//!
//! ```sh
//! export ETCD_LOCKED_ENDPOINTS=http://127.0.0.1:2379
//! cargo run -p etcd-locked-examples --bin transaction-lock -- 10 & cargo run -p etcd-locked-examples --bin transaction-lock
//! ```

use std::process::ExitCode;
use std::time::Duration;

use etcd_locked::{LockError, etcd_locked};
use tokio::time::sleep;

/// Works under the lock. `wait = "none"` tries once, and a try that fails leaves no key behind.
#[etcd_locked("jobs/report", wait = "none", ttl = "5s")]
async fn report(seconds: u64) -> Result<(), LockError> {
    println!("lock successfully");
    sleep(Duration::from_secs(seconds)).await; // the work, which may take longer than the TTL
    println!("the work is done");
    Ok(())
}

#[tokio::main]
async fn main() -> ExitCode {
    let seconds = std::env::args().nth(1).and_then(|it| it.parse().ok());
    let done = report(seconds.unwrap_or(1)).await;
    etcd_locked::shutdown(Duration::from_secs(5)).await;
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(LockError::Held { holder, .. }) => {
            match holder {
                Some(holder) => println!("lock occupied: {holder}"),
                None => println!("lock occupied: by a program that does not say who it is"),
            }
            ExitCode::from(1)
        }
        Err(error) => {
            eprintln!("transaction-lock: {error:?}");
            ExitCode::from(2)
        }
    }
}
