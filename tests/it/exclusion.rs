//! Mutual exclusion: a name has at most one holder across tasks, engines and processes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use etcd_locked::{LockError, Locks, etcd_locked};
use etcd_locked_tests::Witness;
use tempfile::tempdir;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::corner::Corner;
use crate::limit::{run, within};
use crate::worker::Worker;

#[etcd_locked("orders/<id>", locks = locks, wait = "forever")]
async fn visit(locks: &Locks, id: u64, witness: &Witness) -> Result<(), LockError> {
    witness.visit().await.expect("no other visitor is inside");
    Ok(())
}

/// The same lock under another spelling, and with a TTL, hence a lease, of its own.
#[etcd_locked("orders/7", locks = locks, wait = "forever", ttl = "7s")]
async fn visit_seven(locks: &Locks, witness: &Witness) -> Result<(), LockError> {
    witness.visit().await.expect("no other visitor is inside");
    Ok(())
}

async fn all(mut tasks: JoinSet<()>) {
    while let Some(ended) = within("the next task's end", tasks.join_next()).await {
        ended.expect("a task that does not panic");
    }
}

#[test]
fn tasks_of_one_engine_exclude_each_other() {
    run(async {
        let locks = Corner::new().await.locks().await;
        let directory = tempdir().unwrap();
        let witness = Witness::new(directory.path());
        let mut tasks = JoinSet::new();
        for _ in 0..8 {
            let (locks, witness) = (locks.clone(), witness.clone());
            tasks.spawn(async move {
                for _ in 0..25 {
                    visit(&locks, 7, &witness).await.unwrap();
                }
            });
        }
        all(tasks).await;
        assert_eq!(witness.count().unwrap(), 200);
    });
}

#[test]
fn leases_of_one_engine_exclude_each_other() {
    run(async {
        let locks = Corner::new().await.locks().await;
        let directory = tempdir().unwrap();
        let witness = Witness::new(directory.path());
        let mut tasks = JoinSet::new();
        for task in 0..4 {
            let (locks, witness) = (locks.clone(), witness.clone());
            tasks.spawn(async move {
                for _ in 0..15 {
                    match task % 2 {
                        0 => visit(&locks, 7, &witness).await.unwrap(),
                        _ => visit_seven(&locks, &witness).await.unwrap(),
                    }
                }
            });
        }
        all(tasks).await;
        assert_eq!(witness.count().unwrap(), 60);
    });
}

#[test]
fn engines_exclude_each_other() {
    run(async {
        let corner = Corner::new().await;
        let directory = tempdir().unwrap();
        let witness = Witness::new(directory.path());
        let mut tasks = JoinSet::new();
        for _ in 0..4 {
            let locks = corner.locks().await;
            for _ in 0..2 {
                let (locks, witness) = (locks.clone(), witness.clone());
                tasks.spawn(async move {
                    for _ in 0..10 {
                        visit(&locks, 7, &witness).await.unwrap();
                    }
                });
            }
        }
        all(tasks).await;
        assert_eq!(witness.count().unwrap(), 80);
    });
}

#[test]
fn processes_exclude_each_other() {
    run(async {
        let corner = Corner::new().await;
        let directory = tempdir().unwrap();
        let mut workers: Vec<_> = (0..3)
            .map(|_| Worker::start(corner.environment()))
            .collect();
        for worker in &mut workers {
            // Two tasks each: the process excludes its own tasks while etcd excludes processes.
            worker.send(&format!("churn till 15 {}", directory.path().display()));
            worker.send(&format!("churn till 15 {}", directory.path().display()));
        }
        for worker in &mut workers {
            worker.says("churned").await;
            worker.says("churned").await;
        }
        assert_eq!(Witness::new(directory.path()).count().unwrap(), 90);
    });
}

#[test]
fn other_names_are_not_waited_for() {
    run(async {
        let locks = Corner::new().await.locks().await;
        let _one = locks.lock("orders/1").await.unwrap();
        let _two = locks
            .lock("orders/2")
            .try_once()
            .await
            .expect("another name is free");
        // Neither a name above nor one below is the same lock.
        let _above = locks
            .lock("orders")
            .try_once()
            .await
            .expect("a shorter name is free");
        let _below = locks
            .lock("orders/1/lines")
            .try_once()
            .await
            .expect("a longer name is free");
    });
}

#[test]
fn a_held_name_is_not_entered_before_its_release() {
    run(async {
        let corner = Corner::new().await;
        let (first, second) = (corner.locks().await, corner.locks().await);
        let order = Arc::new(AtomicU32::new(0));
        let held = first.lock("orders/7").await.unwrap();
        let (entered, entry) = oneshot::channel();
        let seen = order.clone();
        let waiter = tokio::spawn(async move {
            let held = second.lock("orders/7").wait_forever().await.unwrap();
            let _ = entered.send(seen.load(Ordering::SeqCst));
            held.release().await.unwrap();
        });
        corner.until_contenders("orders/7", 2).await;
        // The holder's work: long enough to catch a waiter that does not wait.
        tokio::time::sleep(Duration::from_millis(500)).await;
        order.store(1, Ordering::SeqCst);
        held.release().await.unwrap();
        assert_eq!(
            within("the waiter's admission", entry).await.unwrap(),
            1,
            "the waiter was in before the release"
        );
        within("the waiter's end", waiter).await.unwrap();
        corner.until_empty().await;
    });
}
