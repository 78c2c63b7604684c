//! Names as work, very many and each once: the memory that they leave behind, and the processor time of calls with `min_hold`.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use etcd_locked::{LockError, etcd_locked};
use serde_json::json;
use tokio::task::JoinSet;

use super::spec::Spec;
use super::usage::{processor, resident};
use super::{Fault, serve};

/// Time between the traffic of a process and its measurement.
pub(super) const QUIET: Duration = Duration::from_secs(2);
/// Names of the traffic before the start is measured, and the number of times that each is used.
const FEW: u64 = 2_000;
const ROUNDS: u64 = 50;
/// Parts of the calls with `min_hold`, of which the second and the last are compared.
const PARTS: u64 = 10;

#[etcd_locked("distinct/<name>", wait = "forever")]
async fn once(name: u64) -> Result<(), LockError> {
    let _ = name;
    Ok(())
}

// Longer than the row takes, so no name is free again within it.
#[etcd_locked("retained/<name>", min_hold = "1h")]
async fn retain(name: u64) -> Result<(), LockError> {
    let _ = name;
    Ok(())
}

/// Measures the resident memory after traffic on a few names, and after the same traffic on very many.
pub(super) async fn distinct(spec: Spec) -> Result<(), Fault> {
    serve(async |_| {
        share(spec.tasks, 0..FEW * ROUNDS, |number| once(number % FEW)).await?;
        tokio::time::sleep(QUIET).await;
        let start = resident()?;
        let from = Instant::now();
        share(spec.tasks, FEW..FEW + spec.names, once).await?;
        let seconds = from.elapsed().as_secs_f64();
        tokio::time::sleep(QUIET).await;
        let end = resident()?;
        Ok(json!({ "start": start, "end": end, "count": spec.names, "seconds": seconds }))
    })
    .await
}

/// Measures the processor time of the second and of the last tenth of all names. The first may end before locks have been held for a
/// second, when each costs a watch and a write of its record (rule P18).
pub(super) async fn retained(spec: Spec) -> Result<(), Fault> {
    serve(async |_| {
        let each = spec.names / PARTS;
        let mut parts = Vec::new();
        let from = Instant::now();
        for part in 0..PARTS {
            let before = processor();
            share(spec.tasks, part * each..(part + 1) * each, retain).await?;
            parts.push((processor() - before).as_secs_f64());
        }
        let seconds = from.elapsed().as_secs_f64();
        let (second, last) = (parts.get(1), parts.last());
        Ok(json!({ "second": second, "last": last, "each": each, "seconds": seconds }))
    })
    .await
}

/// Makes the tasks share one call for each number.
async fn share<F>(tasks: u64, numbers: Range<u64>, call: fn(u64) -> F) -> Result<(), Fault>
where
    F: Future<Output = Result<(), LockError>> + Send + 'static,
{
    let next = Arc::new(AtomicU64::new(numbers.start));
    let mut calls = JoinSet::new();
    for _ in 0..tasks {
        let next = next.clone();
        calls.spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= numbers.end {
                    return Ok::<_, LockError>(());
                }
                call(number).await?;
            }
        });
    }
    while let Some(done) = calls.join_next().await {
        done??;
    }
    Ok(())
}
