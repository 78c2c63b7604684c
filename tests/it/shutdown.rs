//! Shutdown: it refuses new locks, waits for bodies, ends those beyond the grace, and leaves nothing in etcd.

use std::future::{IntoFuture, pending};
use std::sync::Arc;
use std::time::{Duration, Instant};

use etcd_locked::{LockError, Locks, LossCause, etcd_locked};
use tokio::sync::Notify;

use crate::corner::{Corner, pass};
use crate::limit::{run, within};
use crate::worker::Worker;

const GRACE: Duration = Duration::from_secs(10);

#[etcd_locked("orders/<id>", locks = locks)]
async fn until(locks: &Locks, id: u64, inside: &Notify, done: &Notify) -> Result<u8, LockError> {
    inside.notify_one();
    done.notified().await;
    // A body that has begun may take the locks it needs to end.
    locks.lock("stock/9").await?.release().await?;
    Ok(7)
}

/// Asserts that no key and none of these leases is left in etcd, long before they could expire.
async fn nothing_is_left(corner: &Corner, leases: &[i64]) {
    corner.until_empty().await;
    assert_eq!(corner.sessions().await, []);
    for lease in leases {
        assert!(
            !corner.lease_lives(*lease).await,
            "lease {lease:x} is still there"
        );
    }
}

#[test]
fn a_shutdown_waits_for_bodies() {
    run(async {
        let corner = Corner::new().await;
        let locks = corner.locks().await;
        let (inside, done) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let call = tokio::spawn({
            let (locks, inside, done) = (locks.clone(), inside.clone(), done.clone());
            async move { until(&locks, 7, &inside, &done).await }
        });
        within("the body inside", inside.notified()).await;
        let leases: Vec<i64> = corner.leases("orders/7").await.into_iter().collect();
        let shutdown = tokio::spawn({
            let locks = locks.clone();
            async move { locks.shutdown(GRACE).await }
        });
        // New calls are refused from now on, even for a free name.
        within("a refusal", async {
            while !matches!(locks.lock("orders/8").await, Err(LockError::ShuttingDown)) {
                tokio::task::yield_now().await;
            }
        })
        .await;
        assert!(
            !shutdown.is_finished(),
            "the shutdown did not wait for the body"
        );
        assert_eq!(corner.contenders("orders/7").await.len(), 1);
        done.notify_one();
        assert_eq!(within("the call's end", call).await.unwrap().unwrap(), 7);
        within("the shutdown's end", shutdown).await.unwrap();
        nothing_is_left(&corner, &leases).await;
        let error = locks.lock("orders/8").await.unwrap_err();
        assert!(matches!(error, LockError::ShuttingDown), "{error:?}");
        assert!(!error.is_retryable());
    });
}

#[test]
fn a_body_that_takes_too_long_is_cancelled() {
    run(async {
        let corner = Corner::new().await;
        let locks = corner.locks().await;
        let (inside, done) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let call = tokio::spawn({
            let (locks, inside, done) = (locks.clone(), inside.clone(), done.clone());
            async move { until(&locks, 7, &inside, &done).await }
        });
        within("the body inside", inside.notified()).await;
        let leases: Vec<i64> = corner.leases("orders/7").await.into_iter().collect();
        let started = Instant::now();
        within(
            "the shutdown's end",
            locks.shutdown(Duration::from_millis(500)),
        )
        .await;
        let took = started.elapsed();
        assert!(took >= Duration::from_millis(500), "the grace was {took:?}");
        assert!(took < Duration::from_secs(10), "the shutdown took {took:?}");
        let ended = within("the call's end", call).await.unwrap();
        let cut_off = LossCause::Shutdown;
        assert!(
            matches!(ended, Err(LockError::Lost { cause, .. }) if cause == cut_off),
            "{ended:?}"
        );
        nothing_is_left(&corner, &leases).await;
    });
}

#[test]
fn a_shutdown_refuses_waiters() {
    run(async {
        let corner = Corner::new().await;
        let locks = corner.locks().await;
        let elsewhere = corner.locks().await.lock("orders/7").await.unwrap();
        let waiter = tokio::spawn(locks.lock("orders/7").wait_forever().into_future());
        corner.until_contenders("orders/7", 2).await;
        within("the shutdown's end", locks.shutdown(GRACE)).await;
        let refused = within("the waiter's refusal", waiter).await.unwrap();
        assert!(
            matches!(refused, Err(LockError::ShuttingDown)),
            "{refused:?}"
        );
        assert_eq!(corner.contenders("orders/7").await.len(), 1);
        elsewhere.release().await.unwrap();
        corner.until_empty().await;
    });
}

#[test]
fn background_releases_are_flushed() {
    run(async {
        let corner = Corner::new().await;
        let locks = corner.locks().await;
        for number in 0..20 {
            drop(locks.lock(format!("orders/{number}")).await.unwrap());
        }
        let lease = corner.sessions().await[0].lease;
        within("the shutdown's end", locks.shutdown(GRACE)).await;
        // No wait here: the shutdown has awaited all releases.
        assert_eq!(corner.keys(&corner.prefix).await, []);
        nothing_is_left(&corner, &[lease]).await;
    });
}

#[test]
fn an_idle_engine_shuts_down_at_once_and_twice() {
    run(async {
        let corner = Corner::new().await;
        let locks = corner.locks().await;
        let started = Instant::now();
        within("the shutdown's end", locks.shutdown(GRACE)).await;
        within("the second shutdown's end", locks.shutdown(GRACE)).await;
        assert!(started.elapsed() < GRACE, "{:?}", started.elapsed());
        assert_eq!(corner.sessions().await, []);
    });
}

#[test]
fn the_other_engines_of_a_process_go_on() {
    run(async {
        let corner = Corner::new().await;
        let (one, two) = (corner.locks().await, corner.locks().await);
        let held = two.lock("orders/7").await.unwrap();
        within("the shutdown's end", one.shutdown(GRACE)).await;
        assert!(held.is_held());
        pass("a free name", two.lock("orders/8")).await;
        held.release().await.unwrap();
    });
}

#[test]
fn a_kept_guard_does_not_block_the_shutdown() {
    run(async {
        let corner = Corner::new().await;
        let locks = corner.locks().await;
        let held = locks.lock("orders/7").await.unwrap();
        within(
            "the shutdown's end",
            locks.shutdown(Duration::from_millis(200)),
        )
        .await;
        assert!(!held.is_held(), "a lock outlived its engine");
        assert_eq!(within("the cause", held.lost()).await, LossCause::Shutdown);
        let late = within("a late body", held.hold(pending::<()>())).await;
        assert!(matches!(late, Err(LockError::ShuttingDown)), "{late:?}");
    });
}

#[test]
fn a_process_stays_shut_down() {
    run(async {
        let corner = Corner::new().await;
        let mut worker = Worker::start(corner.environment());
        worker.send("work till");
        worker.says("held").await;
        worker.send("done till");
        worker.says("released").await;
        let lease = corner.sessions().await[0].lease;
        worker.send("shutdown 5000");
        worker.says("shut").await;
        nothing_is_left(&corner, &[lease]).await;
        worker.send("lock orders/7");
        assert!(
            worker
                .says("failed")
                .await
                .starts_with("orders/7 ShuttingDown")
        );
        worker.send(&format!("init {}", corner.endpoint));
        let refused = worker.says("failed").await;
        assert!(refused.starts_with("init "), "{refused}");
        worker.send("lock orders/7");
        assert!(
            worker
                .says("failed")
                .await
                .starts_with("orders/7 ShuttingDown")
        );
    });
}
