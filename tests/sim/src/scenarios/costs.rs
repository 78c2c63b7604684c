//! Costs: work on twice as much takes about twice the steps of the core (invariant I12).

use std::num::NonZeroU16;
use std::thread;
use std::time::Duration;

use etcd_locked_core::{Mode, Refused, Wait};

use super::stage::{Ask, SOON, Stage, plays};
use crate::world::violation::must;
use crate::world::{CallId, view};

/// Work on twice as much may take five halves of the steps: twice, and a rest that does not grow.
const LINEAR: (u64, u64) = (5, 2);
/// The same where each depends on all others: four times, and a rest.
const QUADRATIC: (u64, u64) = (9, 2);

/// A wait that ends half a second after nested waiters have waited for three.
const ENDS: Wait = Wait::For(Duration::from_millis(3_500));
/// How long bodies may run on in a shutdown, and how long its last exchanges may take.
const GRACE: Duration = Duration::from_secs(5);
const FAREWELL: Duration = Duration::from_secs(3);

/// What grows, and the steps that so much of it takes.
type Work = (&'static str, fn(usize) -> u64);

/// Plays each work on so much and on twice as much, and compares the steps.
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
fn steps_of(stage: &mut Stage, act: impl FnOnce(&mut Stage)) -> u64 {
    let before = view::steps_taken();
    act(stage);
    view::steps_taken() - before
}

/// Locks that a process holds.
fn held(stage: &mut Stage, n: usize, locks: usize) -> Vec<CallId> {
    let ask = |lock| stage.ask(n, Ask::of(&format!("own-{lock}")));
    let calls: Vec<_> = (0..locks).map(ask).collect();
    let held = stage.until(SOON, |stage| calls.iter().all(|call| stage.has(*call)));
    must!(Progress, held, "not all locks are held");
    calls
}

/// Tasks that hold a lock of their own and have waited for three seconds for the hot name, which another process holds.
struct Nested {
    stage: Stage,
    hot: CallId,
    calls: Vec<CallId>,
    steps: u64,
}

impl Nested {
    fn waiters(tasks: usize, wait: Wait) -> Self {
        Self::new(Stage::of(2), tasks, wait, |_| Ask::of("hot"))
    }

    /// Each as it asks, behind a call that waits on.
    fn behind(tasks: usize, wait: Wait, ask: fn(usize) -> Ask) -> Self {
        let mut stage = Stage::of(2);
        stage.take(0, "hot");
        stage.ask(1, Ask::of("hot"));
        Self::new(stage, tasks, wait, ask)
    }

    fn new(mut stage: Stage, tasks: usize, wait: Wait, ask: fn(usize) -> Ask) -> Self {
        let hot = match stage.calls.first_key_value() {
            Some((hot, _)) => *hot,
            None => stage.take(0, "hot"),
        };
        let own = held(&mut stage, 1, tasks);
        let mut calls = Vec::new();
        let steps = steps_of(&mut stage, |stage| {
            for (task, outer) in own.into_iter().enumerate() {
                let hold = Some(Duration::from_millis(1));
                let nested = Ask { holds: vec![outer], hold, wait, ..ask(task) };
                calls.push(stage.ask(1, nested));
            }
            stage.run(Duration::from_secs(3));
        });
        Self { stage, hot, calls, steps }
    }

    /// A reader behind them makes all that they wait for matter to it.
    fn before_a_reader(mut self) -> Self {
        self.stage.ask(1, Ask { mode: Mode::Shared, ..Ask::of("hot") });
        self
    }

    fn wait_on(mut self) -> u64 {
        steps_of(&mut self.stage, |stage| stage.run(Duration::from_secs(3)))
    }

    fn served(mut self) -> u64 {
        steps_of(&mut self.stage, |stage| {
            stage.release(self.hot);
            let served = |stage: &Stage| self.calls.iter().all(|it| stage.calls[it].granted);
            let served = stage.until(Duration::from_secs(60), served);
            must!(Progress, served, "nested waiters are not served");
        })
    }

    fn give_up(mut self) -> u64 {
        steps_of(&mut self.stage, |stage| {
            self.calls.iter().for_each(|call| stage.cancel(*call));
            stage.run(Duration::from_secs(1));
        })
    }

    /// All of them have edges, which go before a caller learns that its wait is over.
    fn waits_end(mut self) -> u64 {
        steps_of(&mut self.stage, |stage| {
            stage.run(Duration::from_secs(1));
            let refused = self.calls.iter().all(|call| stage.calls[call].refused.is_some());
            must!(Progress, refused, "nested waiters wait on");
        })
    }
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
            ("permits wait", |tasks| Nested::behind(tasks, Forever, permits).steps),
            ("waits for permits end", |tasks| Nested::behind(tasks, ENDS, permits).waits_end()),
            ("groups wait", |tasks| Nested::behind(tasks, Forever, same).steps),
            ("groups give up", |tasks| Nested::behind(tasks, Forever, same).give_up()),
            ("waits of groups end", |tasks| Nested::behind(tasks, ENDS, same).waits_end()),
        ],
    );
    // Each depends on what all before it wait for.
    grow(
        40,
        QUADRATIC,
        &[("waits of different groups end", |tasks| {
            Nested::behind(tasks, ENDS, of_its_own).waits_end()
        })],
    );
}

