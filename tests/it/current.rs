//! Current lock (`current()`): a body knows the lock it runs under; outside a body there is none.

use etcd_locked::{Current, LockError, Locks, current, etcd_locked};
use tokio::sync::Barrier;

use crate::corner::Corner;
use crate::limit::{self, within};
use crate::under::with_locks;

/// Returns the name of the lock under which the calling code runs.
pub(crate) fn text() -> Option<String> {
    current().map(|it| it.name().text().expect("held, hence valid").to_owned())
}

#[etcd_locked("orders/<id>", locks = locks)]
async fn order(locks: &Locks, id: u64) -> Result<Current, LockError> {
    tokio::task::yield_now().await;
    Ok(current().expect("inside"))
}

/// Meets another body inside; then their polls alternate. Inside, each locks a separate name.
#[etcd_locked("orders/<id>", locks = locks)]
async fn meet(locks: &Locks, id: u64, barrier: &Barrier) -> Result<(), LockError> {
    barrier.wait().await;
    let own = Some(format!("orders/{id}"));
    for _ in 0..10 {
        assert_eq!(text(), own);
        tokio::task::yield_now().await;
    }
    let inner = order(locks, id + 10).await?;
    assert_eq!((inner.name().text(), text()), (Some(&*format!("orders/{}", id + 10)), own));
    let spawned = tokio::spawn(async { text() }).await;
    assert_eq!(spawned.expect("no panic"), None, "a spawned task knows no lock");
    Ok(())
}

#[etcd_locked("orders/<id>", locks = locks)]
async fn twice(locks: &Locks, id: u64) -> Result<(), LockError> {
    // The inner call wants the lock that this body holds.
    order(locks, id).await.map(|_| ())
}

#[test]
fn a_body_knows_its_lock() {
    with_locks(async |locks| {
        assert!(current().is_none());
        let inside = order(locks, 42).await.unwrap();
        assert_eq!(inside.name().text(), Some("orders/42"));
        assert_eq!(inside.template(), Some("orders/<id>"));
        assert!(current().is_none(), "the call is over");
        assert!(!inside.is_held(), "a `Current` outside its body claims that the lock is held");
        // A guard's body has no template.
        let held = locks.lock("orders/42").await.unwrap();
        let inside = held.hold(async { current().unwrap() }).await.unwrap();
        assert_eq!((inside.template(), inside.name().text()), (None, Some("orders/42")));
        assert!(current().is_none(), "holding a guard is not being in a body");
        assert!(inside.is_held());
        held.release().await.unwrap();
    });
}

#[test]
fn joined_and_nested_bodies_know_each_its_own() {
    with_locks(async |locks| {
        let barrier = Barrier::new(2);
        let joined = async { tokio::try_join!(meet(locks, 1, &barrier), meet(locks, 2, &barrier)) };
        within("both branches", joined).await.unwrap();
        assert!(current().is_none());
    });
}

#[limit::test]
async fn a_body_that_wants_its_own_lock_is_refused() {
    let (corner, [locks]) = Corner::with_engines().await;
    let error = within("a refusal instead of a hang", twice(&locks, 42)).await.unwrap_err();
    assert_matches!(error, LockError::SelfDeadlock { .. });
    assert!(!error.is_retryable());
    // A nested call under a guard.
    let held = locks.lock("orders/42").await.unwrap();
    let inner = held.hold(async { locks.lock("orders/42").await.map(drop) });
    let inner = within("a refusal instead of a hang", inner).await.unwrap();
    assert_matches!(inner, Err(LockError::SelfDeadlock { .. }));
    held.release().await.unwrap();
    // A joined sibling waits.
    let siblings = async { tokio::try_join!(order(&locks, 42), order(&locks, 42)) };
    let (one, other) = within("both branches", siblings).await.unwrap();
    assert_ne!(one.token(), other.token());
    corner.until_empty().await;
}
