//! Held locks as work: for a while, until their holder is killed, or until their engine is shut down.

use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use etcd_locked::{LockError, Locks};
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::spec::Spec;
use super::usage::processor;
use super::{Fault, serve};

/// Time for the watches and the records of very many held locks.
const SETTLED: Duration = Duration::from_secs(4);

fn name(number: u64) -> String {
    format!("held/{number}")
}

/// Locks all names, then is ready, and holds them until the row is over.
pub(super) async fn hold(spec: Spec) -> Result<(), Fault> {
    let mut calls = JoinSet::new();
    for number in spec.first..spec.first + spec.names {
        calls.spawn(async move { etcd_locked::lock(name(number)).wait_forever().await });
    }
    let mut held = Vec::new();
    while let Some(call) = calls.join_next().await {
        held.push(call??);
    }
    let mut answered = processor();
    serve(async |_| {
        // Since the last result, because checking thousands of held locks takes longer than holding them.
        let idle = (processor() - answered).as_secs_f64();
        let still = held.iter().filter(|held| held.is_held()).count();
        answered = processor();
        Ok(json!({ "held": still, "processor": idle }))
    })
    .await
}

/// Locks the first name, and reports when it had the lock.
pub(super) async fn take(spec: Spec) -> Result<(), Fault> {
    serve(async |_| {
        let held = etcd_locked::lock(name(spec.first)).wait_forever().await?;
        let at = SystemTime::now().duration_since(UNIX_EPOCH)?;
        held.release().await?;
        Ok(json!({ "at": at.as_secs_f64() }))
    })
    .await
}

/// Locks all names on a separate engine, and shuts it down, once for each order; reports how long that takes.
pub(super) async fn shutdown(spec: Spec) -> Result<(), Fault> {
    serve(async |_| {
        let locks = Locks::connect(spec.config()).await?;
        let inside = Arc::new(Semaphore::new(0));
        let mut bodies = JoinSet::new();
        for number in 0..spec.names {
            let (locks, inside) = (locks.clone(), inside.clone());
            bodies.spawn(async move {
                let held = locks.lock(name(number)).wait_forever().await?;
                held.hold(async {
                    inside.add_permits(1);
                    pending::<()>().await;
                })
                .await
            });
        }
        let all = u32::try_from(spec.names)?;
        tokio::select! {
            all = inside.acquire_many(all) => drop(all?),
            // A body ends before all are inside only if its lock was not acquired.
            Some(end) = bodies.join_next() => return Err(format!("{end:?}").into()),
        }
        // After a second, each lock gets a watch and a write of its record (rule P18). Few locks would be shut down before that.
        tokio::time::sleep(SETTLED).await;
        let from = Instant::now();
        locks.shutdown(Duration::ZERO).await;
        let seconds = from.elapsed().as_secs_f64();
        let mut lost = 0;
        while let Some(end) = bodies.join_next().await {
            match end? {
                Err(LockError::Lost { .. }) => lost += 1,
                other => return Err(format!("a body ended with {other:?}").into()),
            }
        }
        Ok(json!({ "ended": lost, "seconds": seconds }))
    })
    .await
}
