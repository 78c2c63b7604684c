//! Upgrade of a cluster under load, from 3.5 to 3.6 and on to 3.7: each member goes on with the next version on the same data.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use etcd_locked::{Config, LockError, Locks, Token, current, etcd_locked};
use etcd_locked_devkit::{Cluster, Setup, binary, http, until};
use tokio::sync::{Mutex, watch};
use tokio::task::{JoinSet, yield_now};
use tokio::time::Instant;

use crate::corner::{connect, take};
use crate::limit::{self, PATIENCE, blocking, within};
use crate::real_only::{real_etcd_only, say_left_out};

const VERSIONS: [&str; 3] = ["3.5", "3.6", "3.7"];
/// The shortest TTL at which a change of leader may cost no lock.
const TTL: Duration = Duration::from_secs(10);
/// How long calls wait for etcd: where all tests run at once, an election may take longer than the five seconds of the default.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// Tasks of each engine for the hot name, and as many for cold names.
const TASKS: usize = 4;
/// Locks that each engine holds throughout.
const HELD: usize = 20;
/// Calls for the hot name, and for cold names, in each step.
const CALLS: u64 = 50;

/// What the lock of the hot name protects: its last holder.
#[derive(Debug, Default)]
struct Last {
    token: Option<Token>,
    engine: usize,
}

/// Calls that have ended.
#[derive(Debug, Default, Clone, Copy)]
struct Calls {
    hot: u64,
    cold: u64,
    /// Hot calls whose predecessor ran in the other engine.
    hand_overs: u64,
    longest: Duration,
}

type Tasks = JoinSet<Result<(), LockError>>;

/// Load on the cluster: what all tasks of both engines share.
#[derive(Debug, Default)]
struct Load {
    last: Mutex<Last>,
    calls: watch::Sender<Calls>,
    stop: AtomicBool,
}

/// Asserts that no other call holds the hot name and that tokens increase. Returns true if the other engine held it last.
#[etcd_locked("hot", locks = locks)]
async fn hot(locks: &Locks, load: &Load, engine: usize) -> Result<bool, LockError> {
    let mut last = load.last.try_lock().expect("no other holder");
    let token = current().map(|it| it.token());
    assert!(token > last.token, "{token:?} after {last:?}");
    let handed_over = last.engine != engine;
    *last = Last { token, engine };
    yield_now().await;
    Ok(handed_over)
}

/// Locks a name that no other call wants.
#[etcd_locked("cold/<engine>/<task>/<call>", locks = locks)]
async fn cold(locks: &Locks, engine: usize, task: usize, call: u64) -> Result<(), LockError> {
    yield_now().await;
    Ok(())
}

impl Load {
    async fn hot(self: Arc<Self>, locks: Locks, engine: usize) -> Result<(), LockError> {
        while !self.stop.load(Ordering::Relaxed) {
            let begun = Instant::now();
            let handed_over = hot(&locks, &self, engine).await?;
            self.note(begun, |calls| {
                calls.hot += 1;
                calls.hand_overs += u64::from(handed_over);
            });
        }
        Ok(())
    }

    async fn cold(
        self: Arc<Self>,
        locks: Locks,
        engine: usize,
        task: usize,
    ) -> Result<(), LockError> {
        let mut call = 0;
        while !self.stop.load(Ordering::Relaxed) {
            let begun = Instant::now();
            cold(&locks, engine, task, call).await?;
            self.note(begun, |calls| calls.cold += 1);
            call += 1;
        }
        Ok(())
    }

    fn note(&self, begun: Instant, count: impl Fn(&mut Calls)) {
        self.calls.send_modify(|calls| {
            count(calls);
            calls.longest = calls.longest.max(begun.elapsed());
        });
    }

