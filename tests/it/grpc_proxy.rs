//! gRPC proxies of etcd (`etcd grpc-proxy`): locks, waits, renewals and losses pass through them.

use std::future::pending;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use etcd_locked::{LockError, Locks};
use etcd_locked_devkit::{Direction, Process, Proxy, binary};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::corner::{Corner, admitted, connect, spawn, take};
use crate::etcd::{Etcd, free_port};
use crate::limit::{self, within, within_time};
use crate::real_only::real_etcd_only;

const TTL: Duration = Duration::from_secs(5);
const ROUNDS: usize = 25;
/// Time limit of all visits on a busy machine.
const VISITED: Duration = Duration::from_secs(40);

/// Process of a `grpc-proxy`, ended when dropped.
struct GrpcProxy {
    endpoint: String,
    _process: Process,
}

impl GrpcProxy {
    /// Starts one in front of the etcd at this address.
    async fn start(etcd: &str) -> GrpcProxy {
        let address = format!("127.0.0.1:{}", free_port());
        let mut command = Command::new(binary::etcd());
        command
            .args(["grpc-proxy", "start", "--endpoints", etcd])
            .args(["--listen-addr", &address])
            .args(["--advertise-client-url", &address]) // etcd 3.5.30 ends a proxy that does not reach itself there
            .env("ETCD_UNSUPPORTED_ARCH", "arm64") // etcd 3.4 requires this on arm64, and ignores it elsewhere
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let process = Process::start("grpc-proxy", &mut command).expect("a proxy");
        within("a proxy that listens", async {
            while TcpStream::connect(&address).await.is_err() {
                sleep(Duration::from_millis(20)).await; // not in a busy loop
            }
        })
        .await;
        GrpcProxy { endpoint: format!("http://{address}"), _process: process }
    }
}

/// Locks one name repeatedly; no other body may be inside.
async fn visits(locks: Locks, inside: Arc<AtomicUsize>) {
    for _ in 0..ROUNDS {
        let guard = locks.lock("hot").wait_forever().await.expect("served");
        let others = inside.fetch_add(1, Ordering::SeqCst);
        tokio::task::yield_now().await;
        inside.fetch_sub(1, Ordering::SeqCst);
        assert_eq!(others, 0, "two bodies at once");
        guard.release().await.expect("a release");
    }
}

#[limit::test]
async fn locks_work_behind_the_grpc_proxies_of_etcd() {
    real_etcd_only!("an embedded etcd has no gRPC proxy");
    let etcd = Etcd::start().await;
    let corner = Corner::of(&etcd).await;
    let address = etcd.address();
    let (first, second) = (GrpcProxy::start(&address).await, GrpcProxy::start(&address).await);
    let one = connect(corner.config_via([first.endpoint.clone()]).ttl(TTL)).await;
    let two = connect(corner.config_via([second.endpoint.clone()]).ttl(TTL)).await;
    let both = corner.config_via([first.endpoint.clone(), second.endpoint.clone()]);
    let both = connect(both.ttl(TTL)).await;
    let direct = corner.locks_with_ttl(TTL).await;

    let inside = Arc::new(AtomicUsize::new(0));
    let mut tasks = JoinSet::new();
    for locks in [&one, &two, &both, &direct] {
        tasks.spawn(visits(locks.clone(), inside.clone()));
    }
    while let Some(ended) = within_time(VISITED, "every visit", tasks.join_next()).await {
        ended.expect("no panic");
    }

    // A waiter is admitted by its watch, and a holder outlives its first lease.
    let held = take("a free name", one.lock("reports/today")).await;
    let waiter = spawn(two.lock("reports/today").wait_forever());
    corner.until_contenders("reports/today", 2).await;
    sleep(TTL + Duration::from_secs(1)).await;
    assert!(held.is_held(), "renewals do not arrive");
    held.release().await.expect("a release");
    let next = admitted("the waiter", waiter).await;

    // The loss of a key passes as an event.
    let body = tokio::spawn(async move { next.hold(pending::<()>()).await });
    sleep(Duration::from_secs(2)).await; // by then a holder watches its key
    corner.take_away("reports/today").await;
    // Without an event, the holder would notice it only within a minute, by the list of its lease's keys.
    let lost = within("the loss", body).await.expect("no panic");
    assert_matches!(lost, Err(LockError::Lost { .. }));
}

/// A renewal may get the proxy's response to an earlier one.
#[limit::test]
async fn late_response_counts_from_the_oldest_renewal_without_one() {
    real_etcd_only!("an embedded etcd has no gRPC proxy");
    let etcd = Etcd::start().await;
    let corner = Corner::of(&etcd).await;
    let line = Proxy::start(etcd.address()).expect("a proxy");
    let grpc_proxy = GrpcProxy::start(&line.address().to_string()).await;
    let config = corner.config_via([grpc_proxy.endpoint.clone()]);
    let held = take("a free name", connect(config.ttl(TTL * 2)).await.lock("till")).await;
    let waiter = spawn(corner.locks().await.lock("till").wait_forever());
    let lease = corner.until_contenders("till", 2).await[0].lease;
    let body = tokio::spawn(async move { held.hold(pending::<()>()).await });

    line.freeze(Direction::Answers);
    let left = async || {
        let left = corner.client.clone().lease_time_to_live(lease, None).await;
        left.expect("etcd answers the test's own client").ttl()
    };
    let (mut before, mut now) = (i64::MAX, left().await);
    while now <= before {
        sleep(Duration::from_millis(20)).await; // until a renewal reaches etcd
        (before, now) = (now, left().await);
    }
    // A connection that is opened for the renewal is checked too.
    sleep(Duration::from_millis(1200)).await;
    line.cut(Direction::Requests);
    sleep(Duration::from_secs(4)).await; // later renewals are lost on their way
    line.thaw();
    let _next = admitted("the waiter", waiter).await;
    assert!(body.is_finished(), "two bodies at once");
    let lost = within("the loss", body).await.expect("no panic");
    assert_matches!(lost, Err(LockError::Lost { .. }));
}
