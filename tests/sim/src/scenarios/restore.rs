//! Restore from a snapshot: keys and revision go back, while the leases of the snapshot are still there (rule P35).

use std::time::Duration;

use super::stage::{Ask, Stage, plays};
use crate::world::CallId;
use crate::world::violation::must;

/// The TTL of the calls, in seconds; a third of it passes between renewals.
const TTL: i64 = 6;
const RENEWAL: Duration = Duration::from_secs(2);
/// What a holder that finds out at its next renewal may need beyond that.
const SLACK: Duration = Duration::from_secs(1);

fn take(stage: &mut Stage, n: usize, name: &str) -> CallId {
    let ask = Ask {
        ttl_secs: TTL,
        ..Ask::of(name)
    };
    let call = stage.ask(n, ask);
    stage.serve(call);
    call
}

#[test]
fn holder_finds_out_about_a_restore_at_its_next_renewal() {
    plays(|| {
        let mut stage = Stage::of(2);
        // Both sessions are there before the snapshot, and the lock is not.
        for n in 0..2 {
            let warm = take(&mut stage, n, &format!("warm-{n}"));
            stage.release(warm);
            stage.run(Duration::from_millis(100));
        }
        let snapshot = stage.store.snapshot();
        // Etcd loses more writes than it has had again by the holder's next renewal.
        for n in 0..5 {
            let other = take(&mut stage, 0, &format!("other-{n}"));
            stage.release(other);
            stage.run(Duration::from_millis(100));
        }
        take(&mut stage, 0, "shared");
        // By now its watch is open and its record written; its next read is about a minute away.
        stage.run(Duration::from_millis(1_100));
        stage.restore(snapshot);
        take(&mut stage, 1, "shared");
        let since = stage.now;
        let over = stage.until(Duration::from_secs(30), |stage| !stage.overlaps("shared"));
        let overlap = stage.now - since;
        must!(
            I1,
            over && overlap <= RENEWAL + SLACK,
            "two calls own a name for {overlap:?} after a restore"
        );
    });
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
