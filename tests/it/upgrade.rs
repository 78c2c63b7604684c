//! Upgrade of a cluster under load: each member goes on with a newer etcd on the same data, and no call fails.

use std::env;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use etcd_client::Client;
use etcd_locked::{Config, LockError, Locks};
use etcd_locked_devkit::Cluster;
use etcd_locked_tests::Witness;
use tempfile::TempDir;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{Instant, interval};

use crate::corner::connect;
use crate::drill::Drill;
use crate::limit::{self, within, within_time};
use crate::real_only::real_etcd_only;
use crate::worker::Worker;

/// The shortest TTL at which a change of leader may cost no lock.
const TTL: Duration = Duration::from_secs(10);
/// How long calls wait for etcd: where all tests run at once, an election may take longer than the five seconds of the default.
const PATIENCE: Duration = Duration::from_secs(15);
const WORKERS: usize = 3;
const COLD_TASKS: usize = 4;
/// Calls for each kind of name after each step.
const CALLS: u64 = 100;
/// How long a member takes to stop, to start as a newer etcd, and to find its leader.
const REPLACED: Duration = Duration::from_secs(40);

/// Returns the etcd to which the members are upgraded, if one is at hand.
fn newer() -> Option<PathBuf> {
    let newer = env::var_os("ETCD_NEWER").map(PathBuf::from);
    if newer.is_none() {
        // Not `eprintln!`: the test harness captures it, and shows nothing of a test that passes.
        let _ = writeln!(
            io::stderr(),
            "test upgrade::… left out: no newer etcd is at hand; ETCD_NEWER names one"
        );
    }
    newer
}

/// Locks a name that no other call wants, again and again.
async fn cold(
    locks: Locks,
    task: usize,
    calls: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
) -> Result<(), LockError> {
    for call in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let guard = locks.lock(format!("cold/{task}/{call}")).await?;
        guard.release().await?;
        calls.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

async fn version(endpoint: &str) -> String {
    let client = Client::connect([endpoint], None).await;
    let status = client.expect("etcd answers").status().await;
    status.expect("a status").version().to_owned()
}

#[limit::test]
async fn an_upgrade_under_load_fails_no_call() {
    real_etcd_only!("embedded members share one store");
    let mut drill = Drill::begin(
        "upgrade of three members to the next newer etcd, one by one, while hot and cold names are locked; TTL 10 s, connect time-out 15 s",
    );
    let Some(newer) = newer() else {
        return drill.leave_out("no newer etcd at hand");
    };
    let cluster = spawn_blocking(|| Cluster::start(3))
        .await
        .expect("no panic");
    let cluster = cluster.expect("a cluster");
    let endpoints = cluster.endpoints();
    let before = version(&endpoints[0]).await;

    let environment = [
        ("ETCD_LOCKED_ENDPOINTS", endpoints.join(",")),
        ("ETCD_LOCKED_TTL", format!("{}s", TTL.as_secs())),
        (
            "ETCD_LOCKED_CONNECT_TIMEOUT",
            format!("{}s", PATIENCE.as_secs()),
        ),
    ];
    let start = || Worker::start(environment.clone().into_iter().chain(drill.environment()));
    let mut holder = start();
    holder.asked("work held", "held").await;
    let directory = TempDir::new().unwrap();
    let witness = Witness::new(directory.path());
    let mut workers: Vec<_> = (0..WORKERS).map(|_| start()).collect();
    for worker in &mut workers {
        worker.send(&format!("tally hot {}", directory.path().display()));
    }
    let config = Config::new(endpoints.clone())
        .ttl(TTL)
        .connect_timeout(PATIENCE);
    let locks = connect(config).await;
    let (calls, stop) = (
        Arc::new(AtomicU64::new(0)),
        Arc::new(AtomicBool::new(false)),
    );
    let mut tasks = JoinSet::new();
    for task in 0..COLD_TASKS {
        tasks.spawn(cold(locks.clone(), task, calls.clone(), stop.clone()));
    }
    let more = async |when: &str| {
        let (hot, cold) = (
            witness.count().unwrap_or(0) + CALLS,
            calls.load(Ordering::Relaxed) + CALLS,
        );
        let mut tick = interval(Duration::from_millis(10));
        within(when, async {
            // A count that is just being written cannot be read.
            while witness.count().unwrap_or(0) < hot || calls.load(Ordering::Relaxed) < cold {
                tick.tick().await;
            }
        })
        .await;
    };
    more("calls before the upgrade").await;

    // The leader last, so that no member is asked to lead twice.
    let leader = cluster.await_leader().expect("a leader");
    for at in [leader + 1, leader + 2, leader].map(|at| at % 3) {
        let member = cluster.members()[at].clone();
        let which = if at == leader {
            "the leader"
        } else {
            "a follower"
        };
        let stopped = Instant::now();
        let terminated = spawn_blocking({
            let member = member.clone();
            move || member.terminate()
        });
        terminated.await.expect("no panic").expect("etcd ends");
        more("calls while a member is down").await;
        drill.took_longest(
            &format!("{CALLS} calls for hot and for cold names, since {which} was asked to end"),
            stopped.elapsed(),
        );
        let binary = newer.clone();
        let replaced = spawn_blocking(move || member.restart_with(binary));
        let replaced = within_time(REPLACED, "a member that is newer", replaced).await;
        replaced
            .expect("no panic")
            .expect("a newer etcd on the same data");
        more("calls after a member is back").await;
    }
    let mut after = Vec::new();
    for endpoint in &endpoints {
        after.push(version(endpoint).await);
    }
    assert!(
        after.iter().all(|it| *it == after[0] && *it != before),
        "{before}: {after:?}"
    );

    stop.store(true, Ordering::Relaxed);
    while let Some(ended) = within("the last call", tasks.join_next()).await {
        let ended = ended.expect("no panic");
        ended.unwrap_or_else(|error| panic!("a call for a cold name failed: {error:?}"));
    }
    let mut visits = 0;
    for worker in &mut workers {
        let tallied = worker.asked("done hot", "tallied").await;
        let count = tallied
            .strip_prefix("hot ")
            .and_then(|count| count.parse::<u64>().ok());
        visits += count.unwrap_or_else(|| panic!("a call for the hot name failed: {tallied}"));
    }
    assert_eq!(witness.count().unwrap(), visits, "an update was lost");
    assert_eq!(
        holder
            .unread()
            .into_iter()
            .find(|line| !line.starts_with("polled ")),
        None,
        "the long holder"
    );
    holder.asked("done held", "released").await;
    drill.got(format!(
        "from {before} to {}: no error, no update lost",
        after[0]
    ));
    drill.got("a long holder: its lock");
    drill.end();
}
