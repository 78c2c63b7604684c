//! Nested waiters: every task holds a lock of its own, or none, and waits for one hot name.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use etcd_locked::{LockError, etcd_locked};
use serde_json::json;
use tokio::task::JoinSet;

use super::processor;
use super::spec::Spec;
use super::tally::Window;
use super::witness::Witness;
use super::{Fault, answer, order, ready};

/// Long enough that a hundred tasks wait for more than a second, after which an engine publishes what they wait for.
const BODY: Duration = Duration::from_millis(20);

/// What the tasks of one round share.
struct Round {
    witness: Witness,
    window: Window,
    /// Within the window.
    served: AtomicU64,
    /// Before and after it too.
    total: AtomicU64,
    failed: AtomicU64,
}

impl Round {
    fn is_over(&self) -> bool {
        self.window.is_over(Instant::now())
    }
}

#[etcd_locked("hot", wait = "forever")]
async fn hot(round: &Round) -> Result<(), Fault> {
    round.witness.enter(0)?;
    // The calls that still wait at the end of the window are served at once.
    if !round.is_over() {
        tokio::time::sleep(BODY).await;
    }
    let now = Instant::now();
    round.total.fetch_add(1, Ordering::Relaxed);
    if now >= round.window.begin && !round.window.is_over(now) {
        round.served.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

#[etcd_locked("own/<process>/<task>", wait = "forever")]
async fn own(process: u32, task: u64, round: &Round) -> Result<(), Fault> {
    let _ = (process, task);
    repeat(round).await
}

async fn repeat(round: &Round) -> Result<(), Fault> {
    while !round.is_over() {
        hot(round).await?;
    }
    Ok(())
}

/// Repeats until the window is over. A lost lock counts as a failure, and the task begins again.
async fn task(outer: bool, task: u64, round: &Round) -> Result<(), Fault> {
    while !round.is_over() {
        let end = match outer {
            true => own(std::process::id(), task, round).await,
            false => repeat(round).await,
        };
        if let Err(fault) = end {
            if !fault.is::<LockError>() {
                return Err(fault);
            }
            round.failed.fetch_add(1, Ordering::Relaxed);
        }
    }
    Ok(())
}

pub(super) async fn work(spec: Spec) -> Result<(), Fault> {
    etcd_locked::init(spec.config()).await?;
    ready()?;
    while let Some(begin) = order().await? {
        let round = Arc::new(Round {
            witness: Witness::new(1, spec.witness.as_deref())?,
            window: Window::new(begin, spec.window),
            served: AtomicU64::new(0),
            total: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        });
        let mut tasks = JoinSet::new();
        for number in 0..spec.tasks {
            let (round, outer) = (round.clone(), spec.outer);
            tasks.spawn(async move { task(outer, number, &round).await });
        }
        let used = processor::used_within(round.window).await;
        while let Some(end) = tasks.join_next().await {
            end??;
        }
        let figure = |count: &AtomicU64| count.load(Ordering::Relaxed);
        answer(json!({
            "count": figure(&round.served),
            "total": figure(&round.total),
            "failed": figure(&round.failed),
            "seconds": spec.window.as_secs_f64(),
            "processor": used.as_secs_f64(),
        }))?;
    }
    Ok(())
}
