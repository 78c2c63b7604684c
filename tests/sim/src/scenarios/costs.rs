//! Costs: work on twice as much takes about twice the steps of the core (invariant I12).

use std::num::NonZeroU16;
use std::thread;
use std::time::Duration;

use etcd_locked_core::{Input, Mode, Wait};

use super::stage::{SOON, call, key, plays, stage};
use crate::world::bench::Bench;
use crate::world::clients::Call;
use crate::world::violation::must;
use crate::world::{CallId, view};

/// Twice as much work may take 2.5 times the steps: double, plus a constant.
const LINEAR: (u64, u64) = (5, 2);
/// Where each part depends on all others, twice as much may take 4.5 times the steps: fourfold, plus a constant.
const QUADRATIC: (u64, u64) = (9, 2);

/// A wait that ends half a second after nested waiters have waited for three.
const ENDS: Wait = Wait::For(Duration::from_millis(3_500));
/// How long bodies may run on in a shutdown, and how long its last exchanges may take.
const GRACE: Duration = Duration::from_secs(5);
const FAREWELL: Duration = Duration::from_secs(3);

/// Name of a work, and the steps that it takes for n.
type Work = (&'static str, fn(usize) -> u64);

/// Runs each work for n and for 2n, and compares the steps.
fn grow(n: usize, most: (u64, u64), works: &[Work]) {
    plays(|| {
        for (what, work) in works {
            let (once, twice) = (work(n), work(2 * n));
            println!("{what}: {once} steps for {n}, {twice} for {}", 2 * n);
            must!(
                Cost,
                twice * most.1 <= once * most.0,
                "{what}: {once} steps for {n}, and {twice} for {}",
                2 * n
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

fn are_over(stage: &Bench, calls: &[CallId]) -> bool {
    calls.iter().all(|call| stage.is_over(*call))
}

/// Tasks that hold a lock of their own and have waited for three seconds for the hot name, which another process holds.
struct Nested {
    stage: Bench,
    hot: CallId,
    own: Vec<CallId>,
    calls: Vec<CallId>,
    steps: u64,
}

impl Nested {
    fn waiters(tasks: usize, wait: Wait) -> Self {
        Self::new(tasks, wait, false, |_| call("hot"))
    }

    /// Each task makes the call that `ask` returns; if `behind`, one more call of its process queues first and keeps waiting.
    fn new(tasks: usize, wait: Wait, behind: bool, ask: fn(usize) -> Call) -> Self {
        let mut stage = stage(2);
        let hot = stage.take_lock(0, "hot");
        if behind {
            stage.ask(1, call("hot"));
        }
        let own = held(&mut stage, tasks);
        let mut calls = Vec::new();
        let steps = steps_of(&mut stage, |stage| {
            for (task, outer) in own.iter().enumerate() {
                let (outer, hold) = (Some(*outer), Duration::from_millis(1));
                calls.push(stage.ask(1, Call { outer, hold, wait, ..ask(task) }));
            }
            stage.run(Duration::from_secs(3));
        });
        Self { stage, hot, own, calls, steps }
    }

    /// Adds a reader behind them, to which everything they wait for matters.
    fn before_a_reader(mut self) -> Self {
        self.stage.ask(1, Call { mode: Mode::Shared, ..call("hot") });
        self
    }

    fn wait_on(mut self) -> u64 {
        steps_of(&mut self.stage, |stage| stage.run(Duration::from_secs(3)))
    }

    fn served(mut self) -> u64 {
        steps_of(&mut self.stage, |stage| {
            stage.drop_body(self.hot);
            let served = stage.until(Duration::from_secs(60), |stage| are_over(stage, &self.calls));
            must!(Progress, served, "nested waiters are not served");
        })
    }

    fn give_up(mut self) -> u64 {
        steps_of(&mut self.stage, |stage| {
            self.calls.iter().for_each(|call| stage.cancel(*call));
            stage.run(Duration::from_secs(1));
        })
    }

    /// Each has published edges. They are deleted before its caller learns that the wait is over.
    fn waits_end(mut self) -> u64 {
        steps_of(&mut self.stage, |stage| {
            stage.run(Duration::from_secs(1));
            must!(Progress, are_over(stage, &self.calls), "nested waiters wait on");
        })
    }
}

fn same(_: usize) -> Call {
    Call { names: vec![key("hot"), key("cold")], ..call("hot") }
}

fn of_its_own(task: usize) -> Call {
    Call { names: vec![key("hot"), key(&format!("cold-{task}"))], ..call("hot") }
}

fn permits(task: usize) -> Call {
    let of = u16::try_from(task + 1).ok().and_then(NonZeroU16::new);
    Call { mode: Mode::Permits(of.expect("few")), ..call("hot") }
}

#[test]
fn nested_waiters_cost_the_same_each() {
    use Wait::Forever;
    grow(
        40,
        LINEAR,
        &[
            ("they wait", |tasks| Nested::waiters(tasks, Forever).steps),
            ("they are served", |tasks| Nested::waiters(tasks, Forever).served()),
            ("they give up", |tasks| Nested::waiters(tasks, Forever).give_up()),
            ("their waits end", |tasks| Nested::waiters(tasks, ENDS).waits_end()),
            ("before a reader", |tasks| {
                Nested::waiters(tasks, Forever).before_a_reader().wait_on()
            }),
            ("their waits end before a reader's", |tasks| {
                Nested::waiters(tasks, ENDS).before_a_reader().waits_end()
            }),
        ],
    );
}

#[test]
fn nested_permits_and_groups_cost_the_same_each() {
    use Wait::Forever;
    grow(
        40,
        LINEAR,
        &[
            ("permits wait", |tasks| Nested::new(tasks, Forever, true, permits).steps),
            ("waits for permits end", |tasks| Nested::new(tasks, ENDS, true, permits).waits_end()),
            ("groups wait", |tasks| Nested::new(tasks, Forever, true, same).steps),
            ("groups give up", |tasks| Nested::new(tasks, Forever, true, same).give_up()),
            ("waits of groups end", |tasks| Nested::new(tasks, ENDS, true, same).waits_end()),
        ],
    );
    // Each depends on what all before it wait for.
    grow(
        40,
        QUADRATIC,
        &[("waits of different groups end", |tasks| {
            Nested::new(tasks, ENDS, true, of_its_own).waits_end()
        })],
    );
}

#[test]
fn nested_waiters_keep_their_locks() {
    let Nested { stage, own, .. } = Nested::waiters(160, Wait::Forever);
    assert!(own.iter().all(|call| stage.has(*call)));
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
        LINEAR,
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
                    stage.run(Duration::from_secs(1));
                    stage.end_sessions(1);
                })
            }),
        ],
    );
}

/// Names that stay locked, one after the other (rule P39).
fn retention(names: usize) -> u64 {
    let mut stage = stage(2);
    stage.take_lock(1, "warm");
    let (hold, at_least) = (Duration::from_millis(2), Some(Duration::from_secs(60)));
    steps_of(&mut stage, |stage| {
        for name in 0..names {
            let id = stage.ask(1, Call { hold, at_least, ..call(&format!("name-{name}")) });
            let over = stage.until(SOON, |stage| stage.is_over(id));
            must!(Progress, over, "call {id} is not served");
        }
    })
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
        let is_answered = |stage: &Bench, call: CallId| stage.has(call) || stage.is_over(call);
        let all = |stage: &Bench| calls.iter().all(|call| is_answered(stage, *call));
        must!(InTime, stage.until(SOON, all), "a single try has no answer");
    })
}

#[test]
fn tries_and_retention_cost_the_same_each() {
    grow(200, LINEAR, &[("names stay locked", retention)]);
    grow(500, LINEAR, &[("permits", permit_tries), ("readers", shared_tries)]);
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
