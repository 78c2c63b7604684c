//! Reentrant calls (`reentrant`): a call uses the lock that its task already holds. The outer body keeps the lock.

use std::future::{Future, pending, poll_fn};
use std::task::Poll;
use std::time::Duration;

use etcd_locked::{Group, LockError, LockGuard, Locks, LossCause, Token, current, etcd_locked};
use tokio::sync::{Barrier, Notify};

use crate::corner::{Corner, begin_shutdown, pass, until_refused};
use crate::limit::{self, within};

const PATIENCE: Duration = Duration::from_secs(5);

fn inside() -> (String, Token) {
    let lock = current().expect("inside");
    assert!(lock.is_held());
    let name = lock.name().text().expect("held, hence valid");
    (name.to_owned(), lock.token())
}

#[etcd_locked("orders/<id>", locks = locks, wait = "5s", reentrant)]
async fn order(locks: &Locks, id: u64) -> Result<(String, Token), LockError> {
    tokio::task::yield_now().await;
    Ok(inside())
}

#[etcd_locked("orders/<id>", locks = locks)]
async fn outer(
    locks: &Locks,
    id: u64,
    then: impl AsyncFnOnce() -> Result<(), LockError>,
) -> Result<(), LockError> {
    then().await?;
    assert!(current().is_some_and(|lock| lock.is_held()));
    Ok(())
}

#[limit::test]
async fn a_reentrant_call_sends_nothing_to_etcd() {
    let (corner, [mine, theirs]) = Corner::with_engines().await;
    let body = async || {
        let outer = inside();
        let before = corner.revision().await;
        for _ in 0..3 {
            assert_eq!(order(&mine, 7).await?, outer);
        }
        assert_eq!(corner.changes_after(before).await, 0);
        // The end of the inner calls has not released the lock.
        let refused = theirs.lock("orders/7").try_once().await;
        assert_matches!(refused, Err(LockError::Held { .. }));
        // Another name is acquired as usual.
        assert_eq!(order(&mine, 8).await?.0, "orders/8");
        Ok(())
    };
    within("the calls", outer(&mine, 7, body)).await.unwrap();
    pass("the next lock", theirs.lock("orders/7")).await;
    // Without an outer lock the call acquires one itself.
    assert_eq!(order(&mine, 7).await.unwrap().0, "orders/7");
    corner.until_empty().await;
}

#[limit::test]
async fn a_guard_is_reentrant_too() {
    let (corner, [locks]) = Corner::with_engines().await;
    let body = async || {
        let again = locks.lock("orders/7").reentrant().await?;
        assert_eq!((again.name().text(), again.token()), (Some("orders/7"), inside().1));
        assert_eq!(again.hold(async { inside() }).await?, inside());
        again.release().await?;
        // A hold limit applies to the bodies of the inner guard.
        let limited = locks.lock("orders/7").max_hold(Duration::from_millis(50));
        let ended = limited.reentrant().await?.hold(pending::<()>()).await;
        assert_matches!(ended, Err(LockError::HoldLimit { .. }));
        // A held name does not need a wait, so neither a deadline nor a shutdown refuses the call.
        let past = std::time::Instant::now();
        drop(locks.lock("orders/7").wait_until(past).reentrant().await?);
        let shutdown = begin_shutdown(&locks, PATIENCE);
        let outside = locks.clone();
        tokio::spawn(async move { until_refused(&outside, "orders/9").await }).await.unwrap();
        drop(locks.lock("orders/7").reentrant().await?);
        drop(shutdown);
        Ok(())
    };
    within("the calls", outer(&locks, 7, body)).await.unwrap();
    corner.until_empty().await;
}

#[etcd_locked("orders/<id>", locks = locks, on_lost = "continue")]
async fn lost(locks: &Locks, id: u64, entered: &Notify) -> Result<LossCause, LockError> {
    let inner = locks.lock(format!("orders/{id}")).reentrant().await?;
    entered.notify_one();
    let ended = inner.hold(pending::<()>()).await;
    let Err(LockError::Lost { cause, .. }) = ended else { panic!("{ended:?}") };
    assert!(!inner.is_held());
    assert_eq!(inner.lost().await, cause);
    assert_matches!(inner.release().await, Err(LockError::Lost { .. }));
    // A lost lock is not reentered.
    assert_matches!(order(locks, id).await, Err(LockError::Lost { .. }));
    Ok(cause)
}

#[limit::test]
async fn a_loss_of_the_outer_lock_reaches_the_inner() {
    let (corner, [locks]) = Corner::with_engines().await;
    let entered = Notify::new();
    let operator = async {
        entered.notified().await;
        corner.take_away("orders/7").await;
    };
    let call = lost(&locks, 7, &entered);
    let (cause, ()) = within("the loss", async { tokio::join!(call, operator) }).await;
    assert_eq!(cause.unwrap(), LossCause::Gone);
    corner.until_empty().await;
}

