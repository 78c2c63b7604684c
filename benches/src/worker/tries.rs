//! Single tries, thousands at once, for a name that few or none of them get.

use std::future::IntoFuture;
use std::time::{Duration, Instant};

use etcd_locked::{Acquire, LockError, LockGuard, LockMode, Locks, Name};
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
            let call = || locks.lock(&*name).try_once();
            let took = match spec.mode {
                Mode::Permits => {
                    tried(|| call().permits(PERMITS), usize::from(PERMITS), tries).await?
                }
                Mode::Shared => tried(|| call().shared(), 0, tries).await?,
                Mode::Exclusive => tried(call, 0, tries).await?,
            };
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

/// Tries all at once, of which so many at most may be served.
async fn tried<M: LockMode>(
    call: impl Fn() -> Acquire<Name, M>,
    most: usize,
    tries: u64,
) -> Result<Duration, Fault> {
    let mut tasks = JoinSet::new();
    let from = Instant::now();
    for _ in 0..tries {
        tasks.spawn(call().into_future());
    }
    let mut served: Vec<LockGuard<Name, M>> = Vec::new();
    while let Some(end) = tasks.join_next().await {
        match end? {
            Ok(guard) => served.push(guard),
            Err(LockError::Held { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let took = from.elapsed();
    if served.len() > most {
        return Err(format!("{} tries were served, of {most}", served.len()).into());
    }
    for guard in served {
        guard.release().await?;
    }
    Ok(took)
}
