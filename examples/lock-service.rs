//! Long waits: five threads of a process wait for a lock for longer than its TTL, and keep their order. All threads share one
//! engine with one connection and one lease, which it renews while they wait.
//!
//! etcd's own lock service and `etcdctl lock` queue with them:
//!
//! ```sh
//! export ETCD_LOCKED_ENDPOINTS=http://127.0.0.1:2379
//! cargo run -p etcd-locked-examples --bin lock-service            # `cargo run -p etcd-locked-examples --bin lock-service -- 1 20`: one thread, 20 seconds of work
//! ETCDCTL_API=3 etcdctl lock locks/mylock # in another window
//! ```

use std::env;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use etcd_locked::{Config, LockError, etcd_locked};
use tokio::runtime::{Builder, Runtime};
use tokio::time::sleep;

#[etcd_locked("mylock", wait = "forever")]
async fn work(thread: u64, seconds: u64) -> Result<(), LockError> {
    println!("thread {thread} has the lock");
    sleep(Duration::from_secs(seconds)).await;
    println!("thread {thread} releases it");
    Ok(())
}

fn main() -> ExitCode {
    let mut numbers = env::args().skip(1).map_while(|it| it.parse().ok());
    let threads: u64 = numbers.next().unwrap_or(5);
    let seconds = numbers.next().unwrap_or(10);
    match contend(threads, seconds) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lock-service: {error:?}");
            ExitCode::FAILURE
        }
    }
}

fn contend(threads: u64, seconds: u64) -> Result<(), Box<dyn std::error::Error>> {
    let runtime = runtime()?;
    let mut config = Config::from_env()?;
    if env::var_os("ETCD_LOCKED_TTL").is_none() {
        config = config.ttl(Duration::from_secs(30));
    }
    runtime.block_on(etcd_locked::init(config))?;
    let mut running = Vec::new();
    for thread in 1..=threads {
        println!("thread {thread} wants the lock");
        // Each thread has its own runtime; any executor works.
        let own = self::runtime()?;
        running.push(thread::spawn(move || own.block_on(work(thread, seconds))));
        thread::sleep(Duration::from_millis(100)); // so that the threads queue in order
    }
    for thread in running {
        thread.join().map_err(|_| "a thread has panicked")??;
    }
    runtime.block_on(etcd_locked::shutdown(Duration::from_secs(5)));
    Ok(())
}

fn runtime() -> std::io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}
