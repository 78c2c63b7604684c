//! Clock of the test kit: `advance` moves the engine's timers and etcd's leases together.
//!
//! The clock also runs by itself. So a test for "not before" leaves a second or two for busy machines.

use std::time::{Duration, Instant};

use etcd_locked::{LockError, LossCause, etcd_locked};
use tokio::time::timeout;

use crate::service::{Packing, held_elsewhere, held_here, secs, ship, start, start_with};

#[tokio::test]
async fn healthy_lock_outlasts_an_hour() {
    let etcd = start().await;
    let began = Instant::now();
    let packing = Packing::of(7);
    etcd.advance(secs(3600)).await;
    assert_eq!(etcd.held().await, ["orders/7"]);
    assert_eq!(packing.ship().await.unwrap(), 7);
    assert!(began.elapsed() < secs(60), "an hour took {:?}", began.elapsed());
}

#[tokio::test]
async fn waiting_call_times_out_on_time() {
    let (etcd, _other, held) = held_elsewhere().await;
    let waiting = tokio::spawn(ship(7));
    etcd.advance(secs(8)).await;
    assert!(!waiting.is_finished());
    assert_eq!(etcd.waiting().await, ["orders/7"]);
    etcd.advance(secs(2)).await;
    assert!(waiting.is_finished());
    match waiting.await.unwrap() {
        Err(LockError::Timeout { holder, waited, .. }) => {
            assert!(holder.is_some(), "etcd has answered who holds it");
            assert!((secs(10)..secs(12)).contains(&waited), "{waited:?}");
        }
        other => panic!("{other:?}"),
    }
    held.release().await.unwrap();
}

// `on_lost = "continue"` applies only to a body that has begun.
#[tokio::test]
async fn no_body_begins_under_a_lost_lock() {
    let etcd = start().await;
    etcd.freeze_keepalives();
    etcd.delay(Duration::from_millis(100));
    let mut call = Box::pin(go_on(7));
    // After the first poll the caller is delayed until long after the grant.
    assert!(timeout(Duration::ZERO, &mut call).await.is_err());
    etcd.advance(secs(2)).await;
    assert_eq!(etcd.held().await.len(), 1);
    etcd.delay(Duration::ZERO);
    etcd.advance(secs(26)).await;
    let ended = call.await;
    assert!(matches!(ended, Err(LockError::Lost { .. })), "the body has run: {ended:?}");
}

#[etcd_locked("orders/<id>", on_lost = "continue")]
async fn go_on(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[tokio::test]
async fn hold_limit_ends_the_body_on_time_with_renewals_until_then() {
    let etcd = start().await;
    let locks = etcd.locks().clone();
    let limited = tokio::spawn(async move {
        let held = locks.lock("orders/7").max_hold(secs(600)).await?;
        held.hold(std::future::pending::<()>()).await
    });
    etcd.advance(secs(590)).await;
    assert_eq!(etcd.held().await, ["orders/7"]);
    assert!(!limited.is_finished());
    etcd.advance(secs(10)).await;
    assert!(limited.is_finished());
    let ended = limited.await.unwrap();
    assert_matches!(ended, Err(LockError::HoldLimit { .. }));
    assert_eq!(etcd.held().await, [""; 0]);
}

#[tokio::test]
async fn one_task_may_advance_and_call_at_once() {
    let (etcd, _other, held) = held_elsewhere().await;
    for _ in 0..5 {
        let (shipped, ()) = tokio::join!(ship(7), etcd.advance(secs(10)));
        assert_matches!(shipped, Err(LockError::Timeout { .. }));
        let ((), shipped) = tokio::join!(etcd.advance(secs(10)), ship(7));
        assert_matches!(shipped, Err(LockError::Timeout { .. }));
    }
    // The holder continued all the time.
    assert!(held.is_held());
    let (shipped, released) = tokio::join!(ship(7), held.release());
    assert_eq!((shipped.unwrap(), released.unwrap()), (7, ()));
}

#[tokio::test]
async fn frozen_keepalive_loses_the_lock_at_the_stop_time() {
    // a TTL of 30 s: bodies stop 26.7 s after the last renewal
    let (etcd, packing) = held_here().await;
    etcd.freeze_keepalives();
    etcd.advance(secs(24)).await;
    assert!(!packing.call.is_finished());
    assert_eq!(etcd.held().await, ["orders/7"]);
    etcd.advance(Duration::from_millis(2_700)).await;
    assert_eq!(packing.loss().await, Some(LossCause::Expired));
    assert_eq!(etcd.held().await, [""; 0]);
    // Renewals reach etcd again; the next call has a new session.
    etcd.thaw_keepalives();
    assert_eq!(ship(7).await.unwrap(), 7);
}

#[tokio::test]
async fn next_process_is_granted_when_the_lease_expires() {
    let etcd = start_with(|config| config.wait(secs(60))).await;
    let packing = Packing::of(7);
    etcd.advance(Duration::ZERO).await;
    etcd.partition();
    let other = etcd.second().await.unwrap();
    let next = tokio::spawn({
        let other = other.clone();
        async move { other.lock("orders/7").await }
    });
    etcd.advance(Duration::from_millis(26_700)).await;
    assert_eq!(packing.loss().await, Some(LossCause::Expired));
    assert!(!next.is_finished(), "two holders at etcd");
    etcd.advance(Duration::from_millis(3_300)).await;
    assert!(next.is_finished(), "etcd still keeps a dead lease");
    next.await.unwrap().unwrap().release().await.unwrap();
}
