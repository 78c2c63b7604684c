//! Cause of a loss, as callers, logs and metrics get it.

use std::fmt;

use etcd_locked_core::LossCause as Cause;

/// How a lock was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LossCause {
    /// The lease could not be renewed in time: etcd out of reach, or the process stopped for too long.
    Expired,
    /// The lease could not be renewed in time, because etcd refused the user, the password or the certificate, or etcd's own
    /// certificate was refused here. A log line says which.
    Denied,
    /// The lease is gone at etcd: revoked by an operator, or run out there.
    Revoked,
    /// The lock's key is gone, and its lease is not, as far as etcd has answered: an operator deleted it.
    Deleted,
    /// Another client put the lock's key.
    Overwritten,
    /// etcd has lost its history: it was wiped, or restored from a snapshot. Tokens may go backwards.
    Wiped,
    /// The grace of a shutdown is over.
    Shutdown,
    /// The call gave the lock back: what a view of it says that outlives the call.
    Released,
}

impl LossCause {
    /// All that a lock is lost by.
    #[cfg(feature = "metrics")]
    pub(crate) const OF_LOCKS: [Self; 7] = [
        Self::Expired,
        Self::Denied,
        Self::Revoked,
        Self::Deleted,
        Self::Overwritten,
        Self::Wiped,
        Self::Shutdown,
    ];

    /// Its name in metrics and records: one word, in small letters.
    #[must_use]
    pub fn word(self) -> &'static str {
        self.cause().map_or("denied", Cause::word)
    }

    /// The core's cause; `None` for that which only the transport knows.
    fn cause(self) -> Option<Cause> {
        Some(match self {
            Self::Denied => return None,
            Self::Expired => Cause::Expired,
            Self::Revoked => Cause::Revoked,
            Self::Deleted => Cause::Deleted,
            Self::Overwritten => Cause::Overwritten,
            Self::Wiped => Cause::Wiped,
            Self::Shutdown => Cause::Shutdown,
            Self::Released => Cause::Released,
        })
    }
}

impl From<Cause> for LossCause {
    fn from(cause: Cause) -> Self {
        match cause {
            Cause::Revoked => Self::Revoked,
            Cause::Deleted => Self::Deleted,
            Cause::Overwritten => Self::Overwritten,
            Cause::Wiped => Self::Wiped,
            Cause::Shutdown => Self::Shutdown,
            Cause::Released => Self::Released,
            // All else ends with a lease that was not renewed.
            _ => Self::Expired,
        }
    }
}

impl fmt::Display for LossCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.cause() {
            Some(cause) => cause.fmt(f),
            None => f.write_str(
                "its lease was not renewed, because credentials or a certificate were refused",
            ),
        }
    }
}
