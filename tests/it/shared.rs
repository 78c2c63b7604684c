//! `shared`: readers hold a name together, writers alone, and neither starves. Go's plain mutex on the name excludes both.

use std::future::IntoFuture;
use std::time::Duration;

use etcd_locked::{LockError, Locks, LossCause, etcd_locked};
use tokio::sync::Barrier;
use tokio::time::sleep;

use crate::corner::Corner;
use crate::foreign::etcdctl_lock;
use crate::limit::{run, within};
use crate::worker::Worker;

const DAY: &str = "reports/monday";

/// Long enough to catch a call that is admitted wrongly, and for an earlier read of the queue to be stale.
const A_WHILE: Duration = Duration::from_millis(400);

#[etcd_locked("reports/<day>", shared, locks = locks, wait = "5s", guard = report)]
async fn read(locks: &Locks, day: &str, together: &Barrier) -> Result<i64, LockError> {
    together.wait().await;
    Ok(report.token().as_i64())
}

#[test]
fn readers_overlap_across_processes_and_a_writer_is_alone() {
    run(async {
        let corner = Corner::new().await;
        let locks = corner.locks().await;
        let start = |_| Worker::start(corner.environment());
        let mut workers: Vec<Worker> = (0..4).map(start).collect();
        for worker in &mut workers {
            worker.send("read day 16");
        }
        for worker in &mut workers {
            for _ in 0..16 {
                worker.says("reads").await;
            }
        }
        // All 64 readers are inside, with one key a process.
        let keys = corner.until_contenders("jobs/day", 4).await;
        assert!(keys.iter().all(|key| key.text.ends_with(".r0")), "{keys:?}");

        let writer = tokio::spawn(locks.lock("jobs/day").wait_forever().into_future());
        corner.until_contenders("jobs/day", 5).await;
        sleep(A_WHILE).await;
        for worker in &mut workers {
            worker.send("read day 4");
        }
        sleep(A_WHILE).await;
        assert!(!writer.is_finished(), "the writer is in with the readers");
        for worker in &mut workers {
            let said = worker.unread();
            assert!(said.is_empty(), "a reader overtakes the writer: {said:?}");
            worker.send("leave day");
        }
        for worker in &mut workers {
            for _ in 0..16 {
                worker.says("read").await;
            }
        }
        let written = within("the writer's admission", writer)
            .await
            .unwrap()
            .unwrap();
        corner.until_contenders("jobs/day", 5).await;
        sleep(A_WHILE).await;
        for worker in &mut workers {
            let said = worker.unread();
            assert!(said.is_empty(), "a reader is in with the writer: {said:?}");
        }
        written.release().await.unwrap();
        for worker in &mut workers {
            for _ in 0..4 {
                worker.says("reads").await;
            }
            worker.send("leave day");
        }
        corner.until_empty().await;
    });
}

#[test]
fn readers_of_a_process_have_a_token_each() {
    run(async {
        let corner = Corner::new().await;
        let locks = corner.locks().await;
        let before = locks.lock(DAY).await.unwrap();
        let first = before.token().as_i64();
        before.release().await.unwrap();
        let together = Barrier::new(3);
        let calls = [(); 3].map(|()| read(&locks, "monday", &together));
        let [one, two, three] = calls;
        let (one, two, three) = tokio::join!(one, two, three);
        let mut tokens = [one.unwrap(), two.unwrap(), three.unwrap()];
        tokens.sort_unstable();
        assert!(
            first < tokens[0] && tokens[0] < tokens[1] && tokens[1] < tokens[2],
            "{tokens:?} after {first}"
        );
        let after = locks.lock(DAY).await.unwrap();
        assert!(after.token().as_i64() > tokens[2], "{tokens:?}");
        after.release().await.unwrap();
        corner.until_empty().await;
    });
}

#[test]
fn a_key_goes_with_the_last_of_its_readers() {
    run(async {
        let corner = Corner::new().await;
        let locks = corner.locks().await;
        let one = locks.lock(DAY).shared().await.unwrap();
        let two = locks.lock(DAY).shared().await.unwrap();
        corner.until_contenders(DAY, 1).await;
        one.release().await.unwrap();
        corner.until_contenders(DAY, 1).await;
        assert!(two.is_held());
        // A later reader with another TTL has a key of its own.
        let other = locks.lock(DAY).shared().ttl(Duration::from_secs(30));
        let other = other.await.unwrap();
        corner.until_contenders(DAY, 2).await;
        two.release().await.unwrap();
        other.release().await.unwrap();
        corner.until_empty().await;
    });
}

