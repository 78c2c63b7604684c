//! Combiner: runs a state machine on the thread that submits a command, one thread at a time (flat combining: Hendler, Incze,
//! Shavit, Tzafrir, SPAA 2010). Part of `etcd-locked`; its interface may change with every version.
//!
//! A thread that submits a command and finds the machine free is its *visitor*: it handles the command, and those that other
//! threads submit meanwhile. No switch to another thread is needed: waking a processor that sleeps takes longer than the command.
//!
//! What the machine wants done for users (replies, wakers, log lines) are its *effects*. The visitor collects them while it has
//! the machine, and performs them after it has unlocked it.
//!
//! Invariants:
//! - Each command is handled once; the commands of one thread in the order in which it submitted them.
//! - No thread waits for the machine. A submitter that finds it taken leaves; its visitor reads the queue again after unlocking.
//! - Each effect is performed once, outside the machine's lock. One thread at a time performs, in the order in which the machine
//!   produced them. An effect may submit commands; what they set off is performed by the same thread, later, so nothing recurses.
//! - A visitor works for about [`BUDGET`] on behalf of others, then calls a thread that serves the rest. It always handles one
//!   command: its own, unless others were submitted before. An item that has begun is not interrupted.
//! - A machine that has ended, or has panicked, is dropped, and commands that it has not handled with it. Its effects are performed.
//! - A panic in the machine, in an effect or in a drop reaches neither the submitter nor another effect.
//!
//! It is a crate of its own because of its tests. Unit tests, and they alone, compile it with loom's locks (`sync`), so
//! `cargo test` runs the models (`models`) like all other tests. No `--cfg loom` rebuilds the workspace, no second copy of the
//! source exists, and no type parameter stands for a lock.

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

mod sync;

#[cfg(test)]
mod models;

use sync::{Mutex, TryMutex, lock, try_lock, wait_for};

/// How long a visitor works on behalf of others: one half for commands, the other for effects.
pub const BUDGET: Duration = Duration::from_micros(100);

/// Items between two readings of the clock.
const STRIDE: usize = 4;

/// Commands that the queue keeps room for, once it is empty: a rush may have made it a hundred times as long.
const KEPT: usize = 1_024;

/// A state machine that a [`Combiner`] runs.
pub trait Machine {
    /// What threads submit.
    type Command;
    /// What the machine wants done, and must not do itself because it runs code of users.
    type Effect;

    /// Handles one command.
    fn handle(&mut self, command: Self::Command);

    /// Runs when no command is left, before the visitor unlocks the machine.
    fn rest(&mut self);

    /// True once the machine handles nothing any more.
    fn has_ended(&self) -> bool;

    /// The effects so far, in order. The combiner takes them before it unlocks the machine.
    fn effects(&mut self) -> &mut Vec<Self::Effect>;

    /// Performs one effect, without the machine.
    fn perform(effect: Self::Effect);
}

/// Runs a [`Machine`].
pub struct Combiner<M: Machine> {
    commands: Mutex<VecDeque<M::Command>>,
    /// `None`: not begun yet, or ended.
    machine: TryMutex<Option<M>>,
    effects: Mutex<Effects<M::Effect>>,
    /// Taken by the thread that performs effects.
    performer: TryMutex<()>,
    /// Time since some fixed moment.
    now: Box<dyn Fn() -> Duration + Send + Sync>,
    /// Calls the thread that serves the rest: it submits a command, until that is refused.
    call: Box<dyn Fn() + Send + Sync>,
}

/// Effects that are still to be performed.
struct Effects<E> {
    queue: VecDeque<E>,
    /// The machine has ended: no effects follow, and the called thread may have gone.
    last: bool,
}

impl<M: Machine> Combiner<M> {
    /// Makes a combiner without a machine. `now` reads the clock by which a visitor's time is measured; `call` calls the thread
    /// that serves the rest, which then submits a command of its own.
    pub fn new(
        now: impl Fn() -> Duration + Send + Sync + 'static,
        call: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        Self {
            commands: Mutex::new(VecDeque::new()),
            machine: TryMutex::new(None),
            effects: Mutex::new(Effects { queue: VecDeque::new(), last: false }),
            performer: TryMutex::new(()),
            now: Box::new(now),
            call: Box::new(call),
        }
    }

    /// Gives it its machine; commands that were submitted before were refused.
    pub fn begin(&self, machine: M) {
        *wait_for(&self.machine) = Some(machine);
    }

    /// Submits a command. False if there was no machine when it came; true if it is handled, or may be dropped with a machine that ends or
    /// panics before its turn.
    pub fn submit(&self, command: M::Command) -> bool {
        lock(&self.commands).push_back(command);
        let visit = self.visit();
        if visit == Visit::Taken {
            return true; // what it sets off is its visitor's to perform, too
        }
        // First, because an effect may take long.
        if visit == Visit::Unfinished {
            (self.call)();
        }
        if !self.perform_effects() {
            (self.call)();
        }
        visit != Visit::Absent
    }

