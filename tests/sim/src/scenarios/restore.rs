//! Restore from a snapshot: keys and revision go back, while the leases of the snapshot are still there (rule P35).

use std::time::Duration;

use super::stage::{Ask, Stage, plays};
use crate::world::CallId;
use crate::world::violation::must;

/// The TTL of the calls, in seconds.
const TTL: i64 = 6;

fn take(stage: &mut Stage, n: usize, name: &str) -> CallId {
    let ask = Ask { ttl_secs: TTL, ..Ask::of(name) };
    let call = stage.ask(n, ask);
    stage.serve(call);
    call
}

/// How long a lock may take to pass to a process whose watch works.
const QUICK: Duration = Duration::from_millis(300);

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
    stage.restore(snapshot);
    stage.run(released);
    stage.release(holder);
    let since = stage.now;
    let served = stage.until(Duration::from_secs(20), |stage| stage.has(waiter));
    must!(Progress, served, "the waiter is never served");
    stage.now - since
}

/// Watches are older than a restore that a write has proved.
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
