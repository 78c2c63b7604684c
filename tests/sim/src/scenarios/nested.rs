//! Nested waiters by the hundred: tasks that hold a lock of their own and wait for a name of another process, alone or with a
//! second name.

use std::num::NonZeroU16;
use std::time::Duration;

use super::stage::{Ask, SOON, Stage, plays};
use super::steps::{is_linear, is_quadratic, steps_of};
use crate::world::CallId;
use crate::world::violation::must;
use etcd_locked_core::{Mode, Wait};

/// Tasks, at first.
const TASKS: usize = 40;
/// A wait that ends half a second after the stage is set.
const ENDS: Wait = Wait::For(Duration::from_millis(3_500));

/// A process holds the hot name, and so many tasks of another have waited for it for three seconds; and the steps of that.
fn waiting(tasks: usize, wait: Wait) -> (Stage, CallId, Vec<CallId>, u64) {
    let mut stage = Stage::of(2);
    let hot = stage.take(0, "hot");
    let (calls, steps) = wait_on(&mut stage, tasks, wait, |_| Ask::of("hot"));
    (stage, hot, calls, steps)
}

/// The same behind a call that waits on, as each asks.
fn waiting_behind(tasks: usize, wait: Wait, ask: fn(usize) -> Ask) -> (Stage, Vec<CallId>, u64) {
    let mut stage = Stage::of(2);
    stage.take(0, "hot");
    stage.ask(1, Ask::of("hot"));
    let (calls, steps) = wait_on(&mut stage, tasks, wait, ask);
    (stage, calls, steps)
}

fn wait_on(
    stage: &mut Stage,
    tasks: usize,
    wait: Wait,
    ask: impl Fn(usize) -> Ask,
) -> (Vec<CallId>, u64) {
    let own: Vec<_> =
        (0..tasks).map(|task| stage.ask(1, Ask::of(&format!("own-{task}")))).collect();
    let held = stage.until(SOON, |stage| own.iter().all(|call| stage.has(*call)));
    must!(Progress, held, "not all tasks hold a lock of their own");
    let mut calls = Vec::new();
    let steps = steps_of(stage, |stage| {
        for (task, outer) in own.into_iter().enumerate() {
            let ask =
                Ask { holds: vec![outer], hold: Some(Duration::from_millis(1)), wait, ..ask(task) };
            calls.push(stage.ask(1, ask));
        }
        stage.run(Duration::from_secs(3));
    });
    (calls, steps)
}

/// The steps until the waits of these calls have ended, which began three seconds ago.
fn waits_end(mut stage: Stage, calls: &[CallId]) -> u64 {
    steps_of(&mut stage, |stage| {
        stage.run(Duration::from_secs(1));
        let refused = calls.iter().all(|call| stage.refusal(*call).is_some());
        must!(Progress, refused, "nested waiters wait on");
    })
}

/// The steps until these calls have been cancelled.
fn give_up(mut stage: Stage, calls: Vec<CallId>) -> u64 {
    steps_of(&mut stage, |stage| {
        for call in calls {
            stage.cancel(call);
        }
        stage.run(Duration::from_secs(1));
    })
}

#[test]
fn nested_waiters_cost_the_same_each_while_they_wait() {
    plays(|| {
        is_linear("three seconds of nested waiters", TASKS, |tasks| {
            waiting(tasks, Wait::Forever).3
        });
    });
}

#[test]
fn nested_waiters_cost_the_same_each_while_they_are_served() {
    plays(|| {
        is_linear("to serve nested waiters", TASKS, |tasks| {
            let (mut stage, hot, calls, _) = waiting(tasks, Wait::Forever);
            steps_of(&mut stage, |stage| {
                stage.release(hot);
                let served =
                    |stage: &Stage| calls.iter().all(|call| stage.calls[call].granted.is_some());
                let served = stage.until(Duration::from_secs(60), served);
                must!(Progress, served, "nested waiters are not served");
            })
        });
    });
}

