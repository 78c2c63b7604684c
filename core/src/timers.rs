//! Timers: when the core must act without an input, each timer at one moment; and how long it pauses.

use std::collections::BTreeSet;
use std::collections::HashMap;
use std::time::Duration;

use crate::ids::{CallId, ContenderId, NameId, SessionId};
use crate::moment::Moment;

/// What etcd refused is sent again after the pause of this many failures (rule P34).
pub const LONGEST_PAUSE: u32 = 4;

/// Makes pauses a tenth longer or shorter, so that processes do not act in step.
#[derive(Debug)]
pub struct Jitter(u64);

impl Jitter {
    pub fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    /// `base`, a tenth more or less.
    pub fn of(&mut self, base: Duration) -> Duration {
        // xorshift: any spread will do here
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        #[allow(clippy::cast_precision_loss)] // a spread needs no precision
        let share = (self.0 % 1000) as f64 / 1000.0;
        base.mul_f64(0.9 + 0.2 * share)
    }

    /// How long to wait before what failed this often in a row is sent again (rule P34).
    pub fn pause(&mut self, failures: u32) -> Duration {
        self.of(Duration::from_millis(50 << failures.min(LONGEST_PAUSE)))
    }
}

/// What is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Timer {
    /// A call's wait, or the wait for its release, is over; or it looks for a cycle.
    Call(CallId),
    /// A contender is to be read, watched or described.
    Contender(ContenderId),
    /// A session needs something.
    Session(SessionId),
    /// A name has not been wanted for a while: its watch closes.
    Rest(NameId),
}

/// All timers.
#[derive(Debug, Default)]
pub struct Timers {
    due: BTreeSet<(Moment, Timer)>,
    at: HashMap<Timer, Moment>,
}

impl Timers {
    /// Sets a timer, in place of its earlier moment; `None` takes it off.
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

    /// The moment of the earliest timer.
    pub fn next(&self) -> Option<Moment> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Takes the earliest timer that is due, if any.
    pub fn pop(&mut self, now: Moment) -> Option<Timer> {
        let (_, timer) = *self.due.first().filter(|(at, _)| *at <= now)?;
        self.set(timer, None);
        Some(timer)
    }

    /// How many are set.
    pub fn len(&self) -> usize {
        self.due.len()
    }
}
