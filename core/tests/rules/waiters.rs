//! Waiters: so many calls may wait, and one more is refused at once.

use std::time::Duration;

use etcd_locked_core::{Mode, Refused, Wait};

use crate::rig::{Rig, TTL};

const SECOND: Duration = Duration::from_secs(1);

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

/// The steps of one input are those of a few calls, whether waits end or etcd is silent, and however many calls are concerned.
#[test]
fn waits_that_end_together_cost_many_short_steps() {
    const CALLS: u64 = 10_000;
    for (wait, held_up) in [(Wait::For(Duration::from_secs(5)), 3), (Wait::Forever, 5)] {
        let mut rig = Rig::warm();
        rig.hold(1, "locks/a");
        (0..CALLS).for_each(|call| rig.acquire(10 + call, "locks/a", wait));
        rig.pass(Duration::from_secs(3)); // etcd is asked something, and does not answer
        rig.now = rig.now + Duration::from_secs(held_up);
        rig.acquire(2, "locks/b", Wait::Forever);
        assert!(rig.steps < 20 && rig.refusals() == 0, "a caller's thread takes {}", rig.steps);
        rig.cancel(2);
        let mut refused = 0;
        while refused == 0 || rig.is_due() {
            rig.pass(Duration::ZERO);
            let now = rig.refusals();
            // The first pass has two inputs: etcd is lost, and a tick.
            assert!(now <= 2 * 256 && rig.steps < 2_000, "{now} in {} steps", rig.steps);
            refused += now as u64;
        }
        assert_eq!(refused, CALLS);
    }
}

#[test]
fn nested_call_is_served_though_its_task_has_released() {
    let mut rig = Rig::warm();
    rig.hold(1, "locks/a");
    rig.hold(2, "locks/b");
    rig.acquire_inside(3, "locks/b", 1);
    rig.give_back(1);
    rig.release_fenced(2);
    rig.serve();
    rig.granted(3);
    assert!(rig.released(2).is_ok());
}

#[test]
fn nested_wait_ends_though_its_task_has_released() {
    let mut rig = Rig::warm();
    rig.hold(1, "locks/a");
    rig.hold(2, "locks/b");
    rig.call(3, &["locks/b"], Mode::Exclusive, Wait::For(4 * SECOND), TTL, &[1]);
    rig.give_back(1);
    rig.live(5 * SECOND);
    assert!(matches!(rig.refused(3), Refused::Timeout { .. }));
}

/// An operator deletes one of the keys by which it waits.
#[test]
fn nested_group_that_loses_a_key_queues_again() {
    let mut rig = Rig::warm();
    rig.hold(1, "locks/x");
    for other in ["locks/a/zz", "locks/b/zz"] {
        rig.contend(other);
    }
    rig.acquire(2, "locks/a", Wait::Forever);
    rig.call(3, &["locks/a", "locks/b"], Mode::Exclusive, Wait::Forever, TTL, &[1]);
    rig.live(3 * SECOND);
    rig.store.delete(b"locks/a/a1.n0");
    rig.live(8 * SECOND);
    rig.cancel(2);
    for other in ["locks/a/zz", "locks/b/zz"] {
        rig.store.delete(other.as_bytes());
    }
    rig.live(8 * SECOND);
    rig.granted(3);
}
