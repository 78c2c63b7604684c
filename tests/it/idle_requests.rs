//! Requests of idle locks: etcd gets as many requests for thousands of locks as for a hundred.

use std::time::Duration;

use etcd_locked::LockGuard;
use etcd_locked_devkit::http;
use tokio::time::sleep;

use crate::corner::{Corner, take};
use crate::etcd::Etcd;
use crate::limit::{self, blocking};
use crate::real_only::real_etcd_only;

const FEW: usize = 100;
const MANY: usize = 2_000;
/// More than twice the time after which a silent watch is checked.
const WINDOW: Duration = Duration::from_secs(12);
/// A window may contain one check more or less of each stream and session.
const NOISE: u64 = 20;
/// Requests that an engine sends without a call. Renewals are counted elsewhere, by lease.
const METHODS: [&str; 3] = ["=\"Range\"", "=\"Txn\"", "=\"Watch\""];

/// Returns the number of requests that etcd has received so far.
async fn received(etcd: &Etcd) -> u64 {
    let address = etcd.address().parse().expect("an address");
    let page = blocking(move || http::get(address, "/metrics")).await.body;
    let received = page.lines().filter(|it| it.starts_with("grpc_server_msg_received_total{"));
    let own = received.filter(|line| METHODS.iter().any(|method| line.contains(method)));
    let counts = own.map(|line| line.rsplit(' ').next().expect("a value").parse::<f64>());
    counts.map(|count| count.expect("a number") as u64).sum()
}

/// Returns the number of requests that etcd receives within the window while `count` locks are held.
async fn requests(count: usize) -> u64 {
    let etcd = Etcd::start().await;
    let locks = Corner::of(&etcd).await.locks().await;
    let mut held = Vec::new();
    for name in 0..count {
        held.push(take("a free name", locks.lock(format!("idle/{name}"))).await);
    }
    // A holder writes its record and watches its key after about a second.
    sleep(Duration::from_secs(5)).await;
    let before = received(&etcd).await;
    sleep(WINDOW).await;
    let after = received(&etcd).await;
    assert!(held.iter().all(LockGuard::is_held), "a lock was lost");
    after - before
}

#[limit::test]
async fn requests_do_not_grow_with_locks_held() {
    real_etcd_only!("an embedded etcd has no metrics page");
    let (few, many) = tokio::join!(requests(FEW), requests(MANY));
    assert!(many <= few + NOISE, "{few} with {FEW} locks, {many} with {MANY}, in {WINDOW:?}");
}
