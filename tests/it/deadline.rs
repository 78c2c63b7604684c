//! `deadline`: a point in time that bounds the wait, and nothing else.

use std::time::{Duration, Instant};

use etcd_locked::{Acquire, LockError, Locks, etcd_locked};

use crate::corner::{Corner, refused_after_its_wait, take};
use crate::limit;
use crate::under::with_locks;

const SOON: Duration = Duration::from_millis(500);
const LATE: Duration = Duration::from_secs(60);

fn waited(ended: Result<impl std::fmt::Debug, LockError>) -> (Duration, bool) {
    match ended {
        Err(LockError::Timeout { waited, holder, .. }) => (waited, holder.is_some()),
        other => panic!("{other:?}"),
    }
}

#[etcd_locked("orders/<id>", locks = locks, wait = "forever", deadline = due)]
async fn by(locks: &Locks, id: u64, due: Instant) -> Result<u64, LockError> {
    tokio::time::sleep(Duration::from_millis(1)).await; // beyond the deadline, if that is now
    Ok(id)
}

#[limit::test]
async fn the_earlier_of_wait_and_deadlines_wins() {
    let (_, [mine, theirs]) = Corner::with_engines().await;
    let held = take("their lock", theirs.lock("orders/7")).await;
    let bounds: [fn(Acquire) -> Acquire; 5] = [
        |call| call.wait(SOON).deadline(Instant::now() + LATE),
        |call| call.wait(LATE).deadline(Instant::now() + SOON),
        |call| call.wait_forever().deadline(Some(Instant::now() + SOON)),
        |call| call.wait(SOON).deadline(None::<tokio::time::Instant>),
        |call| {
            let now = tokio::time::Instant::now();
            call.wait(LATE).deadline(now + SOON).deadline(now + LATE)
        },
    ];
    for bound in bounds {
        let call = async || bound(mine.lock("orders/7")).await;
        let refused = refused_after_its_wait("the earlier", call).await;
        let (time, _) = waited(Err::<(), _>(refused));
        assert!(time >= SOON / 2, "over before it began: {time:?}");
        assert!(time < Duration::from_secs(10), "{time:?}");
    }
    held.release().await.unwrap();
}

#[etcd_locked("orders/<id>", locks = locks, deadline = due, on_held = "skip")]
async fn skipped(locks: &Locks, id: u64, due: tokio::time::Instant) -> Option<u64> {
    Some(id)
}

#[limit::test]
async fn a_passed_deadline_refuses_at_once_without_asking_etcd() {
    let (corner, [locks]) = Corner::with_engines().await;
    // Not even a free lock is taken.
    let passed = Instant::now();
    let ended = by(&locks, 7, passed).await;
    let text = ended.as_ref().unwrap_err().to_string();
    assert_eq!(text, "lock `orders/<id>` was not asked for: the deadline has passed");
    assert_eq!(waited(ended), (Duration::ZERO, false));
    assert_eq!(skipped(&locks, 7, passed.into()).await, None);
    let tried = locks.lock("orders/7").try_once().deadline(passed).await;
    assert_eq!(waited(tried), (Duration::ZERO, false));
    // A write would show as an event.
    let before = corner.revision().await;
    let ended = by(&locks, 8, passed).await;
    assert_eq!(waited(ended), (Duration::ZERO, false));
    assert_eq!(corner.changes_after(before).await, 0);
    // An invalid name is refused all the same.
    let never = locks.lock("orders//7").deadline(passed).await;
    assert!(matches!(never, Err(LockError::InvalidName { .. })));
}

#[test]
fn a_deadline_does_not_bound_the_body() {
    with_locks(async |locks: &Locks| {
        let due = Instant::now() + Duration::from_secs(3);
        let held = take("a free name", locks.lock("orders/7").deadline(due)).await;
        let past = due + Duration::from_millis(100);
        held.hold(tokio::time::sleep_until(past.into())).await.unwrap();
        held.release().await.unwrap();
    });
}