#[test]
fn nested_waiters_cost_the_same_each_when_they_give_up() {
    plays(|| {
        is_linear("nested waiters that give up", TASKS, |tasks| {
            let (stage, _, calls, _) = waiting(tasks, Wait::Forever);
            give_up(stage, calls)
        });
    });
}

#[test]
fn nested_waiters_cost_the_same_each_with_a_reader_behind_them() {
    plays(|| {
        is_linear("nested waiters before a reader", TASKS, |tasks| {
            let (mut stage, ..) = waiting(tasks, Wait::Forever);
            let mode = Mode::Shared;
            stage.ask(1, Ask { mode, ..Ask::of("hot") });
            steps_of(&mut stage, |stage| stage.run(Duration::from_secs(3)))
        });
    });
}

/// All of them have edges, which go before a caller learns that its wait is over.
#[test]
fn nested_waiters_cost_the_same_each_when_their_waits_end() {
    plays(|| {
        is_linear("nested waiters whose waits end", TASKS, |tasks| {
            let (stage, _, calls, _) = waiting(tasks, ENDS);
            waits_end(stage, &calls)
        });
    });
}

/// One of another mode makes all that it waits for matter to it.
#[test]
fn nested_waiters_cost_the_same_each_when_their_waits_end_beside_a_reader() {
    plays(|| {
        is_linear("mixed waiters whose waits end", TASKS, |tasks| {
            let (mut stage, _, calls, _) = waiting(tasks, ENDS);
            let mode = Mode::Shared;
            stage.ask(1, Ask { mode, ..Ask::of("hot") });
            waits_end(stage, &calls)
        });
    });
}

fn group(second: String) -> Ask {
    Ask { names: vec!["hot".into(), second], ..Ask::of("hot") }
}

fn same(_: usize) -> Ask {
    group("cold".into())
}

fn of_its_own(task: usize) -> Ask {
    group(format!("cold-{task}"))
}

fn permits(task: usize) -> Ask {
    let of = u16::try_from(task + 1).ok().and_then(NonZeroU16::new);
    Ask { mode: Mode::Permits(of.expect("few")), ..Ask::of("hot") }
}

#[test]
fn nested_permits_cost_the_same_each_whatever_their_numbers() {
    plays(|| {
        is_linear("three seconds of nested permits", TASKS, |tasks| {
            waiting_behind(tasks, Wait::Forever, permits).2
        });
        is_linear("nested permits whose waits end", TASKS, |tasks| {
            let (stage, calls, _) = waiting_behind(tasks, ENDS, permits);
            waits_end(stage, &calls)
        });
    });
}

#[test]
fn nested_groups_cost_the_same_each_while_they_wait() {
    plays(|| {
        is_linear("three seconds of nested groups", TASKS, |tasks| {
            waiting_behind(tasks, Wait::Forever, same).2
        });
    });
}

#[test]
fn nested_groups_cost_the_same_each_when_they_give_up() {
    plays(|| {
        is_linear("nested groups that give up", TASKS, |tasks| {
            let (stage, calls, _) = waiting_behind(tasks, Wait::Forever, same);
            give_up(stage, calls)
        });
    });
}

#[test]
fn nested_groups_cost_the_same_each_when_their_waits_end() {
    plays(|| {
        is_linear("nested groups whose waits end", TASKS, |tasks| {
            let (stage, calls, _) = waiting_behind(tasks, ENDS, same);
            waits_end(stage, &calls)
        });
    });
}

/// Each depends on what all before it wait for.
#[test]
fn nested_groups_of_different_names_cost_n_squared_at_most() {
    plays(|| {
        is_quadratic("different groups whose waits end", TASKS, |tasks| {
            let (stage, calls, _) = waiting_behind(tasks, ENDS, of_its_own);
            waits_end(stage, &calls)
        });
    });
}

#[test]
fn nested_waiters_keep_their_locks() {
    let (stage, ..) = waiting(4 * TASKS, Wait::Forever);
    let lost: Vec<_> = stage.calls.iter().filter(|(_, call)| call.lost.is_some()).collect();
    assert!(lost.is_empty(), "{lost:?}");
}
