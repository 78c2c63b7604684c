//! Single tries as work: thousands at once, for a name that few or none of them get.

use std::future::IntoFuture;
use std::time::{Duration, Instant};

use etcd_locked::{Acquire, LockError, LockGuard, LockMode, Locks, Name};
use serde_json::json;
use tokio::task::JoinSet;

use super::spec::{Mode, Spec};
use super::{Fault, serve};

/// Number of permits for tries that want one.
const PERMITS: u16 = 5;

/// Makes half of the tries at once, then all of them, for a new name each time; reports how long each takes.
pub(super) async fn work(spec: Spec) -> Result<(), Fault> {
    // To etcd and our engine this is another process.
    let elsewhere = Locks::connect(spec.config()).await?;
    let mut round = 0;
    serve(async |_| {
        let mut seconds = Vec::new();
        for tries in [spec.tasks / 2, spec.tasks] {
            round += 1;
            let name = format!("tried/{round}");
            let holder = match spec.mode {
                Mode::Permits => None,
                Mode::Shared | Mode::Exclusive => Some(elsewhere.lock(&*name).await?),
            };
            let call = || etcd_locked::lock(&*name).try_once();
            seconds.push(match spec.mode {
                Mode::Permits => tried(|| call().permits(PERMITS), PERMITS, tries).await?,
                Mode::Shared => tried(|| call().shared(), 0, tries).await?,
                Mode::Exclusive => tried(call, 0, tries).await?,
            });
            if let Some(holder) = holder {
                holder.release().await?;
            }
        }
        Ok(json!({ "half": seconds.first(), "whole": seconds.last() }))
    })
    .await?;
    elsewhere.shutdown(Duration::ZERO).await;
    Ok(())
}

/// Makes all tries at once, of which at most this many may be served; returns the seconds that this takes.
async fn tried<M: LockMode>(
    call: impl Fn() -> Acquire<Name, M>,
    most: u16,
    tries: u64,
) -> Result<f64, Fault> {
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
    let took = from.elapsed().as_secs_f64();
    if served.len() > usize::from(most) {
        return Err(format!("{} tries were served, of {most}", served.len()).into());
    }
    for guard in served {
        guard.release().await?;
    }
    Ok(took)
}
