//! `current()`: a body knows the lock it runs under; outside a body there is none.

use std::time::Duration;

use etcd_locked::{Current, LockError, Locks, Token, current, etcd_locked};
use tokio::sync::Barrier;

use crate::corner::Corner;
use crate::limit::{self, within};

fn text() -> Option<String> {
    current().map(|it| it.name().text().expect("held, hence valid").to_owned())
}

#[etcd_locked("orders/<id>", locks = locks)]
async fn order(locks: &Locks, id: u64) -> Result<(Current, Token), LockError> {
    let current = current().expect("inside");
    tokio::task::yield_now().await;
    let token = current.token();
    Ok((current, token))
}

#[etcd_locked("orders/<id>", locks = locks)]
async fn nested(locks: &Locks, id: u64) -> Result<Vec<Option<String>>, LockError> {
    let before = text();
    let inner = stock(locks, 9).await?;
    Ok(vec![before, inner, text()])
}

#[etcd_locked("stock/<sku>", locks = locks)]
async fn stock(locks: &Locks, sku: u32) -> Result<Option<String>, LockError> {
    tokio::task::yield_now().await;
    Ok(text())
}

#[etcd_locked("orders/<id>", locks = locks)]
async fn meet(locks: &Locks, id: u64, barrier: &Barrier) -> Result<Option<String>, LockError> {
    // Both bodies are inside at once, and their polls alternate.
    barrier.wait().await;
    for _ in 0..10 {
        assert_eq!(text(), Some(format!("orders/{id}")));
        tokio::task::yield_now().await;
    }
    Ok(text())
}

#[etcd_locked("orders/<id>", locks = locks)]
async fn spawning(locks: &Locks, id: u64) -> Result<Option<String>, LockError> {
    Ok(tokio::spawn(async { text() }).await.expect("no panic"))
}

#[etcd_locked("orders/<id>", locks = locks)]
async fn twice(locks: &Locks, id: u64) -> Result<(), LockError> {
    // The inner call wants the lock that this body holds.
    order(locks, id).await.map(|_| ())
}

#[limit::test]
async fn a_body_knows_its_lock() {
    let (_, [locks]) = Corner::with_engines().await;
    assert!(current().is_none());
    let (inside, token) = order(&locks, 42).await.unwrap();
    assert_eq!(inside.name().text(), Some("orders/42"));
    assert_eq!(inside.template(), Some("orders/<id>"));
    assert_eq!(inside.token(), token);
    assert!(current().is_none(), "the call is over");
    assert!(!inside.is_held(), "a `Current` outside its body claims that the lock is still held");
}

#[limit::test]
async fn a_lock_without_a_template_has_none() {
    let held = Corner::new().await.locks().await.lock("orders/42").await.unwrap();
    let inside = held.hold(async { current().unwrap() }).await.unwrap();
    assert_eq!((inside.template(), inside.name().text()), (None, Some("orders/42")));
    assert!(current().is_none(), "holding a guard is not being in a body");
    assert!(inside.is_held());
    held.release().await.unwrap();
}

#[limit::test]
async fn the_inner_of_two_locks_is_the_current_one() {
    let locks = Corner::new().await.locks().await;
    let seen = within("the nested call", nested(&locks, 1)).await.unwrap();
    let expected = ["orders/1", "stock/9", "orders/1"].map(|it| Some(it.to_owned()));
    assert_eq!(seen, expected);
}

#[limit::test]
async fn joined_branches_know_each_its_own() {
    let locks = Corner::new().await.locks().await;
    let barrier = Barrier::new(2);
    let joined = async { tokio::join!(meet(&locks, 1, &barrier), meet(&locks, 2, &barrier)) };
    let (one, two) = within("both branches", joined).await;
    assert_eq!(one.unwrap().as_deref(), Some("orders/1"));
    assert_eq!(two.unwrap().as_deref(), Some("orders/2"));
    assert!(current().is_none());
}

#[limit::test]
async fn a_spawned_task_knows_none() {
    let locks = Corner::new().await.locks().await;
    assert_eq!(within("the call", spawning(&locks, 1)).await.unwrap(), None);
}

#[limit::test]
async fn a_body_that_wants_its_own_lock_is_refused() {
    let (corner, [locks]) = Corner::with_engines().await;
    let error = within("a refusal instead of a hang", twice(&locks, 42)).await.unwrap_err();
    assert_matches!(error, LockError::SelfDeadlock { .. });
    assert!(!error.is_retryable());
    // The same under a guard.
    let held = locks.lock("orders/42").await.unwrap();
    let inner = held.hold(async { locks.lock("orders/42").await.map(drop) });
    let inner = within("a refusal instead of a hang", inner).await.unwrap();
    assert_matches!(inner, Err(LockError::SelfDeadlock { .. }));
    held.release().await.unwrap();
    corner.until_empty().await;
}

#[limit::test]
async fn a_joined_sibling_that_wants_the_same_lock_waits() {
    let (corner, [locks]) = Corner::with_engines().await;
    let joined = async { tokio::join!(order(&locks, 42), order(&locks, 42)) };
    let (one, two) = within("both branches", joined).await;
    assert_ne!(one.unwrap().1, two.unwrap().1);
    tokio::time::timeout(Duration::from_secs(5), corner.until_empty()).await.unwrap();
}
