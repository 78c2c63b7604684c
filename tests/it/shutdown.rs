//! Shutdown: it refuses new locks, waits for bodies, and leaves nothing in etcd.

use std::sync::Arc;
use std::time::Duration;

use etcd_locked::{LockError, Locks, etcd_locked};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::corner::{Corner, begin_shutdown, until_refused};
use crate::limit::{self, within};

const GRACE: Duration = Duration::from_secs(10);

#[etcd_locked("orders/<id>", locks = locks)]
async fn until(locks: &Locks, id: u64, inside: &Notify, done: &Notify) -> Result<u8, LockError> {
    inside.notify_one();
    done.notified().await;
    // A body that has begun may take the locks it needs to end.
    locks.lock("stock/9").await?.release().await?;
    Ok(7)
}

/// A call whose body is inside, and what lets it end.
async fn inside(locks: &Locks) -> (JoinHandle<Result<u8, LockError>>, Arc<Notify>) {
    let (inside, done) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let call = tokio::spawn({
        let (locks, inside, done) = (locks.clone(), inside.clone(), done.clone());
        async move { until(&locks, 7, &inside, &done).await }
    });
    within("the body inside", inside.notified()).await;
    (call, done)
}

/// Asserts that no key and none of these leases is left in etcd, long before they could expire.
async fn nothing_is_left(corner: &Corner, leases: &[i64]) {
    corner.until_empty().await;
    assert_eq!(corner.sessions().await, []);
    for lease in leases {
        assert!(!corner.lease_lives(*lease).await, "lease {lease:x} is still there");
    }
}

#[limit::test]
async fn a_shutdown_waits_for_bodies() {
    let (corner, [locks]) = Corner::with_engines().await;
    let (call, done) = inside(&locks).await;
    let leases: Vec<i64> = corner.leases("orders/7").await.into_iter().collect();
    let shutdown = begin_shutdown(&locks, GRACE);
    until_refused(&locks, "orders/8").await;
    assert!(!shutdown.is_finished(), "the shutdown did not wait for the body");
    assert_eq!(corner.contenders("orders/7").await.len(), 1);
    done.notify_one();
    assert_eq!(within("the call's end", call).await.unwrap().unwrap(), 7);
    within("the shutdown's end", shutdown).await.unwrap();
    nothing_is_left(&corner, &leases).await;
    let error = locks.lock("orders/8").await.unwrap_err();
    assert_matches!(error, LockError::ShuttingDown);
    assert!(!error.is_retryable());
}
