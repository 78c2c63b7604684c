//! Memory: what a million names leave behind, and what a waiter takes.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use etcd_locked::{LockError, etcd_locked};
use serde_json::json;
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use super::spec::{Spec, Who};
use super::{Fault, answer, order, ready};

/// How long after its traffic a process is measured.
const QUIET: Duration = Duration::from_secs(2);
/// Names of the traffic that comes before the start is measured, and how often it goes round.
const FEW: u64 = 2_000;
const ROUNDS: u64 = 50;

/// Resident memory in bytes.
pub(super) fn resident() -> Result<u64, Fault> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB"));
    let kib = kib.ok_or("/proc/self/status does not tell resident memory")?;
    Ok(kib.trim().parse::<u64>()? * 1024)
}

#[etcd_locked("distinct/<name>", wait = "forever")]
async fn distinct_call(name: u64) -> Result<(), LockError> {
    let _ = name;
    Ok(())
}

/// Resident memory after traffic on a few names, and after the same on very many, each once.
pub(super) async fn distinct(spec: Spec) -> Result<(), Fault> {
    etcd_locked::init(spec.config()).await?;
    ready()?;
    while order().await?.is_some() {
        traffic(&spec, FEW * ROUNDS, |number| number % FEW).await?;
        tokio::time::sleep(QUIET).await;
        let start = resident()?;
        let from = Instant::now();
        traffic(&spec, spec.names, |number| FEW + number).await?;
        let seconds = from.elapsed().as_secs_f64();
        let peak = resident()?;
        tokio::time::sleep(QUIET).await;
        answer(json!({
            "start": start, "peak": peak, "end": resident()?,
            "count": spec.names, "seconds": seconds,
        }))?;
    }
    Ok(())
}

/// So many calls by all tasks together.
async fn traffic(spec: &Spec, calls: u64, name: fn(u64) -> u64) -> Result<(), Fault> {
    let next = Arc::new(AtomicU64::new(0));
    let mut tasks = JoinSet::new();
    for _ in 0..spec.tasks {
        let next = next.clone();
        tasks.spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= calls {
                    return Ok::<_, LockError>(());
                }
                distinct_call(name(number)).await?;
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(())
}

#[etcd_locked("waiters/<name>", wait = "forever")]
async fn waiting_call(name: u64, passed: &AtomicU64) -> Result<(), LockError> {
    let _ = name;
    passed.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

/// Resident memory before and while very many tasks wait, for as many names as there are: for our locks, or for a mutex of
/// tokio's.
pub(super) async fn waiters(spec: Spec) -> Result<(), Fault> {
    let ours = spec.who == Who::Ours;
    if ours {
        etcd_locked::init(spec.config()).await?;
    }
    ready()?;
    while order().await?.is_some() {
        let (passed, asked) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let mutex = Arc::new(Mutex::new(()));
        let mut held = Vec::new();
        for name in 0..spec.names {
            if ours {
                held.push(etcd_locked::lock(format!("waiters/{name}")).await?);
            }
        }
        let locked = mutex.clone().lock_owned().await;
        let before = resident()?;
        let mut tasks = Vec::with_capacity(spec.tasks as usize);
        for task in 0..spec.tasks {
            let (passed, asked, mutex) = (passed.clone(), asked.clone(), mutex.clone());
            let name = task % spec.names;
            // Each its own task of its own size, as a handler has.
            tasks.push(match ours {
                true => tokio::spawn(async move {
                    asked.fetch_add(1, Ordering::Relaxed);
                    waiting_call(name, &passed).await
                }),
                false => tokio::spawn(async move {
                    asked.fetch_add(1, Ordering::Relaxed);
                    drop(mutex.lock().await);
                    passed.fetch_add(1, Ordering::Relaxed);
                    Ok(())
                }),
            });
        }
        while asked.load(Ordering::Relaxed) < spec.tasks {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        if ours {
            // The engine answers this call after it has taken in every command submitted before.
            etcd_locked::lock("waiters-counted").await?.release().await?;
        }
        tokio::time::sleep(QUIET).await;
        let waiting = resident()?;
        let from = Instant::now();
        drop((held, locked));
        for task in tasks {
            task.await??;
        }
        answer(json!({
            "before": before, "waiting": waiting, "waiters": spec.tasks,
            "passed": passed.load(Ordering::Relaxed), "seconds": from.elapsed().as_secs_f64(),
        }))?;
    }
    Ok(())
}
