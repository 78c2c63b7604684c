//! Retention (`at_least`) of very many names, each once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::task::JoinSet;

use super::processor;
use super::spec::Spec;
use super::{Fault, answer, order, ready};

/// Longer than the row takes: no name is free again within it.
const RETAINED: Duration = Duration::from_secs(3_600);
/// Parts of the row, of which the first and the last are compared.
const PARTS: u64 = 10;

/// Takes and releases all names; the processor time of each tenth of them.
pub(super) async fn work(spec: Spec) -> Result<(), Fault> {
    etcd_locked::init(spec.config()).await?;
    ready()?;
    while order().await?.is_some() {
        let next = Arc::new(AtomicU64::new(0));
        let mut parts = Vec::new();
        let from = Instant::now();
        for part in 1..=PARTS {
            let before = processor::used();
            let end = spec.names * part / PARTS;
            let mut tasks = JoinSet::new();
            for _ in 0..spec.tasks {
                tasks.spawn(take(next.clone(), end));
            }
            while let Some(done) = tasks.join_next().await {
                done??;
            }
            // Each task has taken a number beyond the end.
            next.store(end, Ordering::Relaxed);
            parts.push((processor::used() - before).as_secs_f64());
        }
        answer(json!({
            "first": parts.first(),
            "last": parts.last(),
            "each": spec.names / PARTS,
            "seconds": from.elapsed().as_secs_f64(),
        }))?;
    }
    Ok(())
}

/// Takes and releases one name after the other, up to an end.
async fn take(next: Arc<AtomicU64>, end: u64) -> Result<(), Fault> {
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= end {
            return Ok(());
        }
        let name = format!("retained/{number}");
        let held = etcd_locked::lock(name).at_least(RETAINED).await?;
        held.release().await?;
    }
}
