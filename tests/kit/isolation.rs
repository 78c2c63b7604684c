//! Isolation of a test kit: it affects only the calls of its own thread.

use std::thread;

use etcd_locked::{LockError, lock};
use tokio::runtime::Builder;

use crate::service::{Packing, ship, start};

/// Returns the error of a call outside of this thread's kit. A kit of another test may live at that time.
async fn told() -> String {
    match ship(7).await {
        Err(error @ (LockError::NotInitialized { .. } | LockError::Config { .. })) => {
            error.to_string()
        }
        other => panic!("{other:?}"),
    }
}

/// Returns true if the call was refused because a kit lives, before it looked for an etcd.
fn is_about_a_kit(told: &str) -> bool {
    told.contains("test kit") && told.contains("`etcd.locks().scope(..)`")
}

#[tokio::test]
async fn kit_keeps_calls_of_other_threads_from_the_process_engine() {
    told().await;
    let etcd = start().await;
    assert_eq!(ship(7).await.unwrap(), 7);
    let elsewhere = thread::spawn(|| {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(told())
    });
    let elsewhere = elsewhere.join().unwrap();
    assert!(is_about_a_kit(&elsewhere), "{elsewhere}");
    drop(etcd);
    told().await;
}

#[tokio::test]
async fn outer_kit_returns_after_the_inner_one() {
    let outer = start().await;
    let packing = Packing::of(7);
    assert_eq!(outer.held().await, ["orders/7"]);
    let inner = start().await;
    assert_eq!(ship(7).await.unwrap(), 7);
    drop(inner);
    let waiting = tokio::spawn(ship(7));
    assert_eq!(outer.waiting().await, ["orders/7"]);
    packing.ship().await.unwrap();
    waiting.await.unwrap().unwrap();
}

#[test]
fn scope_carries_the_kit_to_other_threads() {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let etcd = start().await;
        let locks = etcd.locks().clone();
        let shipped = tokio::spawn(async move { locks.scope(ship(7)).await });
        assert_eq!(shipped.await.unwrap().unwrap(), 7);
        let spawned = tokio::spawn(told()).await.unwrap();
        assert!(is_about_a_kit(&spawned), "{spawned}");
        // The test's own future uses the kit.
        let held = lock("orders/7").await.unwrap();
        assert_eq!(etcd.held().await, ["orders/7"]);
        held.release().await.unwrap();
    });
}