    /// Handles the commands that are there.
    fn visit(&self) -> Visit {
        let mut budget = Budget::new(&*self.now);
        let mut visit = Visit::Taken;
        loop {
            let Some(mut machine) = try_lock(&self.machine) else {
                return visit; // its visitor reads the queue again
            };
            if visit == Visit::Taken {
                visit = Visit::Absent;
            }
            let Some(running) = &mut *machine else {
                drop(machine);
                self.drop_commands();
                return visit;
            };
            // The thread is a user's, which a mistake of ours must not end.
            let handled = catch_unwind(AssertUnwindSafe(|| self.handle(running, &mut budget)));
            let leave = handled.unwrap_or(Leave::Ended);
            if leave == Leave::Ended || !running.effects().is_empty() {
                let mut effects = lock(&self.effects);
                effects.queue.extend(running.effects().drain(..));
                effects.last |= leave == Leave::Ended;
            }
            let ended = machine.take_if(|_| leave == Leave::Ended);
            drop(machine);
            contain(|| drop(ended));
            visit = Visit::Finished;
            if leave == Leave::Unfinished {
                return Visit::Unfinished;
            }
            // A submitter that found the machine taken has submitted before: the lock of the queue orders the two.
            if lock(&self.commands).is_empty() {
                return visit;
            }
        }
    }

    fn handle(&self, machine: &mut M, budget: &mut Budget<'_>) -> Leave {
        loop {
            let mut commands = lock(&self.commands);
            if !commands.is_empty() && budget.is_spent() {
                return Leave::Unfinished;
            }
            let command = commands.pop_front();
            let none_left = commands.is_empty();
            if none_left {
                commands.shrink_to(KEPT);
            }
            drop(commands);
            if let Some(command) = command {
                machine.handle(command);
            }
            if machine.has_ended() {
                return Leave::Ended;
            }
            if none_left {
                machine.rest();
                return Leave::AllHandled;
            }
        }
    }

    /// Drops what no machine will handle, one by one: a drop may wake a task, and may panic.
    fn drop_commands(&self) {
        let commands = std::mem::take(&mut *lock(&self.commands));
        for command in commands {
            contain(|| drop(command));
        }
    }

    /// Performs the effects that are there. False if some are left for the thread that is to be called.
    fn perform_effects(&self) -> bool {
        let mut budget = Budget::new(&*self.now);
        // As with commands: reads the queue again after unlocking, because another thread may have found `performer` taken.
        while !lock(&self.effects).queue.is_empty() {
            let Some(performer) = try_lock(&self.performer) else {
                return true; // that thread reads the queue again
            };
            let finished = self.perform(&mut budget);
            drop(performer);
            if !finished && !lock(&self.effects).last {
                return false;
            }
        }
        true
    }

    /// False once the budget is spent, unless the machine has ended.
    fn perform(&self, budget: &mut Budget<'_>) -> bool {
        loop {
            let mut effects = lock(&self.effects);
            if !effects.queue.is_empty() && !effects.last && budget.is_spent() {
                return false;
            }
            let effect = effects.queue.pop_front();
            let none_left = effects.queue.is_empty();
            drop(effects);
            if let Some(effect) = effect {
                contain(|| M::perform(effect));
            }
            if none_left {
                return true;
            }
        }
    }
}

impl<M: Machine> fmt::Debug for Combiner<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Combiner").finish_non_exhaustive()
    }
}

/// What became of an attempt to visit the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Visit {
    /// Another thread was its visitor all the time.
    Taken,
    /// There is no machine.
    Absent,
    Finished,
    /// Commands are left for the thread that is to be called.
    Unfinished,
}

/// How a visitor leaves the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leave {
    AllHandled,
    Unfinished,
    Ended,
}

/// What is left of a visitor's time for one kind of work.
struct Budget<'a> {
    now: &'a dyn Fn() -> Duration,
    items: usize,
    /// Counted from the second item on: one alone costs no reading of the clock.
    since: Option<Duration>,
}

impl<'a> Budget<'a> {
    fn new(now: &'a dyn Fn() -> Duration) -> Self {
        Self { now, items: 0, since: None }
    }

    /// Counts one more item, which is there to be worked on. True if it is not to be begun.
    fn is_spent(&mut self) -> bool {
        let item = self.items;
        self.items += 1;
        if item == 0 || (item != 1 && !item.is_multiple_of(STRIDE)) {
            return false;
        }
        let now = (self.now)();
        let since = *self.since.get_or_insert(now);
        now.saturating_sub(since) >= BUDGET / 2
    }
}

/// Runs code that may call users' code; a panic there ends here.
pub fn contain(code: impl FnOnce()) {
    let _ = catch_unwind(AssertUnwindSafe(code));
}
