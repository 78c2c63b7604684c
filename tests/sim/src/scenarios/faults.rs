//! Faults that random schedules hardly meet: a refusal that is taken back, a restore, a compaction.

use std::time::Duration;

use super::stage::{Ask, Stage, plays};
use crate::world::CallId;
use crate::world::violation::must;

/// For how long etcd's user may not write.
const DENIED: Duration = Duration::from_secs(5);
/// How long the name may stay blocked after that.
const FREE: Duration = Duration::from_secs(30);
/// How long a lock may take to pass to a process whose watch works.
const QUICK: Duration = Duration::from_millis(300);
/// How soon a holder learns that an operator has deleted its key.
const SOON: Duration = Duration::from_secs(2);

/// A put without an answer, and a barrier that etcd refuses for a while (rules P10, P34). Another process has the name in time,
/// though the session of the first one lives on.
pub(crate) fn refused_barrier() {
    let mut stage = Stage::of(2);
    let held = stage.take(0, "held");
    stage.unanswered = Some("ambiguous");
    let call = stage.ask(0, Ask::of("ambiguous"));
    stage.run(Duration::from_secs(1));
    stage.store.forbidden = Some("locks%s");
    stage.run(DENIED);
    stage.unanswered = None;
    stage.store.forbidden = None;
    stage.cancel(call);
    stage.release(call);
    let other = stage.ask(1, Ask::of("ambiguous"));
    let served = stage.until(FREE, |stage| stage.has(other));
    must!(I4, served, "{:?} block the name, which no call has", stage.keys("ambiguous"));
    must!(Truth, stage.has(held), "the lock that was held is lost");
}

#[test]
fn refused_barrier_is_sent_again() {
    plays(refused_barrier);
}

fn take(stage: &mut Stage, n: usize, name: &str) -> CallId {
    let call = stage.ask(n, Ask { ttl_secs: 6, ..Ask::of(name) });
    stage.serve(call);
    call
}

/// How long a waiter takes to be served whose watch is older than a restore, if its lock is released so long after that.
fn served_after(released: Duration) -> Duration {
    let mut stage = Stage::of(2);
    let holder = take(&mut stage, 0, "passed on");
    let waiter = stage.ask(1, Ask::of("passed on"));
    stage.run(Duration::from_secs(1));
    let snapshot = stage.store.snapshot();
    // Many revisions: a watch that waits for the next of them waits for long.
    for n in 0..500 {
        let other = take(&mut stage, 0, &format!("other-{n}"));
        stage.release(other);
    }
    stage.store.restore(stage.now, snapshot);
    stage.run(released);
    stage.release(holder);
    let since = stage.now;
    let served = stage.until(Duration::from_secs(20), |stage| stage.has(waiter));
    must!(Progress, served, "the waiter is never served");
    stage.now - since
}

/// etcd is restored from a snapshot: keys and revision go back, while the leases of the snapshot are still there (rule P35). Watches
/// are older than the restore, which a write has proved.
pub(crate) fn watches_after_a_restore() {
    // By then each process has renewed, and written. At some of these moments a read of the waiter is not near.
    let moments = (0..10).map(|n| Duration::from_millis(12_000 + n * 700));
    let slowest = moments.map(served_after).max().unwrap_or_default();
    must!(
        InTime,
        slowest < QUICK,
        "a lock takes {slowest:?} to pass to another process, long after a restore"
    );
}

#[test]
fn watches_work_again_after_a_restore() {
    plays(watches_after_a_restore);
}

#[test]
fn holder_learns_of_its_deleted_key_after_a_compaction() {
    plays(|| {
        let mut stage = Stage::of(2);
        let held = stage.take(0, "name");
        stage.take(1, "other");
        stage.store.compact();
        // What is held for a second is watched.
        stage.run(Duration::from_secs(4));
        for key in stage.keys("name") {
            stage.store.delete(key.as_bytes());
        }
        let stopped = stage.until(SOON, |stage| !stage.has(held));
        must!(InTime, stopped, "its key is gone, and its body runs on");
    });
}
