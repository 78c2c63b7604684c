//! `deadline`: a point in time that bounds the wait, and nothing else.

use std::time::{Duration, Instant};

use etcd_locked::{LockError, Locks, etcd_locked};

use crate::corner::{Corner, take};
use crate::limit::{run, within};
use crate::under::with_locks;

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

#[test]
fn a_wait_is_over_at_its_deadline() {
    run(async {
        let corner = Corner::new().await;
        let (mine, theirs) = (corner.locks().await, corner.locks().await);
        let held = take("their lock", theirs.lock("orders/7")).await;
        let due = Instant::now() + Duration::from_millis(300);
        let (time, named) = waited(within("the deadline", by(&mine, 7, due)).await);
        assert!(Instant::now() >= due, "too early");
        assert!(time < Duration::from_secs(5), "{time:?}");
        assert!(named, "the error does not name the holder");
        held.release().await.unwrap();
        // The deadline bounds the wait, not the body.
        let due = Instant::now() + Duration::from_secs(20);
        assert_eq!(by(&mine, 7, due).await.unwrap(), 7);
        corner.until_empty().await;
    });
}

#[test]
fn the_earlier_of_wait_and_deadlines_wins() {
    run(async {
        let corner = Corner::new().await;
        let (mine, theirs) = (corner.locks().await, corner.locks().await);
        let held = take("their lock", theirs.lock("orders/7")).await;
        let (soon, late) = (Duration::from_millis(200), Duration::from_secs(60));
        let call = || mine.lock("orders/7");
        for call in [
            call().wait(soon).deadline(Instant::now() + late),
            call().wait(late).deadline(Instant::now() + soon),
            call().wait_forever().deadline(Some(Instant::now() + soon)),
            call().wait(soon).deadline(None::<tokio::time::Instant>),
            call()
                .wait(late)
                .deadline(tokio::time::Instant::now() + soon)
                .deadline(tokio::time::Instant::now() + late),
        ] {
            let (time, _) = waited(within("the earlier", call).await);
            assert!(time < Duration::from_secs(10), "{time:?}");
        }
        held.release().await.unwrap();
    });
}

#[etcd_locked("orders/<id>", locks = locks, deadline = due, on_held = "skip")]
async fn skipped(locks: &Locks, id: u64, due: tokio::time::Instant) -> Option<u64> {
    Some(id)
}

#[test]
fn a_passed_deadline_refuses_at_once_without_asking_etcd() {
    run(async {
        let corner = Corner::new().await;
        let locks = corner.locks().await;
        // Not even a free lock is taken.
        let passed = Instant::now();
        let ended = by(&locks, 7, passed).await;
        let text = ended.as_ref().unwrap_err().to_string();
        assert_eq!(
            text,
            "lock `orders/<id>` was not asked for: the deadline has passed"
        );
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
    });
}

#[test]
fn a_deadline_does_not_bound_the_body() {
    with_locks(async |locks: &Locks| {
        let due = Instant::now() + Duration::from_millis(300);
        let held = locks.lock("orders/7").deadline(due).await.unwrap();
        held.hold(tokio::time::sleep(Duration::from_millis(400)))
            .await
            .unwrap();
        assert!(Instant::now() > due);
        held.release().await.unwrap();
    });
}
