//! Deadlock detection: of tasks in a cycle exactly one gets `Deadlock`, within seconds.

use std::sync::Arc;
use std::time::{Duration, Instant};

use etcd_locked::{LockError, Locks, etcd_locked};
use tokio::sync::Barrier;

use crate::corner::Corner;
use crate::limit::{self, within};
use crate::worker::Worker;

/// The time within which a cycle across processes is broken.
const SOON: Duration = Duration::from_secs(12);

#[etcd_locked("accounts/<first>", locks = &locks, wait = "forever")]
async fn outer(
    locks: Locks,
    first: &str,
    second: &str,
    both: Arc<Barrier>,
) -> Result<(), LockError> {
    both.wait().await;
    inner(&locks, second).await
}

#[etcd_locked("accounts/<name>", locks = locks, wait = "forever")]
async fn inner(locks: &Locks, name: &str) -> Result<(), LockError> {
    let _ = name;
    Ok(())
}

/// Runs two tasks that take two locks in opposite order, each on its engine; returns their results and the time they took.
async fn crosswise(one: Locks, other: Locks) -> ([Result<(), LockError>; 2], Duration) {
    let both = Arc::new(Barrier::new(2));
    let began = Instant::now();
    let one = tokio::spawn(outer(one, "alice", "bob", both.clone()));
    let other = tokio::spawn(outer(other, "bob", "alice", both));
    let ends = async { [one.await.expect("no panic"), other.await.expect("no panic")] };
    (within("the end of both", ends).await, began.elapsed())
}

/// Checks that exactly one of the two tasks was refused, and returns its error.
fn the_one_refused(ends: [Result<(), LockError>; 2]) -> LockError {
    let mut refused: Vec<_> = ends.into_iter().filter_map(Result::err).collect();
    assert_eq!(refused.len(), 1, "{refused:?}");
    refused.remove(0)
}

#[limit::test]
async fn detects_cycle_across_engines() {
    let (corner, [one, other]) = Corner::with_engines().await;
    let (ends, took) = crosswise(one, other).await;
    assert!(took < SOON, "{took:?}");
    let error = the_one_refused(ends);
    assert!(error.is_retryable());
    let LockError::Deadlock { name, cycle } = &error else { panic!("{error:?}") };
    assert_eq!(name.template(), Some("accounts/<name>"));
    let holders: Vec<_> = cycle.holders().collect();
    assert_eq!(holders.len(), 2, "the other, and itself: {cycle:?}");
    for holder in holders {
        assert_eq!(holder.template(), Some("accounts/<first>"));
        assert_eq!(holder.pid(), std::process::id());
        assert!(holder.function().unwrap().ends_with("::outer"));
    }
    let (shown, whole) = (error.to_string(), format!("{error:?}"));
    assert!(!shown.contains("alice") && !shown.contains("bob"), "{shown}");
    assert!(shown.contains("accounts/<first>"), "{shown}");
    assert!(whole.contains("accounts/alice") && whole.contains("accounts/bob"), "{whole}");
    corner.until_empty().await;
}

#[limit::test]
async fn detects_cycle_across_processes() {
    let corner = Corner::new().await;
    let environment = corner.environment();
    let mut workers = [environment.clone(), environment].map(Worker::start);
    for (worker, [first, second]) in workers.iter_mut().zip([["a", "b"], ["b", "a"]]) {
        assert_eq!(worker.asked(&format!("nest {first} {second}"), "holds").await, first);
    }
    let began = Instant::now();
    for (worker, first) in workers.iter_mut().zip(["a", "b"]) {
        worker.send(&format!("done {first}"));
    }
    let mut ends = Vec::new();
    for worker in &mut workers {
        ends.push(worker.line().await);
    }
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    ends.sort();
    assert!(ends[0].starts_with("failed ") && ends[0].contains(" Deadlock "), "{ends:?}");
    assert!(ends[1].starts_with("nested "), "{ends:?}");
    corner.until_empty().await;
}
