//! Token for fencing: a number that grows with each owner of a name (invariant I3).

use std::fmt;

/// Fencing token: shows when a lock was taken, so that a database can refuse the writes of an owner that was overtaken.
///
/// Tokens of one name strictly increase in the order of ownership. Tokens of different names are not comparable. Store
/// [`as_i64`](Self::as_i64) with the data, and write only `where token <= $1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token {
    revision: i64,
    handover: u16,
}

impl Token {
    pub(crate) fn new(revision: i64, handover: u16) -> Self {
        Self { revision, handover }
    }

    /// Returns the token as one number for a database column: `revision << 16 | handover`.
    pub fn as_i64(self) -> i64 {
        self.revision << 16 | i64::from(self.handover)
    }

    /// Returns the etcd revision at which the lock was acquired. It is comparable with what Go's clients publish.
    pub fn revision(self) -> i64 {
        self.revision
    }

    /// Returns how often the lock was handed over inside this process since that revision.
    pub fn handover(self) -> u16 {
        self.handover
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.revision, self.handover)
    }
}