#[test]
fn loss_of_a_key_ends_all_its_readers() {
    run(async {
        let corner = Corner::new().await;
        let locks = corner.locks().await;
        let one = locks.lock(DAY).shared().await.unwrap();
        let two = locks.lock(DAY).shared().await.unwrap();
        let keys = corner.until_contenders(DAY, 1).await;
        let mut client = corner.client.clone();
        client.delete(keys[0].text.as_str(), None).await.unwrap();
        for held in [&one, &two] {
            let cause = within("the loss", held.lost()).await;
            assert_eq!(cause, LossCause::Deleted);
        }
        // A new reader does not rely on the lost key.
        let three = tokio::spawn(locks.lock(DAY).shared().into_future());
        drop((one, two));
        let three = within("a reader's admission", three)
            .await
            .unwrap()
            .unwrap();
        three.release().await.unwrap();
        corner.until_empty().await;
    });
}

#[test]
fn a_single_try_joins_readers_only() {
    run(async {
        let corner = Corner::new().await;
        let (locks, other) = (corner.locks().await, corner.locks().await);
        let held = locks.lock(DAY).shared().await.unwrap();
        let joined = other.lock(DAY).shared().try_once().await.unwrap();
        let alone = other.lock(DAY).try_once().await;
        assert!(matches!(alone, Err(LockError::Held { .. })), "{alone:?}");
        let here = locks.lock(DAY).shared().try_once().await.unwrap();
        for reader in [held, joined, here] {
            reader.release().await.unwrap();
        }
        let writer = locks.lock(DAY).await.unwrap();
        for reader in [&locks, &other] {
            let refused = reader.lock(DAY).shared().try_once().await;
            let named = matches!(
                &refused,
                Err(LockError::Held {
                    holder: Some(_),
                    ..
                })
            );
            assert!(named, "{refused:?}");
        }
        writer.release().await.unwrap();
        corner.until_empty().await;
    });
}

#[test]
fn a_reader_does_not_become_a_writer() {
    run(async {
        let corner = Corner::new().await;
        let locks = corner.locks().await;
        let held = locks.lock(DAY).shared().await.unwrap();
        let inside = held.hold(async {
            let again = locks.lock(DAY).shared().reentrant().await;
            let alone = locks.lock(DAY).reentrant().await;
            (again.is_ok(), alone)
        });
        let (again, alone) = inside.await.unwrap();
        assert!(again, "a reader may read again");
        let refused = matches!(alone, Err(LockError::SelfDeadlock { .. }));
        assert!(refused, "{alone:?}");
        held.release().await.unwrap();
        corner.until_empty().await;
    });
}

#[test]
fn several_names_are_shared_together() {
    run(async {
        let corner = Corner::new().await;
        let (locks, other) = (corner.locks().await, corner.locks().await);
        let both = locks.lock("a").and("b").shared().await.unwrap();
        let one = other.lock("b").shared().await.unwrap();
        let writer = other.lock("a").wait(Duration::from_secs(3)).await;
        assert!(
            matches!(writer, Err(LockError::Timeout { .. })),
            "{writer:?}"
        );
        both.release().await.unwrap();
        one.release().await.unwrap();
        corner.until_empty().await;
    });
}

#[test]
fn etcdctl_and_readers_exclude_each_other() {
    run(async {
        let corner = Corner::new().await;
        let locks = corner.locks().await;
        let held = locks.lock(DAY).shared().await.unwrap();
        let mut etcdctl = etcdctl_lock(&corner, DAY, &[]);
        let keys = corner.until_contenders(DAY, 2).await;
        sleep(A_WHILE).await;
        let said = etcdctl.unread();
        assert!(said.is_empty(), "etcdctl is in with a reader: {said:?}");
        let later = tokio::spawn(locks.lock(DAY).shared().wait_forever().into_future());
        sleep(A_WHILE).await;
        assert!(!later.is_finished(), "a reader overtakes etcdctl");
        held.release().await.unwrap();
        assert_eq!(etcdctl.line().await, keys[1].text);
        corner.until_contenders(DAY, 2).await;
        sleep(A_WHILE).await;
        assert!(!later.is_finished(), "a reader is in with etcdctl");
        etcdctl.terminate();
        let later = within("the reader's admission", later)
            .await
            .unwrap()
            .unwrap();
        later.release().await.unwrap();
        corner.until_empty().await;
    });
}
