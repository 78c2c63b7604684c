//! `on_lost = "continue"`: the body runs on after a loss, can see the loss, and never touches the next holder's lock.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use etcd_locked::{LockError, Locks, LossCause, current, etcd_locked};
use tokio::sync::Notify;

use crate::corner::{Corner, pass, take};
use crate::limit::{self, within};

/// Runs until it may end, and returns the cause of the loss, if there was one.
#[etcd_locked("orders/<id>", locks = locks, on_lost = "continue")]
async fn go_on(
    locks: &Locks,
    id: u64,
    inside: &Notify,
    done: &Notify,
) -> Result<Option<LossCause>, LockError> {
    let lock = current().expect("inside");
    inside.notify_one();
    tokio::select! {
        cause = lock.lost() => {
            assert!(!lock.is_held());
            inside.notify_one();
            done.notified().await;
            assert!(current().is_some_and(|it| !it.is_held()));
            Ok(Some(cause))
        }
        () = done.notified() => Ok(None),
    }
}

struct Going {
    call: tokio::task::JoinHandle<Result<Option<LossCause>, LockError>>,
    inside: Arc<Notify>,
    done: Arc<Notify>,
}

impl Going {
    async fn begin(locks: &Locks) -> Going {
        let (inside, done) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let call = tokio::spawn({
            let (locks, inside, done) = (locks.clone(), inside.clone(), done.clone());
            async move { go_on(&locks, 7, &inside, &done).await }
        });
        within("the body inside", inside.notified()).await;
        Going { call, inside, done }
    }

    /// Has an operator delete its key or revoke its lease, and awaits that the body knows.
    async fn lose(&self, corner: &Corner, cause: LossCause) {
        match cause {
            LossCause::Revoked => {
                corner.revoke("orders/7").await;
            }
            _ => corner.take_away("orders/7").await,
        }
        within("the loss", self.inside.notified()).await;
    }

    async fn end(self) -> Result<Option<LossCause>, LockError> {
        self.done.notify_one();
        within("the end", self.call).await.expect("no panic")
    }
}

/// Returns whether a shutdown ended the body.
fn is_cut_off<T>(ended: &Result<T, LockError>) -> bool {
    matches!(ended, Err(LockError::Lost { cause, .. }) if *cause == LossCause::Shutdown)
}

#[limit::test]
async fn the_body_runs_on_and_its_answer_stands() {
    for cause in [LossCause::Deleted, LossCause::Revoked] {
        let (corner, [mine, theirs]) = Corner::with_engines().await;
        let going = Going::begin(&mine).await;
        going.lose(&corner, cause).await;
        // Another process holds the lock by now, and the end of the body does not touch its key.
        let next = take("the next lock", theirs.lock("orders/7")).await;
        let theirs = corner.owner("orders/7").await.created;
        assert_eq!(going.end().await.unwrap(), Some(cause));
        assert_eq!(corner.owner("orders/7").await.created, theirs);
        assert!(next.is_held());
        next.release().await.unwrap();
        pass("a lock after it", mine.lock("orders/7")).await;
        corner.until_empty().await;
    }
}

#[limit::test]
async fn without_a_loss_the_option_changes_nothing() {
    let (corner, [locks]) = Corner::with_engines().await;
    let going = Going::begin(&locks).await;
    assert_eq!(going.end().await.unwrap(), None);
    corner.until_empty().await;
}

#[limit::test]
async fn a_shutdown_ends_the_body_when_its_grace_is_over() {
    for has_lost in [false, true] {
        let (corner, [locks]) = Corner::with_engines().await;
        let going = Going::begin(&locks).await;
        if has_lost {
            going.lose(&corner, LossCause::Revoked).await;
        }
        within("the shutdown", locks.shutdown(Duration::ZERO)).await;
        let ended = within("the end", going.call).await.expect("no panic");
        assert!(is_cut_off(&ended), "{ended:?}");
        corner.until_empty().await;
    }
}

#[etcd_locked("orders/<id>", locks = locks, on_lost = "continue", at_most = "3s")]
async fn limited(locks: &Locks, id: u64, inside: &Notify) -> Result<(), LockError> {
    inside.notify_one();
    pending().await
}

#[limit::test]
async fn a_hold_limit_ends_the_body_after_a_loss() {
    let (corner, [locks]) = Corner::with_engines().await;
    let inside = Notify::new();
    let operator = async {
        inside.notified().await;
        corner.take_away("orders/7").await;
    };
    let call = limited(&locks, 7, &inside);
    let (ended, ()) = within("the limit", async { tokio::join!(call, operator) }).await;
    assert_matches!(ended, Err(LockError::HoldLimit { .. }));
    corner.until_empty().await;
}
