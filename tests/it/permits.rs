//! `permits = N`: at most N bodies at a time, over all processes.

use std::time::Duration;

use tempfile::tempdir;
use tokio::time::sleep;

use crate::corner::{Corner, served, spawn};
use crate::foreign::etcdctl_lock;
use crate::limit;
use crate::worker::Worker;

const REGION: &str = "smtp/eu";

/// Returns the most that are inside at once, as each of these processes sees it from now on.
async fn most_inside(replicas: &mut [Worker]) -> usize {
    for replica in &mut *replicas {
        replica.send("visits 30");
    }
    let mut most = 0;
    for replica in replicas {
        let seen = replica.says("most").await;
        most = most.max(seen.parse().expect("a number"));
    }
    most
}

/// Lets a process finish its calls, and shuts its engine down.
async fn retire(mut replica: Worker) {
    replica.asked("leave mail", "limited").await;
    replica.asked("shutdown 5000", "shut").await;
    assert_eq!(replica.unread(), [""; 0]);
}

/// Three processes under load are replaced one after the other, each new one starting before its old one ends: from 5 permits
/// to 8, and back.
#[limit::test]
async fn rolling_deployments_of_another_number_exceed_none() {
    let corner = Corner::new().await;
    let directory = tempdir().unwrap();
    let start = |permits: u16| {
        let mut worker = Worker::start(corner.environment());
        let crowd = directory.path().display();
        worker.send(&format!("limited mail {permits} 8 {crowd}"));
        worker
    };
    let mut replicas: Vec<Worker> = (0..3).map(|_| start(5)).collect();
    let most = most_inside(&mut replicas).await;
    assert!((2..=5).contains(&most), "{most} of 5 permits");
    for permits in [8, 5] {
        for at in 0..replicas.len() {
            replicas.push(start(permits));
            let most = most_inside(&mut replicas).await;
            assert!(most <= 8, "{most} while some ask for 5 and some for 8");
            retire(replicas.swap_remove(at)).await;
        }
        // None of the other number is left, neither inside nor in the queue.
        let most = most_inside(&mut replicas).await;
        let reached = if permits == 8 { 6..=8 } else { 2..=5 };
        assert!(reached.contains(&most), "{most} of {permits} permits");
    }
    for replica in replicas {
        retire(replica).await;
    }
    corner.until_empty().await;
}

#[limit::test]
async fn etcdctl_and_permits_exclude_each_other() {
    let (corner, [locks, other]) = Corner::with_engines().await;
    let permit = locks.lock(REGION).permits(3).await.unwrap();
    let mut etcdctl = etcdctl_lock(&corner, REGION, &[]);
    let keys = corner.until_contenders(REGION, 2).await;
    let later = other.lock(REGION).permits(3).wait_forever();
    let later = spawn(later);
    corner.until_contenders(REGION, 3).await;
    sleep(Duration::from_millis(300)).await;
    let said = etcdctl.unread();
    assert!(said.is_empty(), "etcdctl is in with a permit: {said:?}");
    assert!(!later.is_finished(), "a permit overtakes etcdctl");
    permit.release().await.unwrap();
    assert_eq!(etcdctl.line().await, keys[1].text);
    sleep(Duration::from_millis(300)).await;
    assert!(!later.is_finished(), "a permit is in with etcdctl");
    etcdctl.terminate();
    served("the permit's admission", later).await;
    corner.until_empty().await;
}
