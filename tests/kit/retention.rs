//! Retention (`min_hold`): a name stays locked after a quick body.

use etcd_locked::{LockError, etcd_locked, lock};

use crate::service::{secs, start};

#[etcd_locked("reports/<day>", wait = "none", min_hold = "60s")]
async fn report(day: u64) -> Result<u64, LockError> {
    Ok(day)
}

#[etcd_locked("reports/<day>", wait = "none", min_hold = "60s", release = "background")]
async fn report_soon(day: u64) -> Result<u64, LockError> {
    Ok(day)
}

fn is_held<T: std::fmt::Debug>(answer: Result<T, LockError>) {
    match answer {
        Err(LockError::Held { holder: Some(holder), .. }) => {
            assert!(holder.function().is_some_and(|of| of.contains("report")))
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn retained_name_refuses_calls_until_the_time_is_over() {
    let etcd = start().await;
    let other = etcd.second().await.unwrap();
    report(7).await.unwrap();
    report_soon(8).await.unwrap();
    for seconds in [0, 20, 35] {
        etcd.advance(secs(seconds)).await;
        for day in [7, 8] {
            is_held(report(day).await);
            is_held(other.lock(format!("reports/{day}")).try_once().await);
        }
    }
    etcd.advance(secs(6)).await;
    for day in [7, 8] {
        let held = other.lock(format!("reports/{day}")).try_once().await;
        held.unwrap().release().await.unwrap();
        report(day).await.unwrap();
    }
}

#[etcd_locked("reports/<day>", reentrant, min_hold = "60s")]
async fn report_within(day: u64) -> Result<u64, LockError> {
    Ok(day)
}

#[tokio::test]
async fn reentrant_call_retains_the_outer_lock() {
    let etcd = start().await;
    let held = lock("reports/7").await.unwrap();
    held.hold(report_within(7)).await.unwrap().unwrap();
    held.release().await.unwrap();
    etcd.advance(secs(55)).await;
    assert!(report(7).await.is_err());
    etcd.advance(secs(6)).await;
    report(7).await.unwrap();
}

/// Runs at most twice in a minute, across all processes.
#[etcd_locked("mails", wait = "none", permits = 2, min_hold = "60s")]
async fn mail() -> Result<(), LockError> {
    Ok(())
}

#[tokio::test]
async fn retained_permits_limit_the_rate() {
    let etcd = start().await;
    for _ in 0..2 {
        mail().await.unwrap();
        mail().await.unwrap();
        assert!(mail().await.unwrap_err().is_held());
        etcd.advance(secs(61)).await;
    }
}

#[tokio::test]
async fn retained_name_that_is_lost_is_free() {
    let etcd = start().await;
    for _ in 0..2 {
        report(7).await.unwrap();
        assert_eq!(etcd.held().await, ["reports/7"]);
        etcd.lose("reports/7").await.unwrap();
        assert!(etcd.held().await.is_empty());
        report(8).await.unwrap();
        etcd.revoke_all().await;
        assert!(etcd.held().await.is_empty());
    }
}

/// The time continues after the caller, or the last handle on its engine, is dropped.
#[tokio::test]
async fn retained_name_needs_neither_caller_nor_handle() {
    let etcd = start().await;
    let other = etcd.second().await.unwrap();
    drop(other.lock("reports/7").min_hold(secs(60)).await.unwrap());
    drop(other);
    etcd.advance(secs(55)).await;
    assert_eq!(etcd.held().await, ["reports/7"]);
    assert!(report(7).await.unwrap_err().is_held());
    etcd.advance(secs(6)).await;
    report(7).await.unwrap();
}
