//! Bounds of a call: a deadline ends its wait, and a hold limit (`max_hold`) ends its body.

use std::time::{Duration, Instant};

use etcd_locked::{Acquire, LockError, Locks, LossCause, etcd_locked};

use crate::corner::{Corner, refused_after_its_wait, take};
use crate::limit::{self, within};
use crate::under::with_locks;

const SOON: Duration = Duration::from_millis(500);
const LATE: Duration = Duration::from_secs(60);
const LIMIT: Duration = Duration::from_millis(200);

#[limit::test]
async fn the_earlier_of_wait_and_deadlines_wins() {
    let (_, [mine, theirs]) = Corner::with_engines().await;
    let held = take("their lock", theirs.lock("orders/7")).await;
    let bounds: [fn(Acquire) -> Acquire; 5] = [
        |call| call.wait(SOON).wait_until(Instant::now() + LATE),
        |call| call.wait(LATE).wait_until(Instant::now() + SOON),
        |call| call.wait_forever().wait_until(Some(Instant::now() + SOON)),
        |call| call.wait(SOON).wait_until(None::<tokio::time::Instant>),
        |call| {
            let now = tokio::time::Instant::now();
            call.wait(LATE).wait_until(now + SOON).wait_until(now + LATE)
        },
    ];
    for bound in bounds {
        let call = async || bound(mine.lock("orders/7")).await;
        let refused = refused_after_its_wait("the earlier", call).await;
        let LockError::Timeout { waited, .. } = refused else { panic!("{refused:?}") };
        assert!(waited >= SOON / 2, "over before it began: {waited:?}");
        assert!(waited < Duration::from_secs(10), "{waited:?}");
    }
    held.release().await.unwrap();
}

#[etcd_locked("orders/<id>", locks = locks, wait = "forever", wait_until = due)]
async fn by(locks: &Locks, id: u64, due: Instant) -> Result<u64, LockError> {
    // A deadline does not bound the body.
    tokio::time::sleep_until((due + LIMIT).into()).await;
    Ok(id)
}

#[etcd_locked("orders/<id>", locks = locks, wait_until = due, on_held = "skip")]
async fn skipped(locks: &Locks, id: u64, due: tokio::time::Instant) -> Option<u64> {
    Some(id)
}

#[limit::test]
async fn a_passed_deadline_alone_refuses_without_asking_etcd() {
    let (corner, [locks]) = Corner::with_engines().await;
    // Not even a free lock is acquired. A write would show as an event.
    let (passed, before) = (Instant::now(), corner.revision().await);
    let tried = locks.lock("orders/7").try_once().wait_until(passed).await.map(|_| 7);
    for ended in [by(&locks, 7, passed).await, tried] {
        let never = matches!(ended, Err(LockError::Timeout { waited: Duration::ZERO, .. }));
        assert!(never, "{ended:?}");
    }
    let text = by(&locks, 7, passed).await.unwrap_err().to_string();
    assert_eq!(text, "lock `orders/<id>` was not requested: the deadline has passed");
    assert_eq!(skipped(&locks, 7, passed.into()).await, None);
    assert_eq!(corner.changes_after(before).await, 0);
    assert_eq!(by(&locks, 7, Instant::now() + 6 * SOON).await.unwrap(), 7);
    // An invalid name is still refused.
    let never = locks.lock("orders//7").wait_until(passed).await;
    assert_matches!(never, Err(LockError::InvalidName { .. }));
}

#[test]
fn a_guard_limits_its_bodies_and_stays_held() {
    with_locks(async |locks: &Locks| {
        let held = locks.lock("orders/7").max_hold(LIMIT).await.unwrap();
        assert_eq!(held.hold(async { 5 }).await.unwrap(), 5);
        // A body that is polled all the time does not need a wake-up, and is stopped before its next poll.
        let busy = async {
            loop {
                tokio::task::yield_now().await;
            }
        };
        let both = async { tokio::join!(held.hold(busy), held.lost()) };
        let (late, cause): (Result<(), _>, _) = within("the limit", both).await;
        assert_matches!(late, Err(LockError::HoldLimit { .. }));
        assert_eq!(cause, LossCause::HoldLimit);
        let mut ran = false;
        let later = held.hold(async { ran = true }).await;
        assert_matches!(later, Err(LockError::HoldLimit { .. }));
        assert!(!ran, "a body began after the limit");
        assert!(held.is_held());
        held.release().await.unwrap();
    });
}
