//! Conditional locks (`when`): the lock is acquired only if the condition holds.

use etcd_locked::{LockError, Locks, etcd_locked};

use crate::corner::{Corner, take};
use crate::current::text;
use crate::limit;

#[etcd_locked("orders/<id>", locks = locks, wait = "none", when = *total > 100)]
async fn order(locks: &Locks, id: u64, total: &u64) -> Result<Option<String>, LockError> {
    tokio::task::yield_now().await;
    Ok(text())
}

#[limit::test]
async fn without_the_condition_nothing_is_taken() {
    let (corner, [mine, theirs]) = Corner::with_engines().await;
    let held = take("their lock", theirs.lock("orders/7")).await;
    assert_eq!(order(&mine, 7, &100).await.unwrap(), None);
    let refused = order(&mine, 7, &101).await;
    assert_matches!(refused, Err(LockError::Held { .. }));
    held.release().await.unwrap();
    let locked = order(&mine, 7, &101).await.unwrap();
    assert_eq!(locked.as_deref(), Some("orders/7"));
    // The caller's lock stays the current one.
    let outer = take("another lock", mine.lock("outer")).await;
    let seen = outer.hold(order(&mine, 7, &0)).await.unwrap();
    assert_eq!(seen.unwrap().as_deref(), Some("outer"));
    outer.release().await.unwrap();
    corner.until_empty().await;
}

/// A call whose condition is false, so that it needs no engine.
#[etcd_locked("orders/<id>", when = false, max_hold = "1ms", on_lost = "continue")]
async fn never(id: u64) -> Result<u64, LockError> {
    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    Ok(id)
}

#[limit::test]
async fn without_the_condition_no_engine_is_needed() {
    // This process has no global engine; each test has its own.
    assert!(etcd_locked::lock("orders/7").await.is_err());
    assert_eq!(never(7).await.unwrap(), 7);
}
