//! Restarts of etcd: a short absence is not noticed, a long one costs the locks and nothing else.

use std::future::pending;
use std::time::Duration;

use etcd_locked::{LockError, LossCause};
use tokio::sync::Notify;

use crate::corner::{Corner, admitted, connect, pass, served, spawn, take};
use crate::etcd::Etcd;
use crate::limit::{self, within};

/// How long calls wait for an etcd that is started anew, on a busy machine.
const PATIENT: Duration = Duration::from_secs(20);

#[limit::test]
async fn a_lock_survives_a_restart_of_etcd() {
    let mut etcd = Etcd::start().await;
    let corner = Corner::of(&etcd).await;
    let config = corner.config().connect_timeout(PATIENT);
    let (mine, theirs) = (connect(config.clone()).await, connect(config).await);
    let held = mine.lock("orders/7").await.unwrap();
    let token = held.token();
    let waiter = spawn(theirs.lock("orders/7").wait_forever());
    corner.until_contenders("orders/7", 2).await;
    let kept = held.hold(async {
        etcd.restart().await;
        // Both keys are there, and the body's work goes on past the next renewal.
        corner.until_contenders("orders/7", 2).await;
        tokio::time::sleep(Duration::from_secs(6)).await;
    });
    within("the body's end", kept).await.unwrap();
    assert!(held.is_held());
    assert_eq!(held.token(), token);
    // New locks work on the same engines, and the waiter goes on.
    pass("another lock", mine.lock("orders/8")).await;
    held.release().await.unwrap();
    let next = admitted("the waiter's admission", waiter).await;
    assert!(next.token() > token);
    next.release().await.unwrap();
    corner.until_empty().await;
}

#[limit::test]
async fn a_call_made_while_etcd_restarts_is_served() {
    let mut etcd = Etcd::start().await;
    let corner = Corner::of(&etcd).await;
    let locks = connect(corner.config().connect_timeout(PATIENT)).await;
    pass("a free name", locks.lock("orders/7")).await;
    etcd.kill();
    let call = spawn(locks.lock("orders/7").wait_forever());
    etcd.start_again().await;
    served("the call's admission", call).await;
    corner.until_empty().await;
}

#[limit::test]
async fn an_etcd_that_freezes_for_a_moment_is_not_noticed() {
    let etcd = Etcd::start().await;
    let corner = Corner::of(&etcd).await;
    let locks = corner.locks_with_ttl(Duration::from_secs(12)).await;
    let held = locks.lock("orders/7").await.unwrap();
    let kept = held.hold(async {
        etcd.stop();
        // The freeze itself: a renewal falls due in it, and stays unanswered for a while.
        tokio::time::sleep(Duration::from_millis(4_500)).await;
        let other = spawn(locks.lock("orders/8").wait_forever());
        let (mut client, moment) = (corner.client.clone(), Duration::from_millis(500));
        let asked = tokio::time::timeout(moment, client.get("orders", None)).await;
        assert!(asked.is_err(), "etcd is not frozen: {asked:?}");
        assert!(!other.is_finished(), "etcd is not frozen for the engine");
        etcd.cont();
        let other = within("a lock after the moment", other).await.unwrap();
        other.unwrap().release().await.unwrap();
    });
    within("the body's end", kept).await.unwrap();
    assert!(held.is_held());
    held.release().await.unwrap();
    corner.until_empty().await;
}

#[limit::test]
async fn an_engine_recovers_from_an_absence_beyond_the_ttl() {
    let mut etcd = Etcd::start().await;
    let corner = Corner::of(&etcd).await;
    let config = corner.config().ttl(Duration::from_secs(2));
    let locks = connect(config.connect_timeout(PATIENT)).await;
    let held = locks.lock("orders/7").await.unwrap();
    let waiter = spawn(locks.lock("orders/7").wait_forever());
    etcd.kill();
    let ended = within("the loss", held.hold(pending::<()>())).await;
    assert_matches!(ended, Err(LockError::Lost { cause, .. }) if cause == LossCause::Expired);
    drop(held);
    // No call is admitted while etcd is gone, and the waiter needs no help when etcd is back.
    assert!(!waiter.is_finished());
    etcd.start_again().await;
    served("the waiter's admission", waiter).await;
    corner.until_empty().await;
}

#[limit::test]
async fn a_wiped_etcd_costs_the_locks_and_serves_new_ones() {
    let mut etcd = Etcd::start().await;
    let corner = Corner::of(&etcd).await;
    let locks = corner.locks().await;
    // Revisions beyond those of the fresh etcd.
    for _ in 0..20 {
        pass("a free name", locks.lock("orders/8")).await;
    }
    let held = locks.lock("orders/7").await.unwrap();
    let inside = Notify::new();
    let body = held.hold(async {
        inside.notify_one();
        pending::<()>().await
    });
    let wiping = async {
        inside.notified().await;
        etcd.kill();
        etcd.wipe();
        etcd.start_again().await;
    };
    let (ended, ()) = within("the loss", async { tokio::join!(body, wiping) }).await;
    assert_matches!(ended, Err(LockError::Lost { cause, .. }) if cause == LossCause::Wiped);
    drop(held);
    let again = take("a lock in the new world", locks.lock("orders/7")).await;
    assert_eq!(corner.contenders("orders/7").await.len(), 1);
    again.release().await.unwrap();
    corner.until_empty().await;
}
