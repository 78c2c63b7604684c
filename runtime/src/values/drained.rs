//! Drained: what a shutdown has come to.

use std::fmt;

use super::{Name, getters};

/// How many locks a text names.
const NAMED: usize = 5;

/// What a shutdown has come to: what ended within the grace, what it cut off, and what it had to leave in etcd.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Drained {
    pub(crate) ended: usize,
    pub(crate) cut_off: usize,
    pub(crate) left: Vec<Name>,
    pub(crate) leases: usize,
}

impl Drained {
    getters! { self:
        /// How many calls gave their locks back by themselves.
        ended: usize = self.ended;
        /// How many calls had lost their locks when they released them during the shutdown. Most of these lost them when the grace
        /// ended.
        cut_off: usize = self.cut_off;
        /// The locks that calls still had at the end: a guard that was kept, a body that did not end when it was cancelled. The locks
        /// are lost, and no body is polled under them any more; other processes get them when the TTL of their lease is over. Those that
        /// [`min_hold`](crate::Acquire::min_hold) was to keep are listed too, if etcd did not take them over in time.
        left: &[Name] = &self.left;
        /// How many leases etcd may still have, because they carry locks that are left or because etcd has not answered. With them
        /// the last keys go, but those that [`min_hold`](crate::Acquire::min_hold) keeps.
        leases: usize = self.leases;
        /// Whether nothing is left in etcd but what [`min_hold`](crate::Acquire::min_hold) keeps there.
        is_complete: bool = self.left.is_empty() && self.leases == 0;
    }
}

/// Templates only, as in errors: the keys' values may be personal data.
impl fmt::Display for Drained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ended, cut_off, left, leases } = self;
        write!(f, "{ended} ended, {cut_off} cut off")?;
        for (at, name) in left.iter().take(NAMED).enumerate() {
            let begin = if at == 0 { "; still held: " } else { ", " };
            write!(f, "{begin}`{name}`")?;
        }
        if let more @ 1.. = left.len().saturating_sub(NAMED) {
            write!(f, " and {more} more")?;
        }
        match leases {
            0 => Ok(()),
            _ => write!(f, "; left to run out: {leases} of the leases"),
        }
    }
}
