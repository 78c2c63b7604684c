//! Nested waiters as work: every task holds its own lock, or none, and waits for one hot name.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use etcd_locked::{LockError, etcd_locked};
use serde_json::json;
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use super::spec::Spec;
use super::tally::{Tally, Window};
use super::usage::processor_within;
use super::witness::Witness;
use super::{Fault, serve};

/// Long enough that a hundred tasks wait for more than a second, after which each has its own key.
const BODY: Duration = Duration::from_millis(20);

/// State that the tasks of one round share.
struct Round {
    witness: Witness,
    window: Window,
    tally: Mutex<Tally>,
    failed: AtomicU64,
}

impl Round {
    fn is_over(&self) -> bool {
        self.window.is_over(Instant::now())
    }
}

#[etcd_locked("hot", wait = "forever")]
async fn hot(round: &Round) -> Result<(), Fault> {
    let from = Instant::now();
    round.witness.enter(0)?;
    // The calls that still wait at the end of the window are served at once.
    if !round.is_over() {
        tokio::time::sleep(BODY).await;
    }
    round.tally.lock().await.record(&round.window, from, Instant::now());
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
    serve(async |begin| {
        let round = Arc::new(Round {
            witness: Witness::new(1, spec.witness.as_deref())?,
            window: Window::new(begin, spec.window),
            tally: Mutex::default(),
            failed: AtomicU64::new(0),
        });
        let mut tasks = JoinSet::new();
        for number in 0..spec.tasks {
            let (round, outer) = (round.clone(), spec.outer);
            tasks.spawn(async move { task(outer, number, &round).await });
        }
        let used = processor_within(round.window).await;
        while let Some(end) = tasks.join_next().await {
            end??;
        }
        let tally = round.tally.lock().await;
        Ok(json!({
            "count": tally.count,
            "total": tally.total,
            "latency": tally.latency.to_json(),
            "failed": round.failed.load(Ordering::Relaxed),
            "changes": round.witness.take().1,
            "processor": used.as_secs_f64(),
        }))
    })
    .await
}
