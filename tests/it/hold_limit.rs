//! Hold limit (`at_most`): a body beyond its limit is dropped, then its lock is released.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use etcd_locked::{Current, LockError, Locks, current, etcd_locked, lock};

use crate::corner::{Corner, pass};
use crate::limit::{self, within};
use crate::under::with_locks;

const LIMIT: Duration = Duration::from_millis(200);

/// Records whether the lock was still held when this was dropped.
struct DroppedUnder {
    lock: Current,
    held: Arc<AtomicBool>,
}

impl Drop for DroppedUnder {
    fn drop(&mut self) {
        self.held.store(self.lock.is_held(), Ordering::SeqCst);
    }
}

#[etcd_locked("orders/<id>", locks = locks, at_most = "200ms")]
async fn stay(locks: &Locks, id: u64, held: Arc<AtomicBool>) -> Result<(), LockError> {
    let lock = current().expect("inside");
    let _under = DroppedUnder { lock, held };
    pending().await
}

#[limit::test]
async fn a_body_beyond_its_limit_is_dropped_before_its_key_goes() {
    let (corner, [mine, theirs]) = Corner::with_engines().await;
    let held = Arc::new(AtomicBool::new(false));
    let ended = within("the limit", stay(&mine, 7, held.clone())).await;
    let Err(LockError::HoldLimit { name, limit }) = &ended else { panic!("{ended:?}") };
    assert_eq!((name.text(), *limit), (Some("orders/7"), LIMIT));
    assert_eq!(
        ended.unwrap_err().to_string(),
        "the body under lock `orders/<id>` did not end within its hold limit of 200ms"
    );
    assert!(held.load(Ordering::SeqCst), "the lock went before the body did");
    pass("the next lock", theirs.lock("orders/7")).await;
    corner.until_empty().await;
}

#[test]
fn a_guard_limits_its_bodies_and_stays_held() {
    with_locks(async |locks: &Locks| {
        let held = locks.lock("orders/7").at_most(LIMIT).await.unwrap();
        assert_eq!(held.hold(async { 5 }).await.unwrap(), 5);
        let late = within("the limit", held.hold(pending::<()>())).await;
        assert_matches!(late, Err(LockError::HoldLimit { .. }));
        let mut ran = false;
        let later = held.hold(async { ran = true }).await;
        assert_matches!(later, Err(LockError::HoldLimit { .. }));
        assert!(!ran, "a body began after the limit");
        assert!(held.is_held());
        held.release().await.unwrap();
        let no_time = lock("orders/7").at_most(Duration::ZERO);
        let held = locks.scope(async { no_time.await }).await.unwrap();
        let nothing = held.hold(async { ran = true }).await;
        assert!(matches!(nothing, Err(LockError::HoldLimit { .. })));
        assert!(!ran);
        held.release().await.unwrap();
    });
}

/// A body that is polled all the time needs no wake-up, and is stopped before its next poll.
#[test]
fn a_busy_body_is_stopped_too() {
    with_locks(async |locks: &Locks| {
        let held = locks.lock("orders/7").at_most(LIMIT).await.unwrap();
        let busy = async {
            loop {
                tokio::task::yield_now().await;
            }
        };
        let ended: Result<(), _> = within("the limit", held.hold(busy)).await;
        assert_matches!(ended, Err(LockError::HoldLimit { .. }));
        held.release().await.unwrap();
    });
}
