//! Timers: when the core must act without an input, each timer at one moment.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use crate::ids::{CallId, ContenderId, Name, SessionId};
use crate::moment::Moment;

/// So many that are not set any more are left in their places.
const FEW: usize = 64;

/// What is due.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Timer {
    /// A call has waited for as long as it may; a single try, or one whose edges are being deleted, is looked at again.
    Wait(CallId),
    /// The release of a contender has waited for its confirmation for as long as it may.
    Confirm(ContenderId),
    /// No call has come for contenders that linger.
    Linger,
    /// A nested call, or a group, looks for a cycle.
    Cycle(CallId),
    /// Retention: try again, or its time is over.
    Retention(ContenderId),
    /// A session: ask again, renew, or stop.
    Session(SessionId),
    /// Read where a contender stands; or begin to watch one that is held.
    Read(ContenderId),
    /// The keys of a contender that is held are to say since when.
    Describe(ContenderId),
    /// A name has not been wanted for a while: stop watching it.
    Rest(Name),
    /// Send what was held back.
    Flush,
    /// Send refused deletes again.
    Deletes,
    /// Calls have waited too long for etcd, or etcd has been silent while calls wait.
    Silence,
    /// A grace of the shutdown is over.
    Shutdown,
}

/// When a timer is due; of those due at one moment the first that was set goes first.
type Due = (Moment, u64);

/// All timers.
#[derive(Debug, Default)]
pub struct Timers {
    at: HashMap<Timer, Due>,
    /// What was set, the earliest first. Some were set anew or cancelled since, but not the first.
    due: BinaryHeap<Reverse<(Due, Timer)>>,
    last: u64,
}

impl Timers {
    /// Sets a timer, in place of its earlier moment.
    pub fn set(&mut self, timer: Timer, at: Moment) {
        if self.at(&timer) == Some(at) {
            return;
        }
        self.last += 1;
        let due = (at, self.last);
        self.due.push(Reverse((due, timer.clone())));
        self.at.insert(timer, due);
        self.tidy();
    }

    /// Sets a timer unless it is due earlier.
    pub fn set_by(&mut self, timer: Timer, at: Moment) {
        if self.at(&timer).is_none_or(|before| before > at) {
            self.set(timer, at);
        }
    }

    /// Takes a timer off.
    pub fn cancel(&mut self, timer: &Timer) {
        if self.at.remove(timer).is_some() {
            self.tidy();
        }
    }

    /// The moment of a timer, if it is set.
    pub fn at(&self, timer: &Timer) -> Option<Moment> {
        self.at.get(timer).map(|(at, _)| *at)
    }

    /// The moment of the earliest timer.
    pub fn next(&self) -> Option<Moment> {
        self.due.peek().map(|Reverse(((at, _), _))| *at)
    }

    /// Takes the earliest timer that is due, if any.
    pub fn pop(&mut self, now: Moment) -> Option<Timer> {
        self.next().filter(|at| *at <= now)?;
        let Reverse((_, timer)) = self.due.pop()?;
        self.cancel(&timer);
        Some(timer)
    }

    /// How many are set.
    pub fn len(&self) -> usize {
        self.at.len()
    }

    /// Drops what is not set any more, at the front, and everywhere once that is most of it.
    fn tidy(&mut self) {
        let at = &self.at;
        let is_set = |Reverse((due, timer)): &Reverse<(Due, Timer)>| at.get(timer) == Some(due);
        if self.due.len() > FEW + 2 * at.len() {
            self.due.retain(is_set);
        }
        while self.due.peek().is_some_and(|first| !is_set(first)) {
            self.due.pop();
        }
    }
}
