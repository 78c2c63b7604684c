//! Lock order: two places that acquire locks in opposite order are reported before they ever wait for each other.

use etcd_locked::{LockError, etcd_locked, lock};

use crate::service::start;

#[etcd_locked("orders/<id>")]
async fn order_then_stock(id: u64) -> Result<(), LockError> {
    take_stock(id).await
}

#[etcd_locked("stock/<id>")]
async fn take_stock(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked("stock/<id>")]
async fn stock_then_order(id: u64) -> Result<(), LockError> {
    take_order(id).await
}

#[etcd_locked("orders/<id>")]
async fn take_order(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked("stock/<id>")]
async fn stock_then_order_if_free(id: u64) -> Result<(), LockError> {
    let free = lock(format!("orders/{id}")).try_once().await;
    free.map(drop)
}

#[tokio::test]
async fn refuses_an_inverted_order_with_both_places() {
    let _etcd = start().await;
    order_then_stock(7).await.unwrap();
    let refused = stock_then_order(8).await.unwrap_err();
    let LockError::OrderInversion { name, held, here, there, .. } = &refused else {
        panic!("{refused:?}")
    };
    assert_eq!(name.template(), Some("orders/<id>"));
    assert_eq!(held.template(), Some("stock/<id>"));
    assert!(here.ends_with("::take_order"), "{here}");
    assert!(there.ends_with("::take_stock"), "{there}");
    assert!(!refused.is_retryable());
    let message = refused.to_string();
    assert!(message.contains("`orders/<id>`") && !message.contains('8'), "{message}");
    // The order that came first is allowed, and so are each lock alone, and both in one call.
    order_then_stock(8).await.unwrap();
    take_order(8).await.unwrap();
    take_stock(8).await.unwrap();
    lock("stock/8").and("orders/8").await.unwrap().release().await.unwrap();
    // A try never waits, so its order does not matter.
    stock_then_order_if_free(8).await.unwrap();
}

#[tokio::test]
async fn orders_of_two_engines_are_independent() {
    let first = start().await;
    order_then_stock(7).await.unwrap();
    drop(first);
    let etcd = start().await;
    stock_then_order(7).await.unwrap();
    etcd.allow_order_inversions();
    order_then_stock(7).await.unwrap();
}
