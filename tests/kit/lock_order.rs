//! Lock order: two places that take locks in opposite order are reported before they ever wait for each other.

use std::sync::{Arc, Mutex};

use etcd_locked::{LockError, etcd_locked, lock};
use etcd_locked_tests::{Lines, subscribe};
use tracing::level_filters::LevelFilter;

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
    let LockError::OrderInversion { name, held, here, there } = &refused else {
        panic!("{refused:?}")
    };
    assert_eq!(name.template(), Some("orders/<id>"));
    assert_eq!(held.template(), Some("stock/<id>"));
    assert!(here.ends_with("::take_order"), "{here}");
    assert!(there.ends_with("::take_stock"), "{there}");
    assert!(!refused.is_retryable());
    let message = refused.to_string();
    assert!(message.contains("`orders/<id>`") && !message.contains('8'), "{message}");
    // Allowed are the order that came first, each lock alone, and both in one call.
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
    let _etcd = start().await;
    stock_then_order(7).await.unwrap();
}

#[tokio::test]
async fn warns_once_a_pair_where_inversions_are_allowed() {
    let etcd = start().await;
    etcd.allow_order_inversions();
    let warnings = Arc::new(Mutex::new(Vec::new()));
    let seen = warnings.clone();
    let _here = subscribe(Lines::new("", LevelFilter::WARN, move |_, line| {
        seen.lock().expect("not poisoned").push(line);
    }));
    for id in 0..3 {
        order_then_stock(id).await.unwrap();
        stock_then_order(id).await.unwrap();
    }
    let seen = warnings.lock().unwrap().clone();
    assert_eq!(seen.len(), 1, "{seen:?}");
    for part in ["stock/<id>", "orders/<id>", "::take_order", "::take_stock"] {
        assert!(seen[0].contains(part), "{part}: {seen:?}");
    }
}
