//! Idle held locks: what they cost etcd does not grow with their number.

use std::time::Duration;

use super::stage::{Ask, SOON, Stage, plays};
use crate::world::violation::must;

/// Held locks, at first: more than are read in a tenth of a second.
const LOCKS: usize = 1_000;
/// Requests that more locks may cost by accident of the moment.
const SLACK: usize = 10;

/// So many locks, which have just been taken.
fn held(locks: usize) -> Stage {
    let mut stage = Stage::of(1);
    let calls: Vec<_> = (0..locks)
        .map(|lock| stage.ask(0, Ask::of(&format!("lock-{lock}"))))
        .collect();
    let held = stage.until(SOON, |stage| calls.iter().all(|call| stage.has(*call)));
    must!(Progress, held, "not all locks are held");
    stage
}

/// Requests of a minute, in which each is read once.
fn requests(locks: usize) -> usize {
    let mut stage = held(locks);
    stage.run(Duration::from_secs(4));
    let since = stage.now;
    stage.run(Duration::from_secs(65));
    stage.requests(0, since)
}

#[test]
fn idle_locks_send_no_more_requests_than_few() {
    plays(|| {
        let (once, twice) = (requests(LOCKS), requests(2 * LOCKS));
        must!(
            Quiet,
            twice <= once + SLACK,
            "{LOCKS} idle locks send {once} requests, and {} send {twice}",
            2 * LOCKS
        );
    });
}

#[test]
fn idle_lock_is_read_about_once_a_minute() {
    plays(|| {
        let mut stage = held(LOCKS);
        stage.run(Duration::from_secs(4));
        let since = stage.now;
        stage.run(Duration::from_secs(180));
        let reads = stage.reads(0, since);
        // Two operations a read, and a fourth minute begun.
        must!(
            Quiet,
            reads <= 2 * 4 * LOCKS,
            "{LOCKS} idle locks are read {reads} times in three minutes"
        );
    });
}
