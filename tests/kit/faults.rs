//! Faults on the way to etcd: partitions, delays, refusals and lost responses.

use std::time::Duration;

use etcd_locked::testing::{Code, Fault};
use etcd_locked::{LockError, LossCause};

use crate::service::{held_here, secs, ship, ship_now, start, start_with};

#[tokio::test]
async fn short_partition_costs_time_but_no_lock() {
    let (etcd, packing) = held_here().await;
    etcd.partition();
    let waiting = tokio::spawn(ship(8));
    etcd.advance(secs(4)).await;
    assert!(!waiting.is_finished(), "through a partition");
    etcd.heal();
    etcd.advance(secs(1)).await;
    assert_eq!(waiting.await.unwrap().unwrap(), 8);
    assert_eq!(packing.ship().await.unwrap(), 7);
}

#[tokio::test]
async fn long_partition_fails_waiters_and_loses_locks() {
    let (etcd, packing) = held_here().await;
    etcd.partition();
    let waiting = tokio::spawn(ship(8));
    etcd.advance(secs(30)).await;
    let error = waiting.await.unwrap().unwrap_err();
    assert_matches!(error, LockError::Backend { .. });
    assert_eq!(packing.loss().await, Some(LossCause::Expired));
    etcd.heal();
    let (shipped, ()) = tokio::join!(ship(7), etcd.advance(secs(5)));
    assert_eq!(shipped.unwrap(), 7);
}

#[tokio::test]
async fn delay_passes_on_the_tests_clock() {
    let etcd = start_with(|config| config.wait(secs(60))).await;
    etcd.delay(Duration::from_millis(1_200));
    let held = tokio::spawn(etcd.locks().lock("orders/7").into_future());
    etcd.advance(Duration::from_millis(800)).await;
    assert!(!held.is_finished(), "there and back takes 2.4 seconds");
    etcd.advance(secs(2)).await;
    assert!(held.is_finished());
    etcd.delay(Duration::ZERO);
    held.await.unwrap().unwrap().release().await.unwrap();
}

/// Found by torture: etcd took 0.75 s for each response, and locks with a TTL of 2 s were lost. Here both times are doubled, because
/// the clock also runs by itself.
#[tokio::test]
async fn slow_etcd_keeps_the_locks_of_a_short_ttl() {
    let etcd = start_with(|config| config.ttl(secs(4))).await;
    let held = etcd.locks().lock("orders/7").await.unwrap();
    etcd.advance(secs(2)).await; // past the first renewal, which opens a stream
    etcd.delay(Duration::from_millis(750));
    for _ in 0..100 {
        etcd.advance(Duration::from_millis(200)).await;
        assert!(held.is_held());
    }
    etcd.delay(Duration::ZERO);
    held.release().await.unwrap();
}

#[tokio::test]
async fn refusal_reaches_the_caller() {
    let etcd = start().await;
    let denied = "etcdserver: permission denied".to_owned();
    etcd.fail_next(Fault::Refused(Code::PermissionDenied, denied));
    let error = ship(7).await.unwrap_err();
    assert_matches!(error, LockError::PermissionDenied { .. });
    assert_eq!(ship(7).await.unwrap(), 7);
}

#[tokio::test]
async fn ambiguous_outcome_leaves_no_key() {
    let etcd = start().await;
    for fault in [Fault::AnswerLost, Fault::RequestLost] {
        etcd.fail_next(fault);
        let (shipped, ()) = tokio::join!(ship(7), etcd.advance(secs(1)));
        assert_eq!(shipped.unwrap(), 7);
        assert_eq!(etcd.held().await, [""; 0]);
        // No key is left that would block another process.
        let other = etcd.second().await.unwrap();
        let held = other.lock("orders/7").try_once().await.unwrap();
        let error = ship_now(7).await.unwrap_err();
        assert_matches!(error, LockError::Held { .. });
        held.release().await.unwrap();
    }
}
