//! Lock shared by many languages: it guards a counter in a plain file, which each contender reads, and writes a moment later.
//! Without the lock, two contenders would read the same count.
//!
//! This program has two contenders: ours (`ours`), and one that uses etcd's lock service (`service`), which is for clients
//! without their own lock. The others are in Go, Java and Python, and for `etcdctl`; `README.md` says what each does not promise.
//! Each contender prints one line per round: the count, its kind, its fencing token, its key.
//!
//! ```sh
//! export ETCD_LOCKED_ENDPOINTS=http://127.0.0.1:2379 ETCDCTL_ENDPOINTS=http://127.0.0.1:2379
//! echo 0 > counter
//! cargo run -p etcd-locked-examples --bin interop ours counter 40 & sh etcdctl.sh counter 40 & python3 python/contender.py counter 40
//! ```

use std::error::Error;
use std::path::Path;
use std::time::Duration;

use etcd_locked::etcd_client::{Client, LockOptions};
use etcd_locked::{LockError, etcd_locked};

/// Name of the lock in all languages. Ours is `counter`, because our keys are below `locks/`.
const LOCK: &str = "locks/counter";
/// TTL of the lease to which the service's lock is attached, in seconds.
const TTL: i64 = 10;

type Result<T, E = Box<dyn Error>> = std::result::Result<T, E>;

#[tokio::main]
async fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [kind, file, rounds] = args.as_slice() else {
        return Err("usage: interop ours|service <file> <rounds>".into());
    };
    let (file, rounds) = (Path::new(file), rounds.parse()?);
    match kind.as_str() {
        "ours" => ours(file, rounds).await,
        "service" => service(file, rounds).await,
        other => Err(format!("`{other}` is neither `ours` nor `service`").into()),
    }
}

async fn ours(file: &Path, rounds: u32) -> Result<()> {
    for _ in 0..rounds {
        let (count, token) = locked_count(file).await?;
        println!("{count} ours {token}");
    }
    etcd_locked::shutdown(Duration::from_secs(5)).await;
    Ok(())
}

/// Counts under the lock. To share it with other languages, only the name must match.
#[etcd_locked("counter", wait = "60s", proof = counter)]
async fn locked_count(file: &Path) -> Result<(u64, i64), CountError> {
    Ok((count(file).await?, counter.token().revision()))
}

#[derive(Debug)]
enum CountError {
    Lock(LockError),
    File(std::io::Error),
}

impl From<LockError> for CountError {
    fn from(error: LockError) -> Self {
        Self::Lock(error)
    }
}

impl From<std::io::Error> for CountError {
    fn from(error: std::io::Error) -> Self {
        Self::File(error)
    }
}

impl std::fmt::Display for CountError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Lock(error) => error.fmt(f),
            Self::File(error) => error.fmt(f),
        }
    }
}

impl Error for CountError {}

/// Counts under a lock of the lock service. The service only queues: the client must renew the lease and notice its loss.
async fn service(file: &Path, rounds: u32) -> Result<()> {
    let endpoints = std::env::var("ETCD_LOCKED_ENDPOINTS")?;
    let mut client = Client::connect(endpoints.split(',').collect::<Vec<_>>(), None).await?;
    let lease = client.lease_grant(TTL, None).await?.id();
    let (mut keeper, mut kept) = client.lease_keep_alive(lease).await?;
    tokio::spawn(async move {
        let third = Duration::from_secs(TTL as u64 / 3);
        loop {
            tokio::time::sleep(third).await;
            // A renewal without a response counts as failed, in time to stop.
            let renewed = tokio::time::timeout(third, async {
                keeper.keep_alive().await?;
                kept.message().await
            });
            if !matches!(renewed.await, Ok(Ok(Some(answer))) if answer.ttl() > 0) {
                // The service does not stop a client whose lock is lost, so the client ends itself.
                eprintln!("interop: the lease of the lock service is not renewed any more");
                std::process::exit(1);
            }
        }
    });
    for _ in 0..rounds {
        let options = LockOptions::new().with_lease(lease);
        let locked = client.lock(LOCK, Some(options)).await?;
        let token = locked.header().map(|header| header.revision()).unwrap_or_default();
        let count = count(file).await?;
        let key = String::from_utf8_lossy(locked.key());
        println!("{count} service {token} {key}");
        client.unlock(locked.key()).await?;
    }
    client.lease_revoke(lease).await?;
    Ok(())
}

/// Reads, waits, writes: correct only if no other contender does so in between.
async fn count(file: &Path) -> std::io::Result<u64> {
    let read = std::fs::read_to_string(file)?;
    let count: u64 = read.trim().parse().map_err(std::io::Error::other)?;
    tokio::time::sleep(Duration::from_millis(5)).await;
    std::fs::write(file, format!("{}\n", count + 1))?;
    Ok(count + 1)
}
