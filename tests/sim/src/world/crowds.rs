//! Crowds: schedules with hundreds of nested calls in one process, which check the cost of each input (invariant I12).

use std::num::NonZeroU16;
use std::time::Duration;

use super::bench::{Bench, Happening};
use super::clients::Call;
use super::faults::Faults;
use super::view;
use super::violation::must;
use etcd_locked_core::{Input, Mode, Response, Wait};

/// One in [`RARE`] schedules is a crowd, with [`TASKS`] tasks.
const RARE: u64 = 200;
const TASKS: u64 = 500;

/// The most steps of an input: ten for each of the 64 locks of a transaction. If an input may concern a whole session, it may
/// take [`EACH`] more for each contender of its core.
const MOST: u64 = 640;
const EACH: u64 = 4;

/// What each task wants while it holds a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// A name that another process holds for a while; or one of its permits, with another number for each task.
    Hot,
    Permits,
    /// That name and another, which all share; or with another one for each task.
    SameGroup,
    Groups,
    /// The lock that the next task holds.
    Chain,
}

impl Bench {
    /// Returns the crowd of a seed, if it has one.
    pub(super) fn crowd(seed: u64, loud: usize) -> Option<Self> {
        if seed % RARE != RARE - 1 {
            return None;
        }
        let mut bench = Self::new(seed, 2, loud);
        bench.peaceful = true;
        bench.faults = Faults::slow(bench.random.one(&[0.0, 0.3]));
        bench.storm = Duration::from_secs(6);
        bench.check_every = 64; // a check looks at all of them
        let shapes = [Shape::Hot, Shape::Permits, Shape::SameGroup, Shape::Groups, Shape::Chain];
        let shape = shapes[(seed / RARE) as usize % shapes.len()];
        bench.calls.insert(0, Call { machine: 1, ..call("hot", Duration::from_secs(4)) });
        bench.at(bench.now, Happening::Call(0));
        for task in 0..TASKS {
            bench.plan_task(shape, task);
        }
        // Everything that the others wait for also affects this reader.
        let (reader, soon) = (2 * TASKS + 1, bench.now + Duration::from_secs(2));
        let mode = Mode::Shared;
        bench.calls.insert(reader, Call { mode, ..call("hot", Duration::from_millis(1)) });
        bench.at(soon, Happening::Call(reader));
        Some(bench)
    }

    /// Plans a task that holds a lock, and the call that it makes meanwhile.
    fn plan_task(&mut self, shape: Shape, task: u64) {
        let (id, last) = (1 + 2 * task, shape == Shape::Chain && task + 1 == TASKS);
        let mut inner = call("hot", Duration::from_millis(1));
        inner.outer = Some(id);
        match shape {
            Shape::SameGroup => inner.names.push("locks/cold".into()),
            Shape::Groups => inner.names.push(format!("locks/cold-{task}").into()),
            Shape::Chain => inner.names = vec![format!("locks/own-{}", task + 1).into()],
            Shape::Hot | Shape::Permits => {}
        }
        if shape == Shape::Permits {
            let number = u16::try_from(1 + task).ok().and_then(NonZeroU16::new);
            inner.mode = number.map_or(inner.mode, Mode::Permits);
        }
        match self.random.below(10) {
            0..3 => inner.wait = Wait::For(self.random.millis(3000, 3100)),
            3 => inner.cancel_after = Some(self.random.millis(500, 3500)),
            _ => {}
        }
        let hold = Duration::from_secs(if last { 4 } else { 1 });
        let outer = Call { inner: (!last).then_some(id + 1), ..call(&format!("own-{task}"), hold) };
        self.calls.insert(id, outer);
        if !last {
            self.calls.insert(id + 1, inner);
        }
        let at = self.now + self.random.millis(100, 300);
        self.at(at, Happening::Call(id));
    }

    /// Notes the cost of an input, and checks it.
    pub(super) fn note_cost(&mut self, n: usize, kind: &'static str, steps: u64, took: Duration) {
        self.tally.cost(kind, steps, took);
        let keys = view::size(&self.processes[n].core);
        let most = MOST + if self.peaceful && kind != "shutdown" { 0 } else { EACH * keys };
        let fits = self.check_every == 0 || steps <= most;
        must!(Cost, fits, "{kind} takes {steps} steps, with {keys} keys");
    }
}

fn call(name: &str, hold: Duration) -> Call {
    Call { hold, ..Call::of(&format!("locks/{name}"), 9) }
}

/// Returns the kind of an input, in a word.
pub(super) fn name_of(input: &Input) -> &'static str {
    match input {
        Input::Acquire(_) => "acquire",
        Input::Cancel(_) => "cancel",
        Input::Release { .. } => "release",
        Input::Answer { result: Ok(Response::Txn(_)), .. } => "transaction",
        Input::Answer { result: Ok(_), .. } => "other answer",
        Input::Answer { .. } => "failure",
        Input::Watch { .. } => "event",
        Input::Shutdown { .. } => "shutdown",
        Input::Tick => "tick",
        _ => "other",
    }
}
