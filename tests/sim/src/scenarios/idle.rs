//! Idle held locks: what they cost etcd does not grow with their number.

use std::time::Duration;

use super::stage::{Ask, SOON, Stage, plays};
use crate::world::violation::must;

/// Held locks, at first.
const LOCKS: usize = 1_000;

/// So many locks, which have just been taken.
fn held(locks: usize) -> Stage {
    let mut stage = Stage::of(1);
    let calls: Vec<_> =
        (0..locks).map(|lock| stage.ask(0, Ask::of(&format!("lock-{lock}")))).collect();
    let held = stage.until(SOON, |stage| calls.iter().all(|call| stage.has(*call)));
    must!(Progress, held, "not all locks are held");
    stage
}

/// Requests, and reads that they carry, of three minutes.
fn costs(locks: usize) -> (usize, usize) {
    let mut stage = held(locks);
    stage.run(Duration::from_secs(4));
    let since = stage.now;
    stage.run(Duration::from_secs(180));
    (stage.requests(0, since), stage.reads(0, since))
}

#[test]
fn idle_locks_send_no_more_requests_than_few() {
    plays(|| {
        let ((few, _), (many, _)) = (costs(10), costs(LOCKS));
        // One list more or less, as its moment varies.
        must!(
            Quiet,
            many.abs_diff(few) <= 1,
            "10 idle locks send {few} requests, and {LOCKS} send {many}"
        );
    });
}

#[test]
fn idle_locks_are_not_read() {
    plays(|| {
        let (_, reads) = costs(LOCKS);
        must!(Quiet, reads == 0, "{LOCKS} idle locks are read {reads} times");
    });
}