#[test]
fn nested_waiters_keep_their_locks() {
    let Nested { stage, .. } = Nested::waiters(160, Wait::Forever);
    let lost: Vec<_> = stage.calls.iter().filter(|(_, call)| call.lost.is_some()).collect();
    assert!(lost.is_empty(), "{lost:?}");
}

/// A process that holds so many locks shuts down as `end` says (rule P26).
fn shutdown(locks: usize, end: impl FnOnce(&mut Stage, &[CallId])) -> u64 {
    let mut stage = Stage::of(2);
    let calls = held(&mut stage, 0, locks);
    steps_of(&mut stage, |stage| {
        let until = stage.now + GRACE + FAREWELL;
        stage.shut_down(0, GRACE);
        end(stage, &calls);
        let finished = stage.until(until - stage.now, |stage| stage.is_finished(0));
        must!(Progress, finished, "the process does not end");
        // Bodies that were stopped in the last moment are dropped in the next.
        stage.run(Duration::from_millis(1));
        let kept = calls.iter().find(|call| stage.has(**call));
        must!(Truth, kept.is_none(), "call {kept:?} has a lock after the end");
        stage.take(1, "own-0");
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
                        stage.release(*call);
                    }
                })
            }),
            ("bodies are stopped", |locks| shutdown(locks, |_, _| {})),
            ("the session ends", |locks| {
                shutdown(locks, |stage, _| {
                    stage.run(Duration::from_secs(1));
                    for lease in stage.store.leases() {
                        stage.store.revoke(lease);
                    }
                })
            }),
        ],
    );
}

/// Names that stay locked, one after the other (rule P39).
fn retention(names: usize) -> u64 {
    let mut stage = Stage::of(1);
    stage.take(0, "warm");
    steps_of(&mut stage, |stage| {
        for name in 0..names {
            let call = stage.ask(
                0,
                Ask {
                    hold: Some(Duration::from_millis(2)),
                    at_least: Some(Duration::from_secs(60)),
                    ..Ask::of(&format!("name-{name}"))
                },
            );
            stage.serve(call);
            stage.run(Duration::from_millis(5));
        }
    })
}

/// Tries for five permits, all at once.
fn permit_tries(many: usize) -> u64 {
    let mut stage = Stage::of(1);
    stage.take(0, "warm");
    tries(stage, Mode::Permits(NonZeroU16::new(5).expect("not zero")), many)
}

/// Readers that try once, behind a writer that waits behind a reader.
fn shared_tries(many: usize) -> u64 {
    let mut stage = Stage::of(2);
    let reader = stage.ask(0, Ask { mode: Mode::Shared, ..Ask::of("busy") });
    stage.serve(reader);
    stage.ask(1, Ask::of("busy"));
    // What the process knows of other processes is old by then, and is read anew.
    stage.run(Duration::from_secs(1));
    tries(stage, Mode::Shared, many)
}

fn tries(mut stage: Stage, mode: Mode, many: usize) -> u64 {
    steps_of(&mut stage, |stage| {
        let ask = || Ask { mode, wait: Wait::Once, ..Ask::of("busy") };
        let calls: Vec<_> = (0..many).map(|_| stage.ask(0, ask())).collect();
        let answered = stage.until(SOON, |stage| {
            let mut calls = calls.iter().map(|call| &stage.calls[call]);
            calls.all(|call| call.granted || call.refused.is_some())
        });
        must!(InTime, answered, "a single try has no answer");
        let refused = calls.iter().filter_map(|call| stage.calls[call].refused.as_ref());
        let other = refused.clone().find(|why| !matches!(why, Refused::Held { .. }));
        must!(Truth, other.is_none(), "a single try is refused otherwise: {other:?}");
    })
}

#[test]
fn tries_and_retention_cost_the_same_each() {
    grow(200, LINEAR, &[("names stay locked", retention)]);
    grow(500, LINEAR, &[("permits", permit_tries), ("readers", shared_tries)]);
}

/// Too little stack ends the process of this test.
#[test]
fn single_tries_fit_on_a_small_stack() {
    let tries = || {
        permit_tries(3_000);
        shared_tries(3_000);
    };
    // As an engine's thread may have.
    let small = thread::Builder::new().stack_size(256 << 10).spawn(tries);
    small.expect("a thread").join().expect("a scenario that holds");
}
