//! Whom a kit concerns: the calls of its thread, and nobody else.

use std::sync::Barrier;
use std::thread;

use etcd_locked::{LockError, lock};
use tokio::runtime::Builder;

use crate::service::{Packing, secs, ship, start};

/// Everything uses the environment in this test binary, and nothing there says where etcd is.
async fn is_untouched() -> bool {
    matches!(ship(7).await, Err(LockError::NotInitialized { .. }))
}

#[test]
fn two_kits_do_not_see_each_other() {
    let both = Barrier::new(2);
    let test = || {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let etcd = start().await;
            let packing = Packing::of(7);
            assert_eq!(etcd.held().await, ["orders/7"]);
            both.wait();
            assert_eq!(etcd.held().await, ["orders/7"]);
            assert_eq!(etcd.waiting().await, [""; 0]);
            // Its clock is its own.
            etcd.advance(secs(100)).await;
            etcd.lose("orders/7").await.unwrap();
            assert!(packing.loss().await.is_some());
            both.wait();
        });
    };
    thread::scope(|scope| {
        let threads = [scope.spawn(test), scope.spawn(test)];
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

#[tokio::test]
async fn the_global_engine_is_untouched() {
    assert!(is_untouched().await);
    let etcd = start().await;
    assert_eq!(ship(7).await.unwrap(), 7);
    let elsewhere = thread::spawn(|| {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(is_untouched())
    });
    assert!(elsewhere.join().unwrap());
    drop(etcd);
    assert!(is_untouched().await);
}

#[tokio::test]
async fn a_kit_within_a_kit_gives_way_again() {
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
fn on_a_runtime_of_several_threads_a_scope_carries_it() {
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let etcd = start().await;
        let locks = etcd.locks().clone();
        let shipped = tokio::spawn(async move { locks.scope(ship(7)).await });
        assert_eq!(shipped.await.unwrap().unwrap(), 7);
        let spawned = tokio::spawn(ship(7)).await.unwrap();
        assert!(matches!(spawned, Err(LockError::NotInitialized { .. })));
        // The test's own future has it.
        let held = lock("orders/7").await.unwrap();
        assert_eq!(etcd.held().await, ["orders/7"]);
        held.release().await.unwrap();
    });
}

#[tokio::test]
async fn dropped_it_ends_even_in_a_partition() {
    let etcd = start().await;
    let held = etcd.locks().lock("orders/7").await.unwrap();
    let locks = etcd.locks().clone();
    etcd.partition();
    drop(etcd);
    // Its engine lives as long as somebody has a handle on it, and reaches its etcd again.
    held.release().await.unwrap();
    locks
        .lock("orders/8")
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
}
