//! Requests of idle locks: etcd gets as many for thousands of locks as for a hundred.

use std::collections::BTreeMap;
use std::time::Duration;

use etcd_locked::LockGuard;
use etcd_locked_devkit::http;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::corner::Corner;
use crate::etcd::Etcd;
use crate::limit::{self, blocking, within};
use crate::real_only::real_etcd_only;

const FEW: usize = 100;
const MANY: usize = 2_000;
/// More than twice the time after which a silent watch is checked.
const WINDOW: Duration = Duration::from_secs(12);
/// A window sees one check or renewal more or less, of each stream and session.
const NOISE: u64 = 10;
/// What an engine sends of its own accord. Renewals are counted elsewhere, by lease.
const METHODS: [&str; 3] = ["Range", "Txn", "Watch"];

/// What etcd has received so far of each kind.
async fn received(etcd: &Etcd) -> BTreeMap<&'static str, u64> {
    let address = etcd.address().parse().expect("an address");
    let page = blocking(move || http::get(address, "/metrics")).await.body;
    let count = |method: &str| -> u64 {
        let label = format!("grpc_method=\"{method}\"");
        page.lines()
            .filter(|line| line.starts_with("grpc_server_msg_received_total{"))
            .filter(|line| line.contains(&label))
            .map(|line| {
                let (_, count) = line.rsplit_once(' ').expect("a value");
                count.parse::<f64>().expect("a number") as u64
            })
            .sum()
    };
    METHODS.map(|method| (method, count(method))).into()
}

/// Takes locks, and awaits that the engine has opened every watch that it opens for them.
async fn hold(etcd: &Etcd, count: usize) -> Vec<LockGuard> {
    let locks = Corner::of(etcd).await.locks().await;
    let mut calls = JoinSet::new();
    for name in 0..count {
        let call = locks.lock(format!("idle/{name}")).wait_forever();
        calls.spawn(async move { call.await });
    }
    let mut held = Vec::new();
    while let Some(call) = within("every lock", calls.join_next()).await {
        held.push(call.expect("no panic").expect("a free name"));
    }
    within("no further watch", async {
        let mut before = None;
        loop {
            let watches = received(etcd).await.remove("Watch");
            if watches == before {
                return;
            }
            before = watches;
            // A holder watches its key after about a second.
            sleep(Duration::from_secs(2)).await;
        }
    })
    .await;
    held
}

/// What etcd receives within the window while so many locks are held.
async fn requests(count: usize) -> BTreeMap<&'static str, u64> {
    let etcd = Etcd::start().await;
    let held = hold(&etcd, count).await;
    let before = received(&etcd).await;
    sleep(WINDOW).await;
    let after = received(&etcd).await;
    assert!(held.iter().all(LockGuard::is_held), "a lock was lost");
    METHODS.map(|method| (method, after[method] - before[method])).into()
}

#[limit::test]
async fn requests_do_not_grow_with_locks_held() {
    real_etcd_only!("an embedded etcd has no metrics page");
    let (few, many) = tokio::join!(requests(FEW), requests(MANY));
    println!("{FEW} locks: {few:?}; {MANY} locks: {many:?}; in {WINDOW:?}");
    for method in METHODS {
        assert!(
            many[method] <= few[method] + NOISE,
            "{method}: {few:?} with {FEW} locks, {many:?} with {MANY}"
        );
    }
}
