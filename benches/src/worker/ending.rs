//! Shutdown of an engine while locks are held.

use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, Instant};

use etcd_locked::{LockError, Locks};
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::spec::Spec;
use super::{Fault, answer, order, ready};

/// Takes all names on an engine of its own, and shuts it down; how long that takes, once for each order.
pub(super) async fn work(spec: Spec) -> Result<(), Fault> {
    ready()?;
    while order().await?.is_some() {
        let locks = Locks::connect(spec.config()).await?;
        let inside = Arc::new(Semaphore::new(0));
        let mut bodies = JoinSet::new();
        for number in 0..spec.names {
            let (locks, inside) = (locks.clone(), inside.clone());
            bodies.spawn(async move {
                let held = locks.lock(format!("held/{number}")).wait_forever().await?;
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
            // No body ends before all are inside, unless its lock was not to be had.
            Some(end) = bodies.join_next() => return Err(format!("{end:?}").into()),
        }
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
        answer(json!({ "ended": lost, "seconds": seconds }))?;
    }
    Ok(())
}
