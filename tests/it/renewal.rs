//! Renewal: a lock is held for as long as its body runs, however short its TTL.

use std::time::Duration;

use etcd_locked::{LockError, current};
use tokio::time::{Instant, sleep_until};

use crate::corner::{Corner, admitted, pass, spawn, take};
use crate::limit;

const TTL: Duration = Duration::from_secs(5);

#[limit::test]
async fn a_lock_outlives_several_ttls() {
    let corner = Corner::new().await;
    let (mine, theirs) = (corner.locks_with_ttl(TTL).await, corner.locks().await);
    let held = mine.lock("reports/today").await.unwrap();
    let token = held.token();
    // A waiter's key is renewed as well, or the waiter would lose its place.
    let waits = corner.locks_with_ttl(TTL).await;
    let waiting = spawn(waits.lock("reports/today").wait_forever());
    let place = corner.until_contenders("reports/today", 2).await[1].clone();
    let result = held
        .hold(async {
            let started = Instant::now();
            for second in 1..=12 {
                // The body's work, several TTLs long.
                sleep_until(started + Duration::from_secs(second)).await;
                assert!(current().unwrap().is_held(), "lost after {second} s");
                let refused = theirs.lock("reports/today").try_once().await;
                assert!(
                    matches!(refused, Err(LockError::Held { .. })),
                    "after {second} s: {refused:?}"
                );
            }
        })
        .await;
    result.unwrap();
    assert!(held.is_held());
    assert_eq!(held.token(), token);
    assert_eq!(
        corner.contenders("reports/today").await[1],
        place,
        "the waiter has another key than at first"
    );
    held.release().await.unwrap();
    let next = admitted("the waiter", waiting).await.token();
    assert!(next > token, "{next} after {token}");
    corner.until_empty().await;
}

#[limit::test]
async fn many_locks_share_one_lease() {
    let (corner, [locks]) = Corner::with_engines().await;
    let mut held = Vec::new();
    for number in 0..50 {
        held.push(locks.lock(format!("orders/{number}")).await.unwrap());
    }
    let keys = corner.keys(&corner.prefix).await;
    let mut leases: Vec<i64> = keys.iter().map(|key| key.lease).collect();
    leases.dedup();
    assert_eq!(
        (keys.len(), leases.len()),
        (50, 1),
        "renewals must not grow with the locks"
    );
    drop(held);
    corner.until_empty().await;
}

#[limit::test]
async fn an_idle_engine_is_ready_after_many_ttls() {
    let corner = Corner::new().await;
    let locks = corner.locks_with_ttl(TTL).await;
    pass("a free name", locks.lock("reports/today")).await;
    // The idle time itself. The engine may or may not keep its lease meanwhile.
    tokio::time::sleep(3 * TTL).await;
    let held = take("a lock after a pause", locks.lock("reports/today")).await;
    assert_eq!(corner.contenders("reports/today").await.len(), 1);
    held.release().await.unwrap();
}