    /// Awaits more calls for the hot name and for cold names; panics if a call fails.
    async fn more(&self, when: &str, tasks: &mut Tasks) {
        let mut calls = self.calls.subscribe();
        let before = *calls.borrow();
        let more =
            calls.wait_for(|now| now.hot >= before.hot + CALLS && now.cold >= before.cold + CALLS);
        tokio::select! {
            served = within(when, more) => drop(served.expect("the load goes on")),
            ended = tasks.join_next() => panic!("a call failed {when}: {ended:?}"),
        }
    }

    /// Returns the figures since the last call of this function.
    fn figures(&self) -> String {
        let it = self.calls.send_replace(Calls::default());
        format!(
            "{} hot calls, {} hand-overs between the engines, {} cold calls, the longest call {:.1?}",
            it.hot, it.hand_overs, it.cold, it.longest
        )
    }
}

/// Returns the etcd of each version, if the tests run with the last one: the result does not depend on their etcd.
fn etcds() -> Option<Vec<PathBuf>> {
    let etcds: Option<Vec<_>> = VERSIONS.into_iter().map(binary::etcd_of).collect();
    let newest = binary::etcd().canonicalize().ok();
    etcds.filter(|etcds| etcds.last().and_then(|last| last.canonicalize().ok()) == newest)
}

/// Returns the cluster version that the first member reports.
fn agreed(cluster: &Cluster) -> Option<String> {
    let version = http::get(cluster.members()[0].direct(), "/version").ok()?;
    let (_, agreed) = version.body.split_once("\"etcdcluster\":\"")?;
    Some(agreed.split('"').next()?.to_owned())
}

#[limit::test]
async fn upgrades_under_load_cost_no_call_and_no_lock() {
    real_etcd_only!("embedded members share one store");
    let Some(etcds) = etcds() else {
        let why = "it runs with etcd 3.7, if `cargo xtask test` has built 3.5, 3.6 and 3.7";
        say_left_out(why);
        return;
    };
    // etcd 3.7 panics at start on log entries of 3.5. etcd 3.6 replaces them with a snapshot, by default after 10,000 writes.
    let setup = Setup::default().flags(["--snapshot-count=100"]);
    let setup = setup.binary(&etcds[0]);
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
            tasks.spawn(load.clone().hot(locks.clone(), engine));
            tasks.spawn(load.clone().cold(locks.clone(), engine, task));
        }
    }
    load.more("before the upgrade", &mut tasks).await;
    println!("on {}: {}", VERSIONS[0], load.figures());

    for (version, etcd) in VERSIONS.into_iter().zip(etcds).skip(1) {
        let begun = Instant::now();
        let leader = blocking({
            let cluster = cluster.clone();
            move || cluster.await_leader()
        });
        let leader = leader.await;
        // The leader restarts last, so leadership moves only once.
        for at in [leader + 1, leader + 2, leader].map(|at| at % 3) {
            let (member, etcd) = (cluster.members()[at].clone(), etcd.clone());
            let down = member.clone();
            blocking(move || down.terminate()).await;
            load.more("while a member is down", &mut tasks).await;
            blocking(move || member.restart_with(etcd)).await;
            load.more("after a member is back", &mut tasks).await;
        }
        // etcd upgrades by one minor version at a time, so all members must agree on this one first.
        let cluster = cluster.clone();
        let agree = move || agreed(&cluster).is_some_and(|it| it.starts_with(version));
        blocking(move || until("all members agree on the version", PATIENCE, agree)).await;
        load.more("after the upgrade", &mut tasks).await;
        assert!(load.calls.borrow().hand_overs > 0, "both engines hold it");
        let (figures, took) = (load.figures(), begun.elapsed());
        let figures = format!("to {version} in {took:.1?}: {figures}");
        println!("{figures}");
    }

    load.stop.store(true, Ordering::Relaxed);
    while let Some(ended) = within("the last calls", tasks.join_next()).await {
        ended.expect("no panic").expect("no call fails");
    }
    println!("{} locks were held throughout", held.len());
    for guard in held {
        assert!(guard.is_held(), "{}", guard.name());
        guard.release().await.expect("its lock was never lost");
    }
}
