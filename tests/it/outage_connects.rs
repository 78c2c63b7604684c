//! Connects while etcd is down: few a second, whatever the engine has to tell etcd.

use std::time::Duration;

use etcd_locked::{LockError, Locks, etcd_locked};
use etcd_locked_devkit::Proxy;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::corner::{Corner, connect};
use crate::etcd::Etcd;
use crate::limit::{self, within};

const TASKS: u64 = 20;
/// Of all tasks and purposes of one engine together.
const CONNECTS_A_SECOND: u64 = 50;
const SECONDS: u64 = 3;
const CONNECT: Duration = Duration::from_secs(2);
/// Of a nested call: longer than it takes until it is published, and etcd is down.
const WAIT: Duration = Duration::from_secs(6);
/// Long enough that the locks outlast the outage.
const TTL: Duration = Duration::from_secs(60);

#[etcd_locked("own/<task>", locks = &locks)]
async fn nested(locks: Locks, task: u64, signs: Signs) -> Result<(), LockError> {
    let mut over = signs.over.subscribe();
    signs.inside.send_modify(|inside| *inside += 1);
    let waited = locks.lock("hot").wait(WAIT).await;
    let refused = matches!(waited, Err(LockError::Backend { .. } | LockError::Timeout { .. }));
    assert!(refused, "{waited:?}");
    // The outer lock is kept, and what etcd has of it says that this task still waits.
    signs.refused.send_modify(|refused| *refused += 1);
    let _ = over.wait_for(|over| *over).await;
    Ok(())
}

/// What bodies and the test tell each other.
#[derive(Clone)]
struct Signs {
    inside: watch::Sender<u64>,
    refused: watch::Sender<u64>,
    over: watch::Sender<bool>,
}

async fn all(what: &str, count: &watch::Sender<u64>) {
    let mut count = count.subscribe();
    let all = count.wait_for(|count| *count == TASKS);
    within(what, all).await.expect("the test has a sender");
}

#[limit::test]
async fn connects_are_few_while_nested_calls_wait_for_etcd() {
    let mut etcd = Etcd::start().await;
    let corner = Corner::of(&etcd).await;
    let proxy = Proxy::start(etcd.address()).expect("a proxy");
    let config = corner.config_via([proxy.endpoint()]);
    let locks = connect(config.ttl(TTL).connect_timeout(CONNECT)).await;
    let elsewhere = corner.locks_with_ttl(TTL).await;
    let hot = within("the hot name", elsewhere.lock("hot")).await.unwrap();

    let signs = Signs {
        inside: watch::Sender::new(0),
        refused: watch::Sender::new(0),
        over: watch::Sender::new(false),
    };
    let mut bodies = JoinSet::new();
    for task in 0..TASKS {
        bodies.spawn(nested(locks.clone(), task, signs.clone()));
    }
    all("every body inside", &signs.inside).await;
    corner.until_contenders("hot", 2).await;
    // A nested call that has waited for a second is published to other processes.
    sleep(Duration::from_secs(2)).await;

    etcd.kill();
    let waiting = count(&proxy, "while they wait").await;
    all("every call refused", &signs.refused).await;
    let refused = count(&proxy, "when they have been refused").await;
    etcd.start_again().await;
    signs.over.send_replace(true);
    let most = CONNECTS_A_SECOND * SECONDS;
    assert!(
        waiting <= most && refused <= most,
        "{waiting} and {refused} connects, each in {SECONDS} s"
    );
    while let Some(end) = within("a body's end", bodies.join_next()).await {
        end.expect("no panic").expect("its lock outlasts the outage");
    }
    hot.release().await.unwrap();
    corner.until_empty().await;
}

/// How many connects come within the next seconds.
async fn count(proxy: &Proxy, when: &str) -> u64 {
    let before = proxy.connections();
    sleep(Duration::from_secs(SECONDS)).await;
    let count = proxy.connections() - before;
    println!("{count} connects {when}, in {SECONDS} s");
    count
}
