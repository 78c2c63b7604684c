//! Drained: the result of a shutdown.

use std::fmt;

use super::{Name, getters};

/// How many locks `Display` names.
const NAMED: usize = 5;

/// The result of a shutdown: what ended within the grace, what was cut off, and what was left in etcd.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Drained {
    pub(crate) ended: usize,
    pub(crate) cut_off: usize,
    pub(crate) left: Vec<Name>,
    pub(crate) leases: usize,
}

impl Drained {
    getters! { self:
        /// Returns how many calls released their locks by themselves.
        ended: usize = self.ended;
        /// Returns how many calls had lost their locks when they released them during the shutdown. Most lost them at the end of the
        /// grace.
        cut_off: usize = self.cut_off;
        /// Returns the locks that calls still had at the end, because a guard was kept or a cancelled body did not end. They are lost,
        /// and no body is polled under them any more. Other processes get them when the TTL of their lease is over. Locks for which
        /// [`min_hold`](crate::Acquire::min_hold) was set are listed too, if they could not be kept in etcd in time.
        left: &[Name] = &self.left;
        /// Returns how many leases may still exist in etcd, because they carry the locks left, or because etcd did not respond. When they
        /// expire, the last keys go, except those that [`min_hold`](crate::Acquire::min_hold) keeps.
        leases: usize = self.leases;
        /// Returns true if nothing is left in etcd, except what [`min_hold`](crate::Acquire::min_hold) keeps there.
        is_complete: bool = self.left.is_empty() && self.leases == 0;
    }
}

/// Shows only templates, as errors do: the values may be personal data.
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
            _ => write!(f, "; leases left to expire: {leases}"),
        }
    }
}
