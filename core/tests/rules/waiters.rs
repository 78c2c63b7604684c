//! Waiters: so many calls may wait, and one more is refused at once.

use std::time::Duration;

use etcd_locked_core::{Refused, Wait};

use crate::rig::{Rig, TTL};

/// A core that lets two calls wait; call 1 has its lock.
fn crowded() -> Rig {
    let mut rig = Rig::with_waiters(2);
    rig.hold(1, "locks/a");
    rig
}

#[test]
fn one_waiter_too_many_is_refused_at_once() {
    let mut rig = crowded();
    rig.acquire(2, "locks/a", Wait::Forever);
    rig.acquire(3, "locks/b", Wait::Forever);
    rig.acquire(4, "locks/c", Wait::Forever);
    assert!(matches!(rig.refused(4), Refused::Overloaded));
    // Call 3 has its lock, and makes room.
    rig.serve();
    rig.granted(3);
    rig.acquire(5, "locks/a", Wait::For(Duration::from_secs(1)));
    rig.acquire(6, "locks/a", Wait::Forever);
    assert!(rig.output(5).is_none());
    assert!(matches!(rig.refused(6), Refused::Overloaded));
    // So does one that has waited long enough, one that has gone, and one that a lock is handed to.
    rig.live(Duration::from_secs(2));
    assert!(matches!(rig.refused(5), Refused::Timeout { .. }));
    rig.acquire(7, "locks/a", Wait::Forever);
    rig.cancel(7);
    rig.acquire(8, "locks/a", Wait::Forever);
    assert!(rig.output(8).is_none());
    rig.release(1);
    rig.granted(2);
    rig.acquire(9, "locks/a", Wait::Forever);
    assert!(rig.output(9).is_none());
    rig.acquire(10, "locks/a", Wait::Forever);
    assert!(matches!(rig.refused(10), Refused::Overloaded));
}

#[test]
fn try_is_not_counted_as_a_waiter() {
    let mut rig = crowded();
    rig.acquire(2, "locks/a", Wait::Forever);
    rig.acquire(3, "locks/a", Wait::Forever);
    rig.acquire(4, "locks/b", Wait::Once);
    rig.serve();
    rig.granted(4);
    rig.acquire(5, "locks/a", Wait::Once);
    assert!(matches!(rig.refused(5), Refused::Held { .. }));
}

#[test]
fn nested_call_waits_beyond_the_limit_and_is_counted() {
    let mut rig = crowded();
    rig.acquire(2, "locks/a", Wait::Forever);
    rig.acquire(3, "locks/a", Wait::Forever);
    rig.contend("locks/b/zz");
    rig.acquire_inside(4, "locks/b", 1);
    assert!(rig.output(4).is_none());
    rig.cancel(3);
    rig.acquire_for(5, "locks/c", Wait::Forever, TTL);
    assert!(matches!(rig.refused(5), Refused::Overloaded));
}

#[test]
fn group_is_counted_as_one_waiter() {
    let mut rig = Rig::with_waiters(1);
    rig.acquire_all(1, &["locks/a", "locks/b"], Wait::Forever);
    rig.acquire(2, "locks/c", Wait::Forever);
    assert!(matches!(rig.refused(2), Refused::Overloaded));
    rig.serve();
    rig.granted(1);
    rig.acquire(3, "locks/c", Wait::Forever);
    assert!(rig.output(3).is_none());
}
