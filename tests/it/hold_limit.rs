//! Hold limit (`at_most`): a body beyond its limit is dropped, then its lock is released.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use etcd_locked::{Current, LockError, Locks, current, etcd_locked, lock};

use crate::corner::{Corner, pass};
use crate::limit::{self, within};
use crate::under::{alone, with_locks};

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
    let Err(LockError::HoldLimit { name, limit }) = &ended else {
        panic!("{ended:?}")
    };
    assert_eq!((name.text(), *limit), (Some("orders/7"), LIMIT));
    assert_eq!(
        ended.unwrap_err().to_string(),
        "the body under lock `orders/<id>` did not end within its hold limit of 200ms"
    );
    assert!(
        held.load(Ordering::SeqCst),
        "the lock went before the body did"
    );
    pass("the next lock", theirs.lock("orders/7")).await;
    corner.until_empty().await;
}

#[etcd_locked("orders/<id>", at_most = "20s")]
async fn quick(id: u64) -> Result<u64, LockError> {
    tokio::time::sleep(Duration::from_millis(20)).await;
    Ok(id)
}

#[etcd_locked("orders/<id>", at_most = "50ms", on_held = "skip")]
async fn skipped(id: u64) -> Option<u64> {
    pending::<()>().await;
    Some(id)
}

#[etcd_locked("orders/<id>", at_most = "50ms", on_error = |error| matches!(error, LockError::HoldLimit { .. }))]
async fn handled(id: u64) -> bool {
    let _ = id;
    pending().await
}

#[test]
fn a_body_within_its_limit_answers() {
    alone(async { assert_eq!(quick(7).await.unwrap(), 7) });
}

#[test]
fn a_hold_limit_is_handled_as_any_other_error() {
    alone(async {
        assert_eq!(skipped(7).await, None);
        assert!(handled(7).await);
    });
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
