//! Nested waiters by the hundred: tasks that hold a lock of their own and wait for one name of another process.

use std::time::Duration;

use super::stage::{Ask, SOON, Stage, plays};
use super::steps::{is_linear, steps_of};
use crate::world::CallId;
use crate::world::violation::must;
use etcd_locked_core::{Mode, Wait};

/// Tasks, at first.
const TASKS: usize = 40;

/// A process holds the hot name, and so many tasks of another have waited for it for three seconds; and the steps of that.
fn waiting(tasks: usize, wait: Wait) -> (Stage, CallId, Vec<CallId>, u64) {
    let mut stage = Stage::of(2);
    let hot = stage.take(0, "hot");
    let own: Vec<_> = (0..tasks)
        .map(|task| stage.ask(1, Ask::of(&format!("own-{task}"))))
        .collect();
    let held = stage.until(SOON, |stage| own.iter().all(|call| stage.has(*call)));
    must!(Progress, held, "not all tasks hold a lock of their own");
    let mut calls = Vec::new();
    let steps = steps_of(&mut stage, |stage| {
        for outer in own {
            let ask = Ask {
                holds: vec![outer],
                hold: Some(Duration::from_millis(1)),
                wait,
                ..Ask::of("hot")
            };
            calls.push(stage.ask(1, ask));
        }
        stage.run(Duration::from_secs(3));
    });
    (stage, hot, calls, steps)
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
            let (mut stage, _, calls, _) = waiting(tasks, Wait::Forever);
            steps_of(&mut stage, |stage| {
                for call in calls {
                    stage.cancel(call);
                }
                stage.run(Duration::from_secs(1));
            })
        });
    });
}

#[test]
fn nested_waiters_cost_the_same_each_with_a_reader_behind_them() {
    plays(|| {
        is_linear("nested waiters before a reader", TASKS, |tasks| {
            let (mut stage, ..) = waiting(tasks, Wait::Forever);
            let mode = Mode::Shared;
            stage.ask(
                1,
                Ask {
                    mode,
                    ..Ask::of("hot")
                },
            );
            steps_of(&mut stage, |stage| stage.run(Duration::from_secs(3)))
        });
    });
}

/// All of them have edges, which go before a caller learns that its wait is over.
#[test]
fn nested_waiters_cost_the_same_each_when_their_waits_end() {
    plays(|| {
        is_linear("nested waiters whose waits end", TASKS, |tasks| {
            let wait = Wait::For(Duration::from_millis(3_500));
            let (mut stage, _, calls, _) = waiting(tasks, wait);
            steps_of(&mut stage, |stage| {
                stage.run(Duration::from_secs(1));
                let refused = calls.iter().all(|call| stage.refusal(*call).is_some());
                must!(Progress, refused, "nested waiters wait on");
            })
        });
    });
}

/// One of another mode makes all that it waits for matter to it.
#[test]
fn nested_waiters_cost_the_same_each_when_their_waits_end_beside_a_reader() {
    plays(|| {
        is_linear("mixed waiters whose waits end", TASKS, |tasks| {
            let wait = Wait::For(Duration::from_millis(3_500));
            let (mut stage, _, calls, _) = waiting(tasks, wait);
            let mode = Mode::Shared;
            stage.ask(
                1,
                Ask {
                    mode,
                    ..Ask::of("hot")
                },
            );
            steps_of(&mut stage, |stage| {
                stage.run(Duration::from_secs(1));
                let refused = calls.iter().all(|call| stage.refusal(*call).is_some());
                must!(Progress, refused, "nested waiters wait on");
            })
        });
    });
}

#[test]
fn nested_waiters_keep_their_locks() {
    let (stage, ..) = waiting(4 * TASKS, Wait::Forever);
    let lost: Vec<_> = stage
        .calls
        .iter()
        .filter(|(_, call)| call.lost.is_some())
        .collect();
    assert!(lost.is_empty(), "{lost:?}");
}
