//! Executors: the engine has its own thread, so it works with any executor, and none can starve or end it.

use std::future::IntoFuture;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use etcd_locked::{LockError, Locks, etcd_locked};
use futures_executor::block_on;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

use crate::corner::{Corner, pass, served, spawn};
use crate::limit::{self, within};

const TTL: Duration = Duration::from_secs(5);

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// Blocks its executor, by a mistake of the caller.
#[etcd_locked("orders/<id>", locks = locks)]
async fn block(
    locks: &Locks,
    id: u64,
    inside: oneshot::Sender<()>,
    awake: &AtomicBool,
) -> Result<bool, LockError> {
    let _ = inside.send(());
    thread::sleep(3 * TTL);
    awake.store(true, Ordering::SeqCst);
    tokio::task::yield_now().await;
    Ok(etcd_locked::current().is_some_and(|it| it.is_held()))
}

#[limit::test]
async fn a_blocked_executor_keeps_the_lock() {
    let corner = Corner::new().await;
    let (mine, theirs) = (corner.locks_with_ttl(TTL).await, corner.locks().await);
    let (inside, entered) = oneshot::channel();
    let awake = Arc::new(AtomicBool::new(false));
    let blocked = thread::spawn({
        // This test keeps a handle on the engine, because its end would revoke the lease that the test reads.
        let (locks, awake) = (mine.clone(), awake.clone());
        move || runtime().block_on(block(&locks, 7, inside, &awake))
    });
    within("the body inside", entered).await.unwrap();
    let key = corner.owner("orders/7").await;
    // A waiter's key is renewed too, or the waiter would lose its place.
    let waits = corner.locks_with_ttl(TTL).await;
    let waiting = spawn(waits.lock("orders/7").wait_forever());
    let place = corner.until_contenders("orders/7", 2).await[1].clone();
    while !blocked.is_finished() {
        assert!(!waiting.is_finished() || awake.load(Ordering::SeqCst), "a second holder");
        let refused = theirs.lock("orders/7").try_once().await;
        assert_matches!(refused, Err(LockError::Held { .. }));
        assert!(corner.lease_lives(key.lease).await, "the lease ran out");
        let contenders = corner.contenders("orders/7").await;
        let is_there = contenders.get(1) == Some(&place);
        assert!(is_there || awake.load(Ordering::SeqCst), "another key: {contenders:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(blocked.join().unwrap().unwrap(), "the lock was lost while the executor was blocked");
    served("the waiter's admission", waiting).await;
    corner.until_empty().await;
}

#[limit::test]
async fn two_runtimes_share_the_engine_of_the_process() {
    let corner = Corner::new().await;
    let mut worker = corner.worker([]);
    worker.asked("runtimes till", "runtimes").await;
    // One engine has one lease, hence one session key.
    assert_eq!(corner.sessions().await.len(), 1);
    corner.until_empty().await;
}

#[limit::test]
async fn an_engine_outlives_the_runtime_it_was_made_on() {
    let corner = Corner::new().await;
    let config = corner.config().ttl(TTL);
    // A guard that outlives its runtime, and a waiter that ends with it.
    let (locks, held) = thread::spawn(move || {
        let first = runtime();
        let locks = first.block_on(Locks::connect(config)).unwrap();
        let held = first.block_on(locks.lock("orders/7").into_future()).unwrap();
        let waiting = locks.clone();
        first.spawn(async move { waiting.lock("orders/7").wait_forever().await });
        // A lock whose task ends with its runtime is released.
        let (holding, (inside, entered)) = (locks.clone(), oneshot::channel());
        first.spawn(async move {
            let held = holding.lock("orders/9").await.unwrap();
            let _ = inside.send(());
            held.hold(std::future::pending::<()>()).await
        });
        first.block_on(entered).unwrap();
        drop(first);
        (locks, held)
    })
    .join()
    .unwrap();
    corner.until_contenders("orders/9", 0).await;
    // Only the engine's own runtime renews the lease.
    within("the body", held.hold(tokio::time::sleep(2 * TTL))).await.unwrap();
    assert!(held.is_held());
    pass("another lock", locks.lock("orders/8")).await;
    held.release().await.unwrap();
    pass("the same lock", locks.lock("orders/7")).await;
    corner.until_empty().await;
}

#[etcd_locked("orders/<id>", locks = locks, wait = "3s")]
async fn plain(locks: &Locks, id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[etcd_locked("orders/<id>", locks = &locks, detach)]
async fn detached(locks: Locks, id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[limit::test]
async fn any_executor_is_supported() {
    let corner = Corner::new().await;
    let (mine, theirs) = (corner.config(), corner.config());
    let without_tokio = thread::spawn(move || {
        let locks = block_on(Locks::connect(mine)).unwrap();
        assert_eq!(block_on(plain(&locks, 7)).unwrap(), 7);
        let others = block_on(Locks::connect(theirs)).unwrap();
        let held = block_on(others.lock("orders/7").into_future()).unwrap();
        let refused = block_on(plain(&locks, 7));
        assert_matches!(refused, Err(LockError::Timeout { .. }));
        block_on(held.release()).unwrap();
        assert_eq!(block_on(plain(&locks, 7)).unwrap(), 7);
        let limited = locks.lock("orders/7").max_hold(Duration::from_millis(100));
        let held = block_on(limited.into_future()).unwrap();
        let late = block_on(held.hold(std::future::pending::<()>()));
        assert_matches!(late, Err(LockError::HoldLimit { .. }));
        block_on(held.release()).unwrap();
        // Without tokio a detached body cannot be spawned, so the call is refused and acquires nothing.
        let error = block_on(detached(locks.clone(), 7)).unwrap_err();
        assert_matches!(error, LockError::Config { .. });
        assert!(error.to_string().contains("tokio runtime"), "{error}");
        assert_eq!(block_on(plain(&locks, 7)).unwrap(), 7);
        block_on(locks.shutdown(Duration::from_secs(5)));
    });
    within(
        "the thread without tokio",
        tokio::task::spawn_blocking(move || without_tokio.join().unwrap()),
    )
    .await
    .unwrap();
    corner.until_empty().await;
}
