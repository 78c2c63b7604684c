//! Cause of a loss: how a lock was lost, as its holder learns it.

use std::fmt;

/// How a lock was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LossCause {
    /// The lease could not be renewed in time: etcd out of reach, or the process stopped for too long.
    Expired,
    /// The lease is gone at etcd: revoked by an operator, or run out there.
    Revoked,
    /// The lock's key is gone, and its lease is not, as far as etcd has answered: an operator deleted it.
    Deleted,
    /// Another client put the lock's key.
    Overwritten,
    /// etcd has lost its history: it was wiped, or restored from a snapshot.
    Wiped,
    /// The grace of a shutdown is over.
    Shutdown,
    /// The call gave the lock back: what a view of it says that outlives the call.
    Released,
}

impl LossCause {
    const ALL: [Self; 7] = [
        Self::Expired,
        Self::Revoked,
        Self::Deleted,
        Self::Overwritten,
        Self::Wiped,
        Self::Shutdown,
        Self::Released,
    ];

    /// The cause of this number.
    pub(crate) fn numbered(number: u64) -> Option<Self> {
        Self::ALL.get(usize::try_from(number).ok()?).copied()
    }

    /// Its place in `ALL`.
    pub(crate) fn number(self) -> u64 {
        self as u64
    }

    /// Its name in metrics and records: one word, in small letters.
    pub fn word(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Revoked => "revoked",
            Self::Deleted => "deleted",
            Self::Overwritten => "overwritten",
            Self::Wiped => "wiped",
            Self::Shutdown => "shutdown",
            Self::Released => "released",
        }
    }
}

impl fmt::Display for LossCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "its lease could not be renewed in time",
            Self::Revoked => "its lease is gone at etcd",
            Self::Deleted => "its key was deleted",
            Self::Overwritten => "its key was overwritten",
            Self::Wiped => "etcd has lost its data",
            Self::Shutdown => "the grace of the shutdown is over",
            Self::Released => "it was given back",
        })
    }
}
