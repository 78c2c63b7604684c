//! Tests of the handler. Each has an etcd and an engine of its own, so they run in parallel, and the handler needs no change.

use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, StatusCode};
use etcd_locked::LockError;
use etcd_locked::testing;
use tower::ServiceExt;

use crate::bank::Bank;
use crate::service;

type Result = std::result::Result<(), LockError>;

/// Sends one request to the service, without a port.
async fn refund(bank: Bank, order: u64) -> StatusCode {
    let request =
        Request::post(format!("/orders/{order}/refund")).body(Body::empty()).expect("a request");
    let answer = service(bank).oneshot(request).await;
    answer.expect("axum answers everything").status()
}

#[tokio::test]
async fn an_order_is_refunded_once() -> Result {
    let _etcd = testing::start().await?;
    let bank = Bank::open();
    assert_eq!(refund(bank.clone(), 7).await, StatusCode::OK);
    assert_eq!(refund(bank.clone(), 7).await, StatusCode::CONFLICT);
    assert_eq!(bank.paid(7), 1);
    Ok(())
}

/// Contention: two customers click at once. The second request waits, and finds the order paid.
#[tokio::test]
async fn two_requests_for_one_order_wait_for_each_other() -> Result {
    let etcd = testing::start().await?;
    let bank = Bank::slow();
    let first = tokio::spawn(refund(bank.clone(), 7));
    assert_eq!(etcd.held().await, ["orders/7"]);
    let second = tokio::spawn(refund(bank.clone(), 7));
    let another = tokio::spawn(refund(bank.clone(), 8));
    assert_eq!(etcd.waiting().await, ["orders/7"]); // no request waits for order 8
    bank.let_one_through();
    bank.let_one_through();
    assert_eq!(first.await.expect("no panic"), StatusCode::OK);
    assert_eq!(second.await.expect("no panic"), StatusCode::CONFLICT);
    assert_eq!(another.await.expect("no panic"), StatusCode::OK);
    assert_eq!(bank.paid(7), 1);
    Ok(())
}

/// Time-out: another process holds the order for longer than a customer waits.
#[tokio::test]
async fn an_order_that_stays_locked_times_out() -> Result {
    let etcd = testing::start().await?;
    let other = etcd.second().await?;
    let held = other.lock("orders/7").await?;
    let bank = Bank::open();
    let wait = etcd.advance(Duration::from_secs(5));
    let (answer, ()) = tokio::join!(refund(bank.clone(), 7), wait);
    assert_eq!(answer, StatusCode::LOCKED);
    assert_eq!(bank.paid(7), 0);
    held.release().await
}

/// Loss: an operator deletes the lock while the bank works. The body is dropped at its await.
#[tokio::test]
async fn a_refund_ends_when_its_lock_is_lost() -> Result {
    let etcd = testing::start().await?;
    let bank = Bank::slow();
    let answer = tokio::spawn(refund(bank.clone(), 7));
    etcd.lose("orders/7").await.expect("the refund holds it");
    assert_eq!(answer.await.expect("no panic"), StatusCode::BAD_GATEWAY);
    bank.let_one_through();
    assert_eq!(bank.paid(7), 0);
    Ok(())
}

/// Loss again: etcd is unreachable for longer than the lease lasts.
#[tokio::test]
async fn a_refund_ends_when_etcd_is_gone() -> Result {
    let etcd = testing::start().await?;
    let bank = Bank::slow();
    let answer = tokio::spawn(refund(bank.clone(), 7));
    assert_eq!(etcd.held().await, ["orders/7"]);
    etcd.partition();
    etcd.advance(Duration::from_secs(15)).await;
    assert_eq!(answer.await.expect("no panic"), StatusCode::BAD_GATEWAY);

    // Other requests get 503: the fault is not theirs.
    let wait = etcd.advance(Duration::from_secs(10));
    let (answer, ()) = tokio::join!(refund(bank.clone(), 8), wait);
    assert_eq!(answer, StatusCode::SERVICE_UNAVAILABLE);
    etcd.heal();
    bank.let_one_through();
    assert_eq!(refund(bank.clone(), 8).await, StatusCode::OK);
    Ok(())
}
