//! How many calls may wait: one more is refused at once.

use std::time::Duration;

use super::rig::{Rig, TTL};
use etcd_locked_core::{Input, Refused};
use etcd_locked_core::Wait;

/// A core that lets two calls wait; call 1 has its lock.
fn crowded() -> Rig {
    let mut rig = Rig::with_waiters(2);
    rig.acquire(1, "locks/a", Wait::Forever);
    rig.serve();
    rig.granted(1);
    rig
}

#[test]
fn one_more_is_refused_at_once() {
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
    assert!(rig.told(5).is_none());
    assert!(matches!(rig.refused(6), Refused::Overloaded));
    // So does one that has waited long enough, one that has gone, and one that a lock is handed to.
    rig.live(Duration::from_secs(2));
    assert!(matches!(rig.refused(5), Refused::Timeout { .. }));
    rig.acquire(7, "locks/a", Wait::Forever);
    rig.tell(Input::Cancel { call: 7 });
    rig.acquire(8, "locks/a", Wait::Forever);
    assert!(rig.told(8).is_none());
    rig.release(1);
    rig.granted(2);
    rig.acquire(9, "locks/a", Wait::Forever);
    assert!(rig.told(9).is_none());
    rig.acquire(10, "locks/a", Wait::Forever);
    assert!(matches!(rig.refused(10), Refused::Overloaded));
}

#[test]
fn a_single_try_is_no_waiter() {
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
fn who_holds_a_lock_is_let_in_and_counted() {
    let mut rig = crowded();
    rig.acquire(2, "locks/a", Wait::Forever);
    rig.acquire(3, "locks/a", Wait::Forever);
    rig.contend("locks/b/zz");
    rig.acquire_inside(4, "locks/b", 1);
    assert!(rig.told(4).is_none());
    rig.tell(Input::Cancel { call: 3 });
    rig.acquire_for(5, "locks/c", Wait::Forever, TTL);
    assert!(matches!(rig.refused(5), Refused::Overloaded));
}

#[test]
fn a_group_is_one_waiter() {
    let mut rig = Rig::with_waiters(1);
    rig.acquire_all(1, &["locks/a", "locks/b"], Wait::Forever);
    rig.acquire(2, "locks/c", Wait::Forever);
    assert!(matches!(rig.refused(2), Refused::Overloaded));
    rig.serve();
    rig.granted(1);
    rig.acquire(3, "locks/c", Wait::Forever);
    assert!(rig.told(3).is_none());
}
