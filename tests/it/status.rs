//! Status of a process: what it holds and waits for, whether it reaches etcd, and whether it is ready.

use std::time::{Duration, SystemTime};

use etcd_locked::{LockError, LockStatus, Locks, Sharing, Status, etcd_locked};
use serde_json::json;
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::corner::{Corner, begin_shutdown, take};
use crate::limit::{self, within};

const TTL: Duration = Duration::from_secs(60);

#[etcd_locked("orders/<id>", locks = &locks)]
async fn ship(locks: Locks, id: u32, goes: &Notify) -> Result<(), LockError> {
    goes.notified().await;
    Ok(())
}

/// Awaits that the status is as wanted.
async fn until(what: &str, locks: &Locks, wanted: impl Fn(&Status) -> bool) -> Status {
    within(what, async {
        loop {
            let status = locks.status();
            if wanted(&status) {
                return status;
            }
            sleep(Duration::from_millis(20)).await; // not in a busy loop
        }
    })
    .await
}

fn texts(locks: &[LockStatus]) -> Vec<&str> {
    locks.iter().filter_map(|it| it.name().text()).collect()
}

#[limit::test]
async fn status_lists_what_calls_hold_and_wait_for() {
    let (corner, [locks]) = Corner::with_engines().await;
    let began = SystemTime::now() - Duration::from_secs(1);
    let (leaves, goes) = (Notify::new(), Notify::new());
    let calls =
        async { tokio::join!(ship(locks.clone(), 7, &leaves), ship(locks.clone(), 7, &goes)) };
    let watches = async {
        let status = until("holder and waiter", &locks, |it| {
            it.held().len() + it.waiting().len() == 2 && !it.held().is_empty()
        })
        .await;
        let (held, waiting) = (&status.held()[0], &status.waiting()[0]);
        for lock in [held, waiting] {
            assert_eq!(lock.name().text(), Some("orders/7"));
            assert_eq!(lock.template(), Some("orders/<id>"));
            let function = lock.function().expect("an annotated function");
            assert!(function.ends_with("status::ship"), "{function}");
            assert_eq!(lock.sharing(), Sharing::Exclusive);
            assert!(lock.since() >= began, "{lock:?}");
        }
        let token = held.token().expect("a token");
        assert_eq!(waiting.token(), None);
        assert!(status.ready() && status.reachable() && !status.draining());
        let [lease] = status.leases() else {
            panic!("{:?}", status.leases());
        };
        assert!(!lease.left().is_zero());
        assert_eq!(corner.leases("orders/7").await.into_iter().next(), Some(lease.id()));

        let shown = serde_json::to_value(&status).expect("it serializes");
        assert_eq!(shown["ready"], json!(true));
        assert_eq!(shown["held"][0]["token"], json!(token.as_i64()));
        assert_eq!(shown["waiting"][0]["name"], json!("orders/7"));
        assert_eq!(shown["waiting"][0]["mode"], json!("exclusive"));
        assert_eq!(shown["leases"][0]["id"], json!(format!("{:x}", lease.id())));

        leaves.notify_one();
        until("the waiter, served", &locks, |it| {
            it.waiting().is_empty() && it.held().iter().any(|it| it.token() > Some(token))
        })
        .await;
        goes.notify_one();
    };
    let ((one, other), ()) = within("both calls", async { tokio::join!(calls, watches) }).await;
    one.and(other).expect("both are served");
    let idle = locks.status();
    assert!(idle.held().is_empty() && idle.waiting().is_empty(), "{idle:?}");
}

#[limit::test]
async fn readiness_follows_etcd() {
    let (corner, proxy) = Corner::with_proxy().await;
    proxy.refuse();
    let config = corner.config_via([proxy.endpoint()]).ttl(TTL);
    let locks = Locks::connect_lazy(config).expect("a configuration");
    // The status itself connects the engine.
    let first = locks.status();
    assert!(!first.ready() && !first.reachable() && !first.draining());
    proxy.accept_again().expect("the same port");
    let ready = until("an answer of etcd", &locks, Status::ready).await;
    assert_eq!(ready.leases().len(), 0, "a status needs no lease");
    proxy.refuse();
    proxy.reset_all();
    let refused = within("a refusal", locks.lock("job")).await;
    refused.expect_err("etcd is out of reach");
    let lost = until("the loss of etcd", &locks, |it| !it.reachable()).await;
    assert!(!lost.ready());
    proxy.accept_again().expect("the same port");
    until("etcd, back", &locks, Status::ready).await;
}

#[limit::test]
async fn engine_that_shuts_down_is_not_ready() {
    let (_, [locks]) = Corner::with_engines().await;
    let held = take("a free name", locks.lock("job")).await;
    let shutdown = begin_shutdown(&locks, TTL);
    let draining = until("a shutdown", &locks, Status::draining).await;
    assert!(!draining.ready() && draining.reachable());
    assert_eq!(texts(draining.held()), ["job"], "it may still end");
    held.release().await.expect("released");
    within("the shutdown", shutdown).await.expect("no panic");
    let over = locks.status();
    assert!(!over.ready() && over.draining() && !over.reachable());
    assert!(over.held().is_empty() && over.leases().is_empty(), "{over:?}");
}
