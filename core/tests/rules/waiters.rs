//! Waiters: a limited number of calls may wait, and one more is refused at once.

use crate::*;

fn limited(max_waiters: usize) -> Rig {
    Rig::with(Settings { max_waiters: Some(max_waiters), ..settings(1) })
}

/// A core that lets two calls wait. Call 1 has its lock.
fn crowded() -> Rig {
    let mut rig = limited(2);
    rig.hold(1, A);
    rig
}

impl Rig {
    #[track_caller]
    fn refuses(&mut self, call: CallId, name: &str) -> &mut Self {
        assert!(matches!(self.acquire(call, name).refused(call), Refused::Overloaded));
        self
    }

    #[track_caller]
    fn lets_wait(&mut self, call: CallId, name: &str) -> &mut Self {
        self.acquire(call, name).nothing_about(call)
    }
}

#[test]
fn one_waiter_too_many_is_refused_at_once() {
    let mut rig = crowded();
    rig.lets_wait(2, A).lets_wait(3, B).refuses(4, C);
    // Call 3 gets its lock, which makes room.
    rig.serves(3).acquire_within(5, A, SECOND).nothing_about(5).refuses(6, A);
    // So does a call that times out, one that is cancelled, and one that gets a lock by a hand-over.
    rig.live(2 * SECOND).timed_out(5);
    rig.acquire(7, A).cancel(7).lets_wait(8, A);
    rig.release(1).granted(2).lets_wait(9, A).refuses(10, A);
}

#[test]
fn try_is_not_counted_as_a_waiter() {
    let mut rig = crowded();
    rig.acquire(2, A).acquire(3, A).attempt(4, B).serves(4);
    rig.attempt(5, A).busy(5);
}

#[test]
fn nested_call_waits_beyond_the_limit_and_is_counted() {
    let mut rig = crowded();
    rig.acquire(2, A).acquire(3, A).contend("locks/b/zz");
    rig.nest(4, &[B], 1).nothing_about(4).cancel(3).refuses(5, C);
}

#[test]
fn group_is_counted_as_one_waiter() {
    let mut rig = limited(1);
    rig.acquire_all(1, &[A, B]).refuses(2, C).serves(1).lets_wait(3, C);
}

/// One input takes the steps of a few calls, whether waits end or etcd is silent, for any number of calls.
#[test]
fn waits_that_end_together_cost_many_short_steps() {
    const CALLS: u64 = 10_000;
    for (wait, held_up) in [(Wait::For(5 * SECOND), 3), (Wait::Forever, 5)] {
        let mut rig = Rig::holding();
        for call in 0..CALLS {
            rig.acquire_as(10 + call, &[A], wait);
        }
        rig.pass(3 * SECOND); // etcd has a request, and does not respond
        rig.now = rig.now + held_up * SECOND;
        rig.acquire(2, B);
        assert!(rig.steps < 20 && rig.refusals() == 0, "a caller's thread takes {}", rig.steps);
        rig.cancel(2);
        let mut refused = 0;
        while refused == 0 || rig.is_due() {
            let now = rig.pass(Duration::ZERO).refusals();
            // The first pass has two inputs: the loss of etcd, and a tick.
            assert!(now <= 2 * 256 && rig.steps < 2_000, "{now} in {} steps", rig.steps);
            refused += now as u64;
        }
        assert_eq!(refused, CALLS);
    }
}

/// Call 3, of the task of call 1, wants `b`. It is granted, or its wait ends.
#[test]
fn nested_call_waits_on_though_its_task_has_released() {
    for (wait, ends) in [(Wait::Forever, false), (Wait::For(4 * SECOND), true)] {
        let mut rig = Rig::holding();
        let holds = vec![Id(1)];
        rig.hold(2, B).submit(Input::Acquire(Acquire { wait, holds, ..ask(3, &[B]) })).give_back(1);
        rig.live(2 * SECOND).lacks(&["locks/b/a1.n0"]);
        if ends {
            rig.live(5 * SECOND).timed_out(3);
        } else {
            rig.release_fenced(2).serves(3).released(2);
        }
    }
}

#[test]
fn nested_group_that_loses_a_key_queues_again() {
    let mut rig = Rig::warm();
    rig.hold(1, C).contend("locks/a/zz").contend("locks/b/zz").acquire(2, A);
    rig.nest(3, &[A, B], 1).live(3 * SECOND);
    rig.delete_unseen("locks/a/a1.n0").live(8 * SECOND).cancel(2);
    rig.delete_unseen("locks/a/zz").delete_unseen("locks/b/zz").live(8 * SECOND).granted(3);
}

/// The put of a cancelled call has no response yet.
#[test]
fn nested_call_comes_to_the_front_beside_an_unwanted_put() {
    let others = |it: &Request| keys_put(it) != ["locks/a/a3"];
    let mut rig = Rig::waiting();
    rig.hold(8, B).hold(9, C).acquire_for(4, A, TTL + 1).nest(2, &[A], 8).nest(3, &[A], 9);
    rig.live(2 * SECOND).cancel(1).serve_all(others);
    assert_eq!(rig.sent.len(), 1);
    rig.cancel(4).cancel(2).serve_all(others).delete("locks/a/zz").granted(3);
}
