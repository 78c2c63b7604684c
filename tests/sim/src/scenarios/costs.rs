//! Costs: twice the work takes about twice the steps of the core (invariant I12).

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

/// The grace period of a shutdown, and the time for its last exchanges.
const GRACE: Duration = Duration::from_secs(5);
const FAREWELL: Duration = Duration::from_secs(3);

/// The name of a task, and the steps that it takes for `n` items.
type Work = (&'static str, fn(usize) -> u64);

/// Runs each task for n and for 2n. Twice the items may take 2.5 times the steps: double, plus a constant.
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

/// Returns the steps of all cores while `act` runs.
fn steps_of(stage: &mut Bench, act: impl FnOnce(&mut Bench)) -> u64 {
    let before = view::steps_taken();
    act(stage);
    view::steps_taken() - before
}

/// Takes locks in the second process.
fn held(stage: &mut Bench, locks: usize) -> Vec<CallId> {
    let calls: Vec<_> = (0..locks).map(|lock| stage.ask(1, call(&format!("own-{lock}")))).collect();
    let held = stage.until(SOON, |stage| calls.iter().all(|call| stage.has(*call)));
    must!(Progress, held, "not all locks are held");
    calls
}

/// Lets each of these tasks hold a lock, then make the nested call `ask`. The crowds check the cost of each input.
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
    // A search follows a chain for 16 waits.
    must!(Cost, all / 6 <= 150 * tasks as u64, "{all} steps in six seconds");
}

#[test]
fn thousand_nested_calls_cost_no_lock() {
    plays(|| {
        // Each call waits for the lock of the next task, and the last one for a name of another process.
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

/// The search of each waiter reads only what its own task holds, and 32 searches share a transaction.
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

/// Shuts down a process that holds these locks, while `end` ends their bodies (rule P26).
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
        // Bodies that were stopped in the last millisecond are dropped in the next.
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

/// Makes these tries for five permits, all at once.
fn permit_tries(many: usize) -> u64 {
    let mut stage = stage(2);
    stage.take_lock(1, "warm");
    tries(stage, Mode::Permits(NonZeroU16::new(5).expect("not zero")), many)
}

/// Makes readers try once, behind a writer that waits for a reader.
fn shared_tries(many: usize) -> u64 {
    let mut stage = stage(2);
    let reader = stage.ask(1, Call { mode: Mode::Shared, ..call("busy") });
    stage.serve(reader);
    stage.ask(0, call("busy"));
    // By then the process's knowledge of other processes is stale, so it reads again.
    stage.run(Duration::from_secs(1));
    tries(stage, Mode::Shared, many)
}

fn tries(mut stage: Bench, mode: Mode, many: usize) -> u64 {
    steps_of(&mut stage, |stage| {
        let once = || Call { mode, wait: Wait::Once, ..call("busy") };
        let calls: Vec<_> = (0..many).map(|_| stage.ask(1, once())).collect();
        let is_answered = |call: &Call| matches!(call.stage, Stage::Holding(_) | Stage::Done);
        let all = |stage: &Bench| calls.iter().all(|id| is_answered(&stage.calls[id]));
        must!(InTime, stage.until(SOON, all), "a single try gets no result");
    })
}

#[test]
fn single_tries_cost_the_same_each() {
    grow(500, &[("permits", permit_tries), ("readers", shared_tries)]);
}

/// If the stack overflows, the test process aborts.
#[test]
fn single_tries_fit_on_a_small_stack() {
    let tries = || {
        permit_tries(3_000);
        shared_tries(3_000);
    };
    // The smallest stack that an engine's thread may have.
    let small = thread::Builder::new().stack_size(256 << 10).spawn(tries);
    small.expect("a thread").join().expect("a scenario that holds");
}

/// A process with an etcd user has very many sessions: here one for each lock.
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
