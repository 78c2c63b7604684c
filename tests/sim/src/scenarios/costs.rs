//! Costs: work on twice as much takes about twice the steps of the core (invariant I12).

use std::num::NonZeroU16;
use std::thread;
use std::time::Duration;

use etcd_locked_core::{Input, Mode, Wait};

use super::stage::{SOON, call, plays, stage};
use crate::world::bench::Bench;
use crate::world::clients::{Call, Stage};
use crate::world::tally::{Happened, Tally};
use crate::world::violation::must;
use crate::world::{CallId, view};

/// How long bodies may run on in a shutdown, and how long its last exchanges may take.
const GRACE: Duration = Duration::from_secs(5);
const FAREWELL: Duration = Duration::from_secs(3);

/// Name of a work, and the steps that it takes for n.
type Work = (&'static str, fn(usize) -> u64);

/// Runs each work for n and for 2n. Twice as much work may take 2.5 times the steps: double, plus a constant.
fn grow(n: usize, works: &[Work]) {
    plays(|| {
        for (what, work) in works {
            let (once, twice) = (work(n), work(2 * n));
            println!("{what}: {once} steps for {n}, {twice} for {}", 2 * n);
            must!(
                Cost,
                twice * 2 <= once * 5,
                "{what}: {once} steps, and {twice} for twice as much"
            );
        }
    });
}

/// The steps that cores take while this happens.
fn steps_of(stage: &mut Bench, act: impl FnOnce(&mut Bench)) -> u64 {
    let before = view::steps_taken();
    act(stage);
    view::steps_taken() - before
}

/// Locks that the second process holds.
fn held(stage: &mut Bench, locks: usize) -> Vec<CallId> {
    let calls: Vec<_> = (0..locks).map(|lock| stage.ask(1, call(&format!("own-{lock}")))).collect();
    let held = stage.until(SOON, |stage| calls.iter().all(|call| stage.has(*call)));
    must!(Progress, held, "not all locks are held");
    calls
}

/// So many tasks hold a lock each, and each then asks as `ask` says. What each input costs, the crowds show.
fn cost_no_lock(tasks: usize, ask: impl Fn(usize) -> Call) {
    let mut stage = stage(2);
    stage.take_lock(0, "hot");
    let own = held(&mut stage, tasks);
    for (task, outer) in own.iter().enumerate() {
        stage.ask(1, Call { outer: Some(*outer), ..ask(task) });
    }
    let all = steps_of(&mut stage, |stage| stage.run(Duration::from_secs(6)));
    let lost = own.iter().find(|call| !stage.has(**call));
    must!(Progress, lost.is_none(), "{lost:?} has lost its lock");
    // A search of a chain goes through 16 waits.
    must!(Cost, all / 6 <= 150 * tasks as u64, "{all} steps in six seconds");
}

#[test]
fn thousand_nested_calls_cost_no_lock() {
    plays(|| {
        // One call after the other waits for what the next task holds; the last for a name of another process.
        cost_no_lock(1_000, |task| match task {
            999 => call("hot"),
            _ => call(&format!("own-{}", task + 1)),
        });
        // Groups.
        cost_no_lock(1_000, |task| {
            let mut group = call("hot");
            group.names.push(format!("locks/cold-{task}").into());
            group
        });
    });
}

/// A search of each waiter reads only what its own task holds, and 32 of them share a transaction.
#[test]
fn searches_share_transactions() {
    plays(|| {
        let mut stage = stage(2);
        stage.take_lock(0, "hot");
        for outer in held(&mut stage, 400) {
            stage.ask(1, Call { outer: Some(outer), ..call("hot") });
        }
        stage.run(Duration::from_secs(3));
        stage.tally = Tally::default();
        stage.run(Duration::from_secs(10));
        let many = stage.tally.happened[&Happened::Searched];
        must!(Cost, many <= 10 * 20, "{many} transactions of searches in ten seconds");
    });
}

/// A process that holds so many locks shuts down as `end` says (rule P26).
fn shutdown(locks: usize, end: impl FnOnce(&mut Bench, &[CallId])) -> u64 {
    let mut stage = stage(2);
    let calls = held(&mut stage, locks);
    steps_of(&mut stage, |stage| {
        let limit = stage.now + GRACE + FAREWELL;
        let until = stage.now + GRACE;
        stage.submit_soon(1, Input::Shutdown { until });
        end(stage, &calls);
        let finished = stage.run_until(limit, |stage| stage.processes[1].finished);
        must!(Progress, finished, "the process does not end");
        // Bodies that were stopped in the last moment are dropped in the next.
        stage.run(Duration::from_millis(1));
        let kept = calls.iter().find(|call| stage.has(**call));
        must!(Truth, kept.is_none(), "call {kept:?} has a lock after the end");
        stage.take_lock(0, "own-0");
    })
}

#[test]
fn shutdown_costs_the_same_for_each_lock() {
    grow(
        100,
        &[
            ("bodies end", |locks| {
                shutdown(locks, |stage, calls| {
                    for call in calls {
                        stage.run(Duration::from_millis(5));
                        stage.drop_body(*call);
                    }
                })
            }),
            ("bodies are stopped", |locks| shutdown(locks, |_, _| {})),
            ("the session ends", |locks| {
                shutdown(locks, |stage, _| {
                    stage.run(Duration::from_secs(2)); // until all keys are watched
                    stage.end_sessions(1);
                })
            }),
        ],
    );
}

/// Tries for five permits, all at once.
fn permit_tries(many: usize) -> u64 {
    let mut stage = stage(2);
    stage.take_lock(1, "warm");
    tries(stage, Mode::Permits(NonZeroU16::new(5).expect("not zero")), many)
}

/// Readers that try once, behind a writer that waits behind a reader.
fn shared_tries(many: usize) -> u64 {
    let mut stage = stage(2);
    let reader = stage.ask(1, Call { mode: Mode::Shared, ..call("busy") });
    stage.serve(reader);
    stage.ask(0, call("busy"));
    // By then what the process knows of others is stale, so it reads again.
    stage.run(Duration::from_secs(1));
    tries(stage, Mode::Shared, many)
}

fn tries(mut stage: Bench, mode: Mode, many: usize) -> u64 {
    steps_of(&mut stage, |stage| {
        let once = || Call { mode, wait: Wait::Once, ..call("busy") };
        let calls: Vec<_> = (0..many).map(|_| stage.ask(1, once())).collect();
        let is_answered = |call: &Call| matches!(call.stage, Stage::Holding(_) | Stage::Done);
        let all = |stage: &Bench| calls.iter().all(|id| is_answered(&stage.calls[id]));
        must!(InTime, stage.until(SOON, all), "a single try has no answer");
    })
}

#[test]
fn single_tries_cost_the_same_each() {
    grow(500, &[("permits", permit_tries), ("readers", shared_tries)]);
}

/// A stack overflow would abort this test process.
#[test]
fn single_tries_fit_on_a_small_stack() {
    let tries = || {
        permit_tries(3_000);
        shared_tries(3_000);
    };
    // As small as an engine's thread may have.
    let small = thread::Builder::new().stack_size(256 << 10).spawn(tries);
    small.expect("a thread").join().expect("a scenario that holds");
}

/// As etcd's user, a process has very many sessions: here one for each lock.
#[test]
fn work_on_sessions_is_linear() {
    let work: Work = ("locks, each with a session", |locks| {
        let mut stage = Bench::new(3, 2, 0);
        stage.check_every = 0;
        steps_of(&mut stage, |stage| {
            let calls = held(stage, locks);
            stage.run(Duration::from_secs(20));
            calls.into_iter().for_each(|call| stage.drop_body(call));
            stage.run(SOON);
        })
    });
    grow(100, &[work]);
}
