//! Timers: when the core must act without an input, each timer at one moment.

use std::collections::BTreeSet;
use std::collections::HashMap;
use std::hash::Hash;

use crate::moment::Moment;

/// All timers.
#[derive(Debug)]
pub struct Timers<T> {
    due: BTreeSet<(Moment, T)>,
    at: HashMap<T, Moment>,
}

impl<T> Default for Timers<T> {
    fn default() -> Self {
        Self { due: BTreeSet::new(), at: HashMap::new() }
    }
}

impl<T: Copy + Ord + Hash> Timers<T> {
    /// Sets a timer, in place of its earlier moment.
    pub fn set(&mut self, timer: T, at: Moment) {
        if let Some(before) = self.at.insert(timer, at) {
            self.due.remove(&(before, timer));
        }
        self.due.insert((at, timer));
    }

    /// Sets a timer unless it is due earlier.
    pub fn set_by(&mut self, timer: T, at: Moment) {
        if self.at.get(&timer).is_none_or(|before| *before > at) {
            self.set(timer, at);
        }
    }

    /// Takes a timer off.
    pub fn cancel(&mut self, timer: &T) {
        if let Some(at) = self.at.remove(timer) {
            self.due.remove(&(at, *timer));
        }
    }

    /// The moment of the earliest timer.
    pub fn next(&self) -> Option<Moment> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Takes the earliest timer that is due, if any.
    pub fn pop(&mut self, now: Moment) -> Option<T> {
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
