//! One lock, many languages: a counter in a plain file, which each contender reads, thinks about for a moment, and writes.
//! Whoever came in between would lose a count.
//!
//! This is our contender (`ours`), and the one that asks etcd's own lock service (`service`), which is there for clients that
//! have no lock of their own. Beside it are those in Go, Python and for `etcdctl`; `README.md` says what each of them does not
//! promise. All print a line a turn: the count, who they are, their fencing token, their key.
//!
//! ```sh
//! export ETCDCTL_ENDPOINTS=http://127.0.0.1:2379
//! echo 0 > counter
//! cargo run -p etcd-locked-examples --bin interop ours counter 40 & sh etcdctl.sh counter 40 & python3 python/contender.py counter 40
//! ```

use std::error::Error;
use std::path::Path;
use std::time::Duration;

use etcd_locked::etcd_client::{Client, LockOptions};
use etcd_locked::{LockError, etcd_locked};

/// What the lock is called everywhere: ours is `counter`, and our keys are below `locks/`.
const LOCK: &str = "locks/counter";
/// Of the lease that the service's lock hangs on, in seconds.
const TTL: i64 = 10;

type Result<T, E = Box<dyn Error>> = std::result::Result<T, E>;

#[tokio::main]
async fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [kind, file, turns] = args.as_slice() else {
        return Err("usage: interop ours|service <file> <turns>".into());
    };
    let (file, turns) = (Path::new(file), turns.parse()?);
    match kind.as_str() {
        "ours" => ours(file, turns).await,
        "service" => service(file, turns).await,
        other => Err(format!("`{other}` is neither `ours` nor `service`").into()),
    }
}

async fn ours(file: &Path, turns: u32) -> Result<()> {
    for _ in 0..turns {
        let (count, token) = turn(file).await?;
        println!("{count} ours {token}");
    }
    etcd_locked::shutdown(Duration::from_secs(5)).await;
    Ok(())
}

/// All that sharing a lock takes here: the name.
#[etcd_locked("counter", wait = "60s")]
async fn turn(file: &Path) -> Result<(u64, i64), TurnError> {
    let token = etcd_locked::current().map(|held| held.token().revision());
    Ok((count(file).await?, token.unwrap_or_default()))
}

#[derive(Debug)]
enum TurnError {
    Lock(LockError),
    File(std::io::Error),
}

impl From<LockError> for TurnError {
    fn from(error: LockError) -> Self {
        Self::Lock(error)
    }
}

impl From<std::io::Error> for TurnError {
    fn from(error: std::io::Error) -> Self {
        Self::File(error)
    }
}

impl std::fmt::Display for TurnError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Lock(error) => error.fmt(f),
            Self::File(error) => error.fmt(f),
        }
    }
}

impl Error for TurnError {}

/// The lock service queues for us, and that is all it does: the lease is ours to keep alive, its loss ours to notice.
async fn service(file: &Path, turns: u32) -> Result<()> {
    let endpoints = std::env::var("ETCDCTL_ENDPOINTS")?;
    let mut client = Client::connect(endpoints.split(',').collect::<Vec<_>>(), None).await?;
    let lease = client.lease_grant(TTL, None).await?.id();
    let (mut keeper, mut kept) = client.lease_keep_alive(lease).await?;
    tokio::spawn(async move {
        let third = Duration::from_secs(TTL as u64 / 3);
        loop {
            tokio::time::sleep(third).await;
            // An answer that does not come is a no, in time to stop.
            let renewed = tokio::time::timeout(third, async {
                keeper.keep_alive().await?;
                kept.message().await
            });
            if !matches!(renewed.await, Ok(Ok(Some(answer))) if answer.ttl() > 0) {
                // Nobody else would stop the one who believes to have the lock.
                eprintln!("interop: the lease of the lock service is not renewed any more");
                std::process::exit(1);
            }
        }
    });
    for _ in 0..turns {
        let options = LockOptions::new().with_lease(lease);
        let locked = client.lock(LOCK, Some(options)).await?;
        let token = locked
            .header()
            .map(|header| header.revision())
            .unwrap_or_default();
        let count = count(file).await?;
        let key = String::from_utf8_lossy(locked.key());
        println!("{count} service {token} {key}");
        client.unlock(locked.key()).await?;
    }
    client.lease_revoke(lease).await?;
    Ok(())
}

/// Reads, waits, writes: what nobody else may come in between of.
async fn count(file: &Path) -> std::io::Result<u64> {
    let read = std::fs::read_to_string(file)?;
    let count: u64 = read.trim().parse().map_err(std::io::Error::other)?;
    tokio::time::sleep(Duration::from_millis(5)).await;
    std::fs::write(file, format!("{}\n", count + 1))?;
    Ok(count + 1)
}
