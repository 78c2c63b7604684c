//! Limit of waiters (`max_waiters`): a name that is held for long does not fill the process with waiting calls.

use etcd_locked::LockError;

use crate::service::{Packing, ship, ship_now, start_with};

#[tokio::test]
async fn refuses_one_more_waiter_at_once() {
    let etcd = start_with(|config| config.max_waiters(2)).await;
    let packing = Packing::of(7);
    assert_eq!(etcd.held().await, ["orders/7"]);
    let waiting = [tokio::spawn(ship(7)), tokio::spawn(ship(7))];
    assert_eq!(etcd.waiting().await, ["orders/7"; 2]);
    // The test has not moved the clock, so the refusal is immediate.
    let refused = ship(8).await.unwrap_err();
    assert_matches!(refused, LockError::Overloaded { .. });
    assert!(refused.is_retryable());
    let message = refused.to_string();
    assert!(message.contains("`orders/<id>`") && message.contains("`max_waiters`"), "{message}");
    assert_eq!(ship_now(8).await.unwrap(), 8, "a single try does not wait");
    packing.ship().await.unwrap();
    for call in waiting {
        assert_eq!(call.await.unwrap().unwrap(), 7);
    }
    assert_eq!(ship(8).await.unwrap(), 8, "there is room again");
}
