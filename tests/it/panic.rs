//! Panics in a body: the panic reaches the caller, and the lock is free.

use std::any::Any;
use std::time::Duration;

use etcd_locked::{LockError, Locks, etcd_locked};

use crate::corner::{Corner, pass};
use crate::limit::{self, within};

/// A panic payload that no library makes.
#[derive(Debug, PartialEq)]
struct Payload(u32);

#[etcd_locked("orders/<id>", locks = locks)]
async fn fail(locks: &Locks, id: u64) -> Result<(), LockError> {
    tokio::task::yield_now().await;
    std::panic::panic_any(Payload(id as u32))
}

fn payload(panic: Box<dyn Any + Send>) -> Payload {
    *panic.downcast().expect("the body's own payload")
}

#[limit::test]
async fn a_panic_in_the_body_releases_the_lock() {
    let (corner, [mine, theirs]) = Corner::with_engines().await;
    // Each lets the next one in.
    let calls = [(); 5].map(|()| {
        let locks = mine.clone();
        tokio::spawn(async move { fail(&locks, 7).await })
    });
    for call in calls {
        let ended = within("the next panic", call).await.unwrap_err();
        assert_eq!(payload(ended.into_panic()), Payload(7));
    }
    // The TTL is 15 s, so the name is not freed by an expired lease.
    for locks in [&theirs, &mine] {
        let next = locks.lock("orders/7").wait(Duration::from_secs(5));
        pass("the next lock", next).await;
    }
    corner.until_empty().await;
}

#[limit::test]
async fn a_panic_under_a_guard_releases_the_lock() {
    let (corner, [locks]) = Corner::with_engines().await;
    let task = tokio::spawn({
        let locks = locks.clone();
        async move {
            let held = locks.lock("orders/7").await.unwrap();
            held.hold(async { std::panic::panic_any(Payload(8)) }).await
        }
    });
    let ended = within("the panic", task).await.map(|it: Result<(), LockError>| it).unwrap_err();
    assert_eq!(payload(ended.into_panic()), Payload(8));
    corner.until_empty().await;
    pass("the next lock", locks.lock("orders/7")).await;
}
