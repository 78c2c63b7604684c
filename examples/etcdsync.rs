//! Locks without the attribute: New, Lock, Unlock, for code without a function to annotate.
//!
//! ```sh
//! export ETCD_LOCKED_ENDPOINTS=http://127.0.0.1:2379
//! cargo run -p etcd-locked-examples --bin etcdsync & RUST_LOG=etcd_locked=trace cargo run -p etcd-locked-examples --bin etcdsync -- 10   # seconds of work
//! ```

use std::env;
use std::error::Error;
use std::time::Duration;

use etcd_locked::{Config, LockError, Locks};
use tokio::time::sleep;
use tracing_subscriber::EnvFilter;

async fn guarded(machines: &[&str], seconds: u64) -> Result<(), LockError> {
    // New: at this and every later step, the engine skips an endpoint that does not respond.
    let locks = Locks::connect(Config::new(machines.to_vec()).ttl(Duration::from_secs(10))).await?;
    who_has_it(&locks).await?;
    // Lock
    let held = locks.lock("mylock").wait(Duration::from_secs(60)).await?;
    println!("etcdsync.Lock OK");
    held.hold(work(seconds)).await?;
    // Unlock
    held.release().await?;
    println!("etcdsync.Unlock OK");
    locks.shutdown(Duration::from_secs(5)).await;
    Ok(())
}

async fn work(seconds: u64) {
    println!("Get the lock. Do something here.");
    sleep(Duration::from_secs(seconds)).await;
}

/// Tries once, and prints the holder's host, process and time from its record in etcd.
async fn who_has_it(locks: &Locks) -> Result<(), LockError> {
    match locks.lock("mylock").try_once().await {
        Ok(held) => held.release().await,
        Err(LockError::Held { holder: Some(holder), .. }) => {
            println!(
                "locked by {}-{}-{}",
                holder.host(),
                holder.pid(),
                holder.held_since().unwrap_or(holder.queued_since())
            );
            Ok(())
        }
        Err(error) => Err(error),
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .init();
    let machines = env::var("ETCD_LOCKED_ENDPOINTS")?;
    let machines: Vec<_> = machines.split(',').collect();
    let seconds = env::args().nth(1).and_then(|it| it.parse().ok());
    Ok(guarded(&machines, seconds.unwrap_or(5)).await?)
}
