//! Retention (`at_least`): a name stays locked after its body, even without the process that ran it.

use std::future::IntoFuture;
use std::time::{Duration, Instant};

use etcd_locked::{LockError, Locks, etcd_locked};

use crate::corner::Corner;
use crate::limit::{self, within};

const KEPT: Duration = Duration::from_secs(6);

#[etcd_locked("reports/<day>", locks = locks, at_least = "6s")]
async fn report(locks: &Locks, day: u64) -> Result<(), LockError> {
    Ok(())
}

#[limit::test]
async fn a_retained_key_stays_under_its_own_lease() {
    let (corner, [locks]) = Corner::with_engines().await;
    let held = locks.lock("reports/7").at_least(KEPT).await.unwrap();
    let before = corner.owner("reports/7").await;
    let began = Instant::now();
    held.release().await.unwrap();
    assert!(began.elapsed() < KEPT / 2, "the release waits");
    let after = corner.owner("reports/7").await;
    assert_eq!(after.created, before.created);
    assert_ne!(after.lease, before.lease);
    // It is not renewed, so nobody need be told how long it still has.
    let leases = locks.status();
    let leases: Vec<_> = leases.leases().iter().map(|it| it.id()).collect();
    assert_eq!(leases, [before.lease]);
    // The retained key does not depend on the lease that the engine renews.
    let mut client = corner.client.clone();
    client.lease_revoke(before.lease).await.unwrap();
    assert_eq!(corner.contenders("reports/7").await[0], after);
    let refused = locks.lock("reports/7").try_once().await;
    assert_matches!(refused, Err(LockError::Held { .. }));
    let next = locks.lock("reports/7").wait_forever().into_future();
    let next = within("the next call", next).await.unwrap();
    assert!(began.elapsed() > KEPT - Duration::from_millis(200));
    next.release().await.unwrap();
    corner.until_empty().await;
}

#[limit::test]
async fn retention_outlives_its_engine_until_its_end() {
    let (corner, [one, other]) = Corner::with_engines().await;
    let began = Instant::now();
    report(&one, 7).await.unwrap();
    one.shutdown(Duration::from_secs(1)).await;
    drop(one);
    corner.until_contenders("reports/7", 1).await;
    let next = other.lock("reports/7").wait_forever().into_future();
    let next = within("the next call", next).await.unwrap();
    let kept = began.elapsed();
    assert!(kept > KEPT - Duration::from_millis(200), "{kept:?}");
    assert!(kept < KEPT + Duration::from_secs(6), "{kept:?}");
    next.release().await.unwrap();
    corner.until_empty().await;
}

#[etcd_locked("mails/<region>", locks = locks, at_least = "6s", permits = 2)]
async fn send(locks: &Locks, region: &str) -> Result<(), LockError> {
    Ok(())
}

/// Two calls in six seconds, over all processes.
#[limit::test]
async fn retained_permits_are_a_rate() {
    let (corner, [one, other]) = Corner::with_engines().await;
    let began = Instant::now();
    send(&one, "eu").await.unwrap();
    send(&other, "eu").await.unwrap();
    assert!(began.elapsed() < KEPT / 2, "the first two calls wait");
    for locks in [&one, &other] {
        let refused = locks.lock("mails/eu").permits(2).try_once().await;
        assert_matches!(refused, Err(LockError::Held { .. }));
    }
    within("the third", send(&one, "eu")).await.unwrap();
    assert!(began.elapsed() > KEPT - Duration::from_millis(200));
    let shared = one.lock("mails/eu").shared().at_least(KEPT).await;
    assert_matches!(shared, Err(LockError::Config { .. }));
    corner.until_empty().await;
}
