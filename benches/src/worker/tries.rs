//! Single tries, thousands at once, for a name that few or none of them get.

use std::future::IntoFuture;
use std::time::{Duration, Instant};

use etcd_locked::{LockError, LockGuard, Locks};
use serde_json::json;
use tokio::task::JoinSet;

use super::spec::{Mode, Spec};
use super::{Fault, answer, order, ready};

/// How many permits there are for those who try for one.
const PERMITS: u16 = 5;

/// Makes half of the tries at once, then all of them, for a new name each time; how long each half takes.
pub(super) async fn work(spec: Spec) -> Result<(), Fault> {
    let locks = Locks::connect(spec.config()).await?;
    // Another process, as far as etcd and our engine can tell.
    let elsewhere = Locks::connect(spec.config()).await?;
    ready()?;
    let mut round = 0;
    while order().await?.is_some() {
        let mut seconds = Vec::new();
        for tries in [spec.tasks / 2, spec.tasks] {
            round += 1;
            let name = format!("tried/{round}");
            let holder = match spec.mode {
                Mode::Permits => None,
                Mode::Shared | Mode::Exclusive => Some(elsewhere.lock(&*name).await?),
            };
            let took = tried(&locks, &name, spec.mode, tries).await?;
            seconds.push(took.as_secs_f64());
            if let Some(holder) = holder {
                holder.release().await?;
            }
        }
        answer(json!({ "half": seconds.first(), "whole": seconds.last() }))?;
    }
    elsewhere.shutdown(Duration::ZERO).await;
    locks.shutdown(Duration::ZERO).await;
    Ok(())
}

async fn tried(locks: &Locks, name: &str, mode: Mode, tries: u64) -> Result<Duration, Fault> {
    let mut tasks = JoinSet::new();
    let from = Instant::now();
    for _ in 0..tries {
        let call = locks.lock(name);
        let call = match mode {
            Mode::Permits => call.permits(PERMITS),
            Mode::Shared => call.shared(),
            Mode::Exclusive => call,
        };
        tasks.spawn(call.try_once().into_future());
    }
    let mut served: Vec<LockGuard> = Vec::new();
    while let Some(end) = tasks.join_next().await {
        match end? {
            Ok(guard) => served.push(guard),
            Err(LockError::Held { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let took = from.elapsed();
    let most = match mode {
        Mode::Permits => usize::from(PERMITS),
        Mode::Shared | Mode::Exclusive => 0,
    };
    if served.len() > most {
        return Err(format!("{} tries were served, of {most}", served.len()).into());
    }
    for guard in served {
        guard.release().await?;
    }
    Ok(took)
}
