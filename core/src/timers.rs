//! Timers: when the core must act without an input, each timer at one moment.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::{CallId, ContenderId, Name, SessionId};
use crate::moment::Moment;

/// What is due.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
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

/// All timers.
#[derive(Debug, Default)]
pub struct Timers {
    due: BTreeSet<(Moment, Timer)>,
    at: BTreeMap<Timer, Moment>,
}

impl Timers {
    /// Sets a timer, in place of its earlier moment.
    pub fn set(&mut self, timer: Timer, at: Moment) {
        if let Some(before) = self.at.insert(timer.clone(), at) {
            self.due.remove(&(before, timer.clone()));
        }
        self.due.insert((at, timer));
    }

    /// Sets a timer unless it is due earlier.
    pub fn set_by(&mut self, timer: Timer, at: Moment) {
        if self.at.get(&timer).is_none_or(|before| *before > at) {
            self.set(timer, at);
        }
    }

    /// Takes a timer off.
    pub fn cancel(&mut self, timer: &Timer) {
        if let Some(at) = self.at.remove(timer) {
            self.due.remove(&(at, timer.clone()));
        }
    }

    /// The moment of a timer, if it is set.
    pub fn at(&self, timer: &Timer) -> Option<Moment> {
        self.at.get(timer).copied()
    }

    /// The moment of the earliest timer.
    pub fn next(&self) -> Option<Moment> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Takes the earliest timer that is due, if any.
    pub fn pop(&mut self, now: Moment) -> Option<Timer> {
        let (at, timer) = self.due.pop_first()?;
        if at > now {
            self.due.insert((at, timer));
            return None;
        }
        self.at.remove(&timer);
        Some(timer)
    }

    /// How many are set.
    pub fn len(&self) -> usize {
        self.due.len()
    }
}
