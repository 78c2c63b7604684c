//! Rolling restarts under load, of one version or from 3.5 through 3.6 to 3.7: no call fails and no lock is lost.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use etcd_locked::{Config, LockError, Locks, Token, current, etcd_locked};
use etcd_locked_devkit::{Cluster, Setup, binary, http, until};
use tokio::sync::{Mutex, watch};
use tokio::task::{JoinSet, yield_now};

use crate::corner::{connect, take};
use crate::limit::{self, PATIENCE, blocking, within};
use crate::real_only::{real_etcd_only, say_left_out};

const VERSIONS: [&str; 3] = ["3.5", "3.6", "3.7"];
/// Shortest TTL at which a change of leader must not cost a lock.
const TTL: Duration = Duration::from_secs(10);
/// How long calls wait for etcd: when all tests run at once, an election may take longer than the default of five seconds.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// Tasks of each engine, each of which locks the hot name and a cold one in turn.
const TASKS: usize = 4;
/// Locks that each engine holds throughout.
const HELD: usize = 20;
/// Calls for the hot name in each step.
const CALLS: u64 = 50;

type Tasks = JoinSet<Result<(), LockError>>;

/// Load on the cluster: state that all tasks of both engines share.
#[derive(Debug, Default)]
struct Load {
    /// What the lock of the hot name protects: the token and the engine of its last holder.
    last: Mutex<(Option<Token>, usize)>,
    /// Number of calls that have ended, and how many of them followed a call of the other engine.
    calls: watch::Sender<(u64, u64)>,
    stop: AtomicBool,
}

/// Asserts that no other call holds the hot name and that tokens increase.
#[etcd_locked("hot", locks = locks)]
async fn hot(locks: &Locks, load: &Load, engine: usize) -> Result<(), LockError> {
    let mut last = load.last.try_lock().expect("no other holder");
    let token = current().map(|it| it.token());
    assert!(token > last.0, "{token:?} after {last:?}");
    let handed_over = u64::from(last.1 != engine);
    *last = (token, engine);
    yield_now().await;
    load.calls.send_modify(|(calls, hand_overs)| {
        *calls += 1;
        *hand_overs += handed_over;
    });
    Ok(())
}

/// Locks a name that no other call wants. As with `hot`, a release that etcd does not confirm within two seconds is not a failure.
#[etcd_locked("cold/<engine>/<task>", locks = locks)]
async fn cold(locks: &Locks, engine: usize, task: usize) -> Result<(), LockError> {
    Ok(())
}

impl Load {
    async fn run(
        self: Arc<Self>,
        locks: Locks,
        engine: usize,
        task: usize,
    ) -> Result<(), LockError> {
        while !self.stop.load(Ordering::Relaxed) {
            hot(&locks, &self, engine).await?;
            cold(&locks, engine, task).await?;
        }
        Ok(())
    }

    /// Awaits more calls; panics if a call fails.
    async fn more(&self, when: &str, tasks: &mut Tasks) {
        let mut calls = self.calls.subscribe();
        let (before, _) = *calls.borrow();
        let more = calls.wait_for(|(calls, _)| *calls >= before + CALLS);
        tokio::select! {
            served = within(when, more) => drop(served.expect("the load goes on")),
            ended = tasks.join_next() => panic!("a call failed {when}: {ended:?}"),
        }
    }
}

/// Returns the cluster version that the first member reports.
fn agreed(cluster: &Cluster) -> Option<String> {
    let version = http::get(cluster.members()[0].direct(), "/version").ok()?;
    let (_, agreed) = version.body.split_once("\"etcdcluster\":\"")?;
    Some(agreed.split('"').next()?.to_owned())
}

/// Restarts three members with each of these binaries, one by one and the leader last, so that leadership moves once.
///
/// A binary comes with the version that all members must then agree on: etcd upgrades by one minor version at a time.
async fn rolls(first: PathBuf, then: Vec<(PathBuf, Option<&'static str>)>) {
    // etcd 3.7 panics at start on log entries of 3.5. etcd 3.6 replaces them with a snapshot, by default after 10,000 writes.
    let setup = Setup::default().flags(["--snapshot-count=100"]).binary(&first);
    let cluster = Arc::new(blocking(move || Cluster::start_with(3, setup)).await);
    let mut endpoints = cluster.endpoints();
    let (load, mut tasks, mut held) = (Arc::new(Load::default()), Tasks::new(), Vec::new());
    for engine in 0..2 {
        endpoints.rotate_left(1); // each engine begins at another member
        let config = Config::new(endpoints.clone()).ttl(TTL);
        let locks = connect(config.connect_timeout(CONNECT_TIMEOUT)).await;
        for name in 0..HELD {
            let lock = locks.lock(format!("held/{engine}/{name}"));
            held.push(take("a free name", lock).await);
        }
        for task in 0..TASKS {
            tasks.spawn(load.clone().run(locks.clone(), engine, task));
        }
    }
    load.more("before the restarts", &mut tasks).await;
    for (etcd, version) in then {
        let of = cluster.clone();
        let leader = blocking(move || of.await_leader()).await;
        for at in [leader + 1, leader + 2, leader].map(|at| at % 3) {
            let (member, etcd) = (cluster.members()[at].clone(), etcd.clone());
            let down = member.clone();
            blocking(move || down.terminate()).await;
            load.more("while a member is down", &mut tasks).await;
            blocking(move || member.restart_with(etcd)).await;
            load.more("after a member is back", &mut tasks).await;
        }
        let of = cluster.clone();
        let agree =
            move || version.is_none_or(|it| agreed(&of).is_some_and(|now| now.starts_with(it)));
        blocking(move || until("all members agree on the version", PATIENCE, agree)).await;
        load.more("after the restarts", &mut tasks).await;
    }
    assert!(load.calls.borrow().1 > 0, "both engines hold it");
    load.stop.store(true, Ordering::Relaxed);
    while let Some(ended) = within("the last calls", tasks.join_next()).await {
        ended.expect("no panic").expect("no call fails");
    }
    for guard in held {
        assert!(guard.is_held(), "{}", guard.name());
        guard.release().await.expect("its lock was never lost");
    }
}

#[limit::test]
async fn rolling_restart_costs_no_call_and_no_lock() {
    real_etcd_only!("embedded members share one store");
    rolls(binary::etcd(), vec![(binary::etcd(), None)]).await;
}

#[limit::test]
async fn upgrades_under_load_cost_no_call_and_no_lock() {
    real_etcd_only!("embedded members share one store");
    // Only in the run with the newest etcd, because the result does not depend on the etcd of the run.
    let etcds: Option<Vec<_>> = VERSIONS.into_iter().map(binary::etcd_of).collect();
    let newest = binary::etcd().canonicalize().ok();
    match etcds {
        Some(etcds) if etcds[2].canonicalize().ok() == newest => {
            let [first, second, third]: [PathBuf; 3] = etcds.try_into().expect("three");
            rolls(first, vec![(second, Some(VERSIONS[1])), (third, Some(VERSIONS[2]))]).await;
        }
        _ => {
            say_left_out("it runs with etcd 3.7, if `cargo xtask test` has built 3.5, 3.6 and 3.7")
        }
    }
}
