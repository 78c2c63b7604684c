//! Queue of contenders in etcd: a waiting call is admitted, whatever happens to its key and to the keys before it.

use std::future::IntoFuture;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use etcd_client::{CompactionOptions, PutOptions};
use etcd_locked::{LockError, LockGuard, Locks};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::corner::Corner;
use crate::etcd::Etcd;
use crate::limit::{run, within};

fn queue_up(locks: &Locks) -> JoinHandle<Result<LockGuard, LockError>> {
    tokio::spawn(locks.lock("orders/7").wait_forever().into_future())
}

async fn admitted(waiter: JoinHandle<Result<LockGuard, LockError>>) -> LockGuard {
    within("the waiter's admission", waiter)
        .await
        .expect("no panic")
        .expect("served")
}

#[test]
fn a_predecessor_that_gives_up_is_not_taken_for_the_owner() {
    run(async {
        let corner = Corner::new().await;
        let held = corner.locks().await.lock("orders/7").await.unwrap();
        let impatient = tokio::spawn({
            let locks = corner.locks().await;
            async move { locks.lock("orders/7").wait(Duration::from_secs(5)).await }
        });
        corner.until_contenders("orders/7", 2).await;
        let released = Arc::new(AtomicBool::new(false));
        let last = tokio::spawn({
            let (locks, released) = (corner.locks().await, released.clone());
            async move {
                let held = locks.lock("orders/7").wait_forever().await.unwrap();
                (held, released.load(Ordering::SeqCst))
            }
        });
        corner.until_contenders("orders/7", 3).await;
        let gave_up = within("the end of the wait", impatient).await.unwrap();
        assert!(
            matches!(gave_up, Err(LockError::Timeout { .. })),
            "{gave_up:?}"
        );
        corner.until_contenders("orders/7", 2).await;
        // The holder's work: time to catch a waiter that takes its predecessor's end for its own admission.
        sleep(Duration::from_millis(300)).await;
        released.store(true, Ordering::SeqCst);
        held.release().await.unwrap();
        let (held, in_time) = within("the last one's admission", last).await.unwrap();
        assert!(in_time, "the last one was in before the owner's release");
        held.release().await.unwrap();
        corner.until_empty().await;
    });
}

#[test]
fn a_waiting_key_that_is_deleted_is_put_again() {
    run(async {
        let corner = Corner::new().await;
        let (mine, theirs) = (corner.locks().await, corner.locks().await);
        let held = theirs.lock("orders/7").await.unwrap();
        let waiter = queue_up(&mine);
        let key = corner.until_contenders("orders/7", 2).await[1].clone();
        corner.client.clone().delete(key.text, None).await.unwrap();
        corner.until_contenders("orders/7", 2).await;
        held.release().await.unwrap();
        admitted(waiter).await.release().await.unwrap();
        corner.until_empty().await;
    });
}

#[test]
fn a_waiting_lease_that_is_revoked_is_replaced() {
    run(async {
        let corner = Corner::new().await;
        let (mine, theirs) = (corner.locks().await, corner.locks().await);
        let held = theirs.lock("orders/7").await.unwrap();
        let waiter = queue_up(&mine);
        let lease = corner.until_contenders("orders/7", 2).await[1].lease;
        corner.client.clone().lease_revoke(lease).await.unwrap();
        let what = "a waiting key on another lease";
        corner
            .until(what, &corner.below("orders/7"), |keys| {
                keys.len() == 2 && keys.iter().all(|it| it.lease != lease)
            })
            .await;
        held.release().await.unwrap();
        admitted(waiter).await.release().await.unwrap();
        corner.until_empty().await;
    });
}

/// An overwritten key has a foreign lease or none, so it would outlive its process.
#[test]
fn a_waiting_key_that_is_overwritten_is_served_and_goes() {
    run(async {
        let corner = Corner::new().await;
        let (mine, theirs) = (corner.locks().await, corner.locks().await);
        let mut client = corner.client.clone();
        let foreign = client.lease_grant(600, None).await.unwrap().id();
        // The waiter's engine observes both events at about the same time, in either order.
        for _ in 0..20 {
            let held = theirs.lock("orders/7").await.unwrap();
            let waiter = queue_up(&mine);
            let key = corner.until_contenders("orders/7", 2).await[1].clone();
            client
                .put(
                    key.text,
                    "mine now",
                    Some(PutOptions::new().with_lease(foreign)),
                )
                .await
                .unwrap();
            held.release().await.unwrap();
            admitted(waiter).await.release().await.unwrap();
            corner.until_empty().await;
        }
    });
}

#[test]
fn a_holders_key_that_is_deleted_lets_the_next_in() {
    run(async {
        let corner = Corner::new().await;
        let (mine, theirs) = (corner.locks().await, corner.locks().await);
        let _abandoned = theirs.lock("orders/7").await.unwrap();
        let waiter = queue_up(&mine);
        let keys = corner.until_contenders("orders/7", 2).await;
        corner
            .client
            .clone()
            .delete(keys[0].text.clone(), None)
            .await
            .unwrap();
        admitted(waiter).await.release().await.unwrap();
    });
}

#[test]
fn many_waiters_give_up_and_none_is_in_the_way() {
    run(async {
        let corner = Corner::new().await;
        let (mine, theirs) = (corner.locks().await, corner.locks().await);
        let held = theirs.lock("orders/7").await.unwrap();
        let impatient: Vec<_> = (1..=40)
            .map(|number| {
                // Longer than a busy etcd takes to answer.
                let wait = Duration::from_millis(3_000 + 10 * number);
                tokio::spawn(mine.lock("orders/7").wait(wait).into_future())
            })
            .collect();
        let patient = queue_up(&mine);
        for waiter in impatient {
            let gave_up = within("the end of a wait", waiter).await.unwrap();
            assert!(
                matches!(gave_up, Err(LockError::Timeout { .. })),
                "{gave_up:?}"
            );
        }
        held.release().await.unwrap();
        admitted(patient).await.release().await.unwrap();
        corner.until_empty().await;
    });
}

#[test]
fn compaction_hides_no_hand_over() {
    run(async {
        let etcd = Etcd::start().await;
        let corner = Corner::of(&etcd).await;
        let engines = [corner.locks().await, corner.locks().await];
        let compacting = tokio::spawn({
            let mut client = corner.client.clone();
            async move {
                loop {
                    let now = client
                        .get("anything", None)
                        .await
                        .unwrap()
                        .header()
                        .unwrap()
                        .revision();
                    // etcd refuses if there was no write since the last compaction.
                    let _ = client
                        .compact(now, Some(CompactionOptions::new().with_physical()))
                        .await;
                    // The interval between two compactions.
                    sleep(Duration::from_millis(20)).await;
                }
            }
        });
        let mut held = engines[0].lock("orders/7").await.unwrap();
        for round in 1..=20 {
            let waiter = queue_up(&engines[round % 2]);
            corner.until_contenders("orders/7", 2).await;
            held.release().await.unwrap();
            held = admitted(waiter).await;
        }
        held.release().await.unwrap();
        compacting.abort();
        corner.until_empty().await;
    });
}