#[etcd_locked("orders/<id>", locks = locks)]
async fn let_out(locks: &Locks, id: u64) -> Result<(LockGuard, etcd_locked::Current), LockError> {
    let held = locks.lock(format!("orders/{id}")).reentrant().await?;
    let seen = held.hold(async { current().expect("inside") }).await?;
    assert!(seen.is_held(), "as long as the outer body lasts");
    Ok((held, seen))
}

#[limit::test]
async fn a_reentrant_guard_is_lost_outside_its_body() {
    let (corner, [locks]) = Corner::with_engines().await;
    let (held, seen) = let_out(&locks, 7).await.unwrap();
    assert!(!held.is_held() && !seen.is_held());
    let mut ran = false;
    let late = held.hold(async { ran = true }).await;
    assert_matches!(late, Err(LockError::Lost { cause, .. }) if cause == LossCause::Released);
    assert!(!ran, "a body ran under a released lock");
    pass("the next lock", locks.lock("orders/7")).await;
    drop(held);
    corner.until_empty().await;
}

#[etcd_locked("orders/<id>", locks = locks, wait = "1s", reentrant)]
async fn meet(locks: &Locks, id: u64, barrier: &Barrier) -> Result<(), LockError> {
    barrier.wait().await;
    tokio::task::yield_now().await;
    Ok(())
}

#[limit::test]
async fn only_branches_of_the_task_share_a_reentrant_lock() {
    let (corner, [locks]) = Corner::with_engines().await;
    let mine = locks.clone();
    let mut moved = Box::pin(async move { meet(&mine, 7, &Barrier::new(1)).await });
    let body = async || {
        let barrier = Barrier::new(2);
        let (one, two) = tokio::join!(meet(&locks, 7, &barrier), meet(&locks, 7, &barrier));
        one.and(two)?;
        let mine = locks.clone();
        let spawned = tokio::spawn(async move { meet(&mine, 7, &Barrier::new(1)).await });
        let spawned = spawned.await.expect("no panic");
        assert_matches!(spawned, Err(LockError::Timeout { .. }));
        // A call whose body has begun moves to another task, parallel to this body: it is not polled there.
        assert!(poll_fn(|cx| Poll::Ready(moved.as_mut().poll(cx).is_pending())).await);
        let answer = within("the other task", tokio::spawn(moved)).await.unwrap();
        assert_matches!(answer, Err(LockError::Lost { cause, .. }) if cause == LossCause::Released);
        Ok(())
    };
    within("the calls", outer(&locks, 7, body)).await.unwrap();
    corner.until_empty().await;
}

/// Returns the names with their tokens.
fn tokens<N: Group>(held: &LockGuard<N>) -> Vec<(String, Token)> {
    let text = |name: &etcd_locked::Name| name.text().expect("held, hence valid").to_owned();
    held.tokens().map(|(name, token)| (text(name), token)).collect()
}

#[limit::test]
async fn a_reentrant_group_is_held_fully_or_not_at_all() {
    let (corner, [locks]) = Corner::with_engines().await;
    let both = || locks.lock("b").and("a").and("b").reentrant();
    // None is held: the call acquires both as usual.
    let held = both().await.unwrap();
    assert_eq!(corner.contenders("a").await.len(), 1);
    // All are held by one call: the inner call lists them in its own order.
    let inner = async {
        let again = locks.lock("a").and("b").reentrant().await.unwrap();
        let mut reversed = tokens(&again);
        reversed.reverse();
        assert_eq!(reversed, tokens(&held));
        assert_eq!(tokens(&locks.lock("a").reentrant().await.unwrap()), [reversed[1].clone()]);
    };
    held.hold(inner).await.unwrap();
    held.release().await.unwrap();
    // All are held by several calls.
    let a = locks.lock("a").await.unwrap();
    let inner = async {
        let b = locks.lock("b").await.unwrap();
        let all = b.hold(async { both().await.unwrap() }).await.unwrap();
        assert_eq!(tokens(&all), [tokens(&b), tokens(&a)].concat());
        assert!(all.is_held());
        b.release().await.unwrap();
        assert!(!all.is_held() && a.is_held(), "one of them is gone");
        // Only some are held: the call is refused and acquires nothing.
        let refused = within("the refusal", both()).await;
        let Err(LockError::SelfDeadlock { name, .. }) = refused else { panic!("{refused:?}") };
        assert_eq!(name.text(), Some("a"));
    };
    a.hold(inner).await.unwrap();
    a.release().await.unwrap();
    // A reader does not become a writer.
    let reader = locks.lock("a").shared().await.unwrap();
    let inner = async {
        assert!(locks.lock("a").shared().reentrant().await.is_ok());
        let alone = locks.lock("a").reentrant().await;
        assert_matches!(alone, Err(LockError::SelfDeadlock { .. }));
    };
    reader.hold(inner).await.unwrap();
    reader.release().await.unwrap();
    corner.until_empty().await;
}
