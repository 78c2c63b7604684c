//! Timers: when the core must act without an input, and how long it pauses before a retry.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use crate::ids::{CallId, ContenderId, NameId, SessionId};
use crate::moment::Moment;

/// The number of failures from which the pause is the longest. A request that etcd has refused is retried after that pause (rule P34).
pub const LONGEST_PAUSE: u32 = 4;

/// Random spread of pauses, so that processes do not act in step.
#[derive(Debug)]
pub struct Jitter(u64);

impl Jitter {
    pub fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    /// Returns `base`, up to a tenth shorter or longer.
    pub fn of(&mut self, base: Duration) -> Duration {
        // xorshift: the quality of the numbers does not matter here
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        #[allow(clippy::cast_precision_loss)] // a spread needs no precision
        let share = (self.0 % 1000) as f64 / 1000.0;
        base.mul_f64(0.9 + 0.2 * share)
    }

    /// Returns the pause before a retry, after this number of failures in a row (rule P34).
    pub fn pause(&mut self, failures: u32) -> Duration {
        self.of(Duration::from_millis(50 << failures.min(LONGEST_PAUSE)))
    }
}

/// What a timer is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Timer {
    /// The wait of a call ends, or its wait for the release, or it searches for a cycle.
    Call(CallId),
    /// A contender is read or watched, or its record is written.
    Contender(ContenderId),
    /// A session needs a request.
    Session(SessionId),
    /// A name was not wanted for a while, so its watch closes.
    Rest(NameId),
}

/// All timers, at most one of each kind and id.
#[derive(Debug, Default)]
pub struct Timers {
    due: BTreeSet<(Moment, Timer)>,
    at: HashMap<Timer, Moment>,
}

impl Timers {
    /// Sets a timer, and replaces its earlier moment. `None` clears it.
    pub fn set(&mut self, timer: Timer, at: Option<Moment>) {
        let before = match at {
            Some(at) => self.at.insert(timer, at),
            None => self.at.remove(&timer),
        };
        if let Some(before) = before {
            self.due.remove(&(before, timer));
        }
        self.due.extend(at.map(|at| (at, timer)));
    }

    pub fn next(&self) -> Option<Moment> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Removes and returns the earliest timer that is due.
    pub fn pop(&mut self, now: Moment) -> Option<Timer> {
        let (_, timer) = *self.due.first().filter(|(at, _)| *at <= now)?;
        self.set(timer, None);
        Some(timer)
    }

    pub fn len(&self) -> usize {
        self.due.len()
    }
}
