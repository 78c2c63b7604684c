//! Waiters as work: the memory that they take.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use etcd_locked::{LockError, etcd_locked};
use serde_json::json;
use tokio::sync::Mutex;

use super::names::QUIET;
use super::spec::Spec;
use super::usage::resident;
use super::{Fault, serve};
use crate::kind::Kind;

#[etcd_locked("waiters/<name>", wait = "forever")]
async fn wait(name: u64, passed: &AtomicU64) -> Result<(), LockError> {
    let _ = name;
    passed.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

/// Measures the resident memory before and while very many tasks wait, for as many names as there are: for our locks, or for a
/// tokio mutex.
pub(super) async fn work(spec: Spec) -> Result<(), Fault> {
    let ours = spec.kind == Kind::Ours;
    serve(async |_| {
        let (passed, asked) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let mutex = Arc::new(Mutex::new(()));
        let mut held = Vec::new();
        for name in 0..if ours { spec.names } else { 0 } {
            held.push(etcd_locked::lock(format!("waiters/{name}")).await?);
        }
        let locked = mutex.clone().lock_owned().await;
        let before = resident()?;
        let mut tasks = Vec::with_capacity(spec.tasks as usize);
        for task in 0..spec.tasks {
            let (passed, asked, mutex) = (passed.clone(), asked.clone(), mutex.clone());
            let name = task % spec.names;
            // Each is a separate task with its own size, like a handler.
            tasks.push(match ours {
                true => tokio::spawn(async move {
                    asked.fetch_add(1, Ordering::Relaxed);
                    wait(name, &passed).await
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
            // The engine serves this call after it has taken in every command submitted before.
            etcd_locked::lock("waiters-counted").await?.release().await?;
        }
        tokio::time::sleep(QUIET).await;
        let waiting = resident()?;
        drop((held, locked));
        for task in tasks {
            task.await??;
        }
        Ok(json!({
            "before": before, "waiting": waiting, "waiters": spec.tasks,
            "passed": passed.load(Ordering::Relaxed),
        }))
    })
    .await
}
