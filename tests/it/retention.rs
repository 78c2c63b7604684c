//! Retention (`at_least`): a name stays locked after its body, on a lease of its own.

use std::future::IntoFuture;
use std::time::{Duration, Instant};

use etcd_locked::LockError;

use crate::corner::Corner;
use crate::limit::{self, within};

const KEPT: Duration = Duration::from_secs(6);

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
    let shared = locks.lock("reports/7").shared().at_least(KEPT).await;
    assert_matches!(shared, Err(LockError::Config { .. }));
    corner.until_empty().await;
}
