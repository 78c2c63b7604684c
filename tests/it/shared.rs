//! `shared`: readers hold a name together, writers alone, and neither starves. Go's plain mutex on the name excludes both.

use std::time::Duration;

use etcd_locked::LockError;
use tokio::time::sleep;

use crate::corner::{Corner, admitted, served, spawn};
use crate::foreign::etcdctl_lock;
use crate::limit;
use crate::worker::Worker;

const DAY: &str = "reports/monday";

/// Long enough to catch a call that is admitted wrongly, and for an earlier read of the queue to be stale.
const A_WHILE: Duration = Duration::from_millis(400);

#[limit::test]
async fn readers_overlap_across_processes_and_a_writer_is_alone() {
    let (corner, [locks]) = Corner::with_engines().await;
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

    let writer = spawn(locks.lock("jobs/day").wait_forever());
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
    let written = admitted("the writer's admission", writer).await;
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
}

#[limit::test]
async fn a_reader_does_not_become_a_writer() {
    let (corner, [locks]) = Corner::with_engines().await;
    let held = locks.lock(DAY).shared().await.unwrap();
    let inside = held.hold(async {
        let again = locks.lock(DAY).shared().reentrant().await;
        let alone = locks.lock(DAY).reentrant().await;
        (again.is_ok(), alone)
    });
    let (again, alone) = inside.await.unwrap();
    assert!(again, "a reader may read again");
    assert_matches!(alone, Err(LockError::SelfDeadlock { .. }));
    held.release().await.unwrap();
    corner.until_empty().await;
}

#[limit::test]
async fn etcdctl_and_readers_exclude_each_other() {
    let (corner, [locks]) = Corner::with_engines().await;
    let held = locks.lock(DAY).shared().await.unwrap();
    let mut etcdctl = etcdctl_lock(&corner, DAY, &[]);
    let keys = corner.until_contenders(DAY, 2).await;
    sleep(A_WHILE).await;
    let said = etcdctl.unread();
    assert!(said.is_empty(), "etcdctl is in with a reader: {said:?}");
    let later = spawn(locks.lock(DAY).shared().wait_forever());
    sleep(A_WHILE).await;
    assert!(!later.is_finished(), "a reader overtakes etcdctl");
    held.release().await.unwrap();
    assert_eq!(etcdctl.line().await, keys[1].text);
    corner.until_contenders(DAY, 2).await;
    sleep(A_WHILE).await;
    assert!(!later.is_finished(), "a reader is in with etcdctl");
    etcdctl.terminate();
    served("the reader's admission", later).await;
    corner.until_empty().await;
}
