//! `permits = N`: at most N bodies at a time, over all processes.

use std::time::Duration;

use etcd_locked::{Acquire, LockError, LockMode, Name};
use etcd_locked_tests::Crowd;
use tempfile::tempdir;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::corner::{Corner, admitted, served, spawn, take};
use crate::foreign::etcdctl_lock;
use crate::limit::{self, within};
use crate::worker::Worker;

const REGION: &str = "smtp/eu";

#[limit::test]
async fn never_more_than_five_permits_of_sixty_four() {
    let corner = Corner::new().await;
    let directory = tempdir().unwrap();
    let start = |_| Worker::start(corner.environment());
    let mut workers: Vec<Worker> = (0..4).map(start).collect();
    for worker in &mut workers {
        worker.send(&format!("permits mail 16 {}", directory.path().display()));
    }
    let mut most = 0;
    for worker in &mut workers {
        for _ in 0..16 {
            let said = worker.says("permitted").await;
            let inside = said.rsplit(' ').next().and_then(|many| many.parse().ok());
            most = most.max(inside.unwrap_or(usize::MAX));
        }
    }
    assert_eq!(most, 5, "the most bodies inside at once");
    corner.until_empty().await;
}

#[limit::test]
async fn permits_are_counted_over_engines_and_given_in_order() {
    let (corner, [locks, other]) = Corner::with_engines().await;
    let third = corner.locks().await;
    let one = locks.lock(REGION).permits(2).await.unwrap();
    let two = other.lock(REGION).permits(2).await.unwrap();
    let refused = locks.lock(REGION).permits(2).try_once().await;
    assert_matches!(&refused, Err(LockError::Held { holder, .. }) if holder.is_some());
    let first = spawn(other.lock(REGION).permits(2).wait_forever());
    corner.until_contenders(REGION, 3).await;
    let second = spawn(third.lock(REGION).permits(2).wait_forever());
    corner.until_contenders(REGION, 4).await;
    one.release().await.unwrap();
    let first = admitted("the first one's admission", first).await;
    sleep(Duration::from_millis(200)).await;
    assert!(!second.is_finished(), "there are three inside");
    first.release().await.unwrap();
    let second = within("the second one's admission", second).await.unwrap();
    second.unwrap().release().await.unwrap();
    two.release().await.unwrap();
    corner.until_empty().await;
}

/// A deployment that changes the number runs old and new processes together: each call counts older permits by its own number.
#[limit::test]
async fn a_rolling_change_of_permits_never_exceeds_the_larger() {
    let (corner, [old, new]) = Corner::with_engines().await;
    let directory = tempdir().unwrap();
    let crowd = Crowd::new(directory.path());
    // The old number allows two holders, and only the new number admits a third.
    let first = take("the first permit", old.lock(REGION).permits(2)).await;
    let second = take("the second permit", old.lock(REGION).permits(2)).await;
    let third = take("the third permit", new.lock(REGION).permits(3)).await;
    let mut calls = JoinSet::new();
    for (locks, permits) in [(&old, 2), (&new, 3)] {
        for _ in 0..20 {
            let call = locks.lock(REGION).permits(permits).wait_forever();
            let crowd = crowd.clone();
            calls.spawn(async move {
                let held = call.await.expect("admitted");
                let visit = held.hold(crowd.visit()).await.expect("not lost");
                held.release().await.expect("released");
                visit.expect("a visit")
            });
        }
    }
    // The holders' work: time to catch a call that does not wait.
    sleep(Duration::from_millis(200)).await;
    assert!(calls.try_join_next().is_none(), "there are four inside");
    for held in [first, second, third] {
        held.release().await.unwrap();
    }
    let mut most = 0;
    while let Some(inside) = within("the next call's end", calls.join_next()).await {
        most = most.max(inside.expect("no panic"));
    }
    assert!((1..=3).contains(&most), "{most} were inside at once");
    corner.until_empty().await;
}

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
async fn permits_readers_and_a_writer_exclude_each_other() {
    let (corner, [locks, other]) = Corner::with_engines().await;
    /// In both processes at once.
    async fn times_out<M: LockMode>(calls: [Acquire<Name, M>; 2]) {
        let calls = calls.map(|call| {
            let wait = Duration::from_secs(3); // outlasts a busy etcd
            async move { call.wait(wait).await.map(drop) }
        });
        let [one, other] = calls;
        for result in <[_; 2]>::from(tokio::join!(one, other)) {
            assert_matches!(result, Err(LockError::Timeout { .. }));
        }
    }
    let each = [&locks, &other].map(|of| move || of.lock(REGION));
    let permit = locks.lock(REGION).permits(2).await.unwrap();
    times_out(each.map(|lock| lock())).await;
    times_out(each.map(|lock| lock().shared())).await;
    permit.release().await.unwrap();
    let reader = locks.lock(REGION).shared().await.unwrap();
    times_out(each.map(|lock| lock().permits(2))).await;
    reader.release().await.unwrap();
    let writer = locks.lock(REGION).await.unwrap();
    times_out(each.map(|lock| lock().permits(2))).await;
    writer.release().await.unwrap();
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

#[limit::test]
async fn an_invalid_number_of_permits_is_refused() {
    let locks = Corner::new().await.locks().await;
    for bad in [0, 1025] {
        let error = locks.lock(REGION).permits(bad).await.unwrap_err();
        let text = error.to_string();
        assert!(text.ends_with("ask for 1 to 1024"), "{text}");
    }
}
