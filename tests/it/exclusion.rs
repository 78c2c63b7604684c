//! Mutual exclusion: a name has at most one holder across tasks, leases, engines and processes.

use etcd_locked::{LockError, Locks, etcd_locked};
use etcd_locked_tests::Witness;
use tempfile::tempdir;
use tokio::task::JoinSet;

use crate::corner::Corner;
use crate::limit::{self, within};

#[etcd_locked("orders/<id>", locks = locks, wait = "forever")]
async fn visit(locks: &Locks, id: u64, witness: &Witness) -> Result<(), LockError> {
    witness.visit().await.expect("no other visitor is inside");
    Ok(())
}

/// Takes the same lock, spelled differently, and with another TTL, so under another lease.
#[etcd_locked("orders/7", locks = locks, wait = "forever", ttl = "7s")]
async fn visit_seven(locks: &Locks, witness: &Witness) -> Result<(), LockError> {
    witness.visit().await.expect("no other visitor is inside");
    Ok(())
}

#[limit::test]
async fn tasks_leases_and_engines_exclude_each_other() {
    let (_, engines) = Corner::with_engines::<3>().await;
    let directory = tempdir().unwrap();
    let witness = Witness::new(directory.path());
    let mut visitors = JoinSet::new();
    for (locks, task) in engines.iter().flat_map(|locks| (0..4).map(move |task| (locks, task))) {
        let (locks, witness) = (locks.clone(), witness.clone());
        visitors.spawn(async move {
            for _ in 0..12 {
                match task % 2 {
                    0 => visit(&locks, 7, &witness).await.expect("served"),
                    _ => visit_seven(&locks, &witness).await.expect("served"),
                }
            }
        });
    }
    while let Some(ended) = within("the next task's end", visitors.join_next()).await {
        ended.expect("a task that does not panic");
    }
    assert_eq!(witness.count().unwrap(), 3 * 4 * 12);
}

#[limit::test]
async fn processes_exclude_each_other() {
    let corner = Corner::new().await;
    let directory = tempdir().unwrap();
    let mut workers: Vec<_> = (0..3).map(|_| corner.worker([])).collect();
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
}
