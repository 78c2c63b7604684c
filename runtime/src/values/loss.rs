//! Cause of a loss, for callers, logs and metrics.

use std::fmt;

use etcd_locked_core::LossCause as Cause;

/// The reason why a lock was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LossCause {
    /// The lease could not be renewed in time: etcd was out of reach, or the process was paused for too long.
    Expired,
    /// The lease could not be renewed in time, because etcd refused the user, the password or the certificate, or this process refused
    /// etcd's certificate. A log line says which.
    Denied,
    /// An operator, or etcd itself, deleted the lock's key or lease.
    Gone,
    /// Another client overwrote the lock's key.
    Overwritten,
    /// An operator requested it with `etcd-locked kick`. Unless the operator forces it, no other call gets the lock before this one
    /// releases it, which happens when the body is dropped.
    Kicked,
    /// The hold limit ([`max_hold`](crate::Acquire::max_hold)) is over. Only a guard reports this; it holds the lock until its release.
    HoldLimit,
    /// etcd lost its history: it was wiped, or restored from a snapshot. Tokens may go backwards.
    Wiped,
    /// The engine was shut down and the grace is over, or the engine has ended by itself.
    Shutdown,
    /// A database has a greater token from a later holder. The fenced transaction was refused before this process knew of the loss. If
    /// this continues for a holder that has not lost its lock, the tokens are those of another etcd, or from before a loss of etcd's
    /// data: see [`Dialect::migration`](crate::Dialect::migration).
    Overtaken,
    /// The call released the lock: returned by handles that outlive the call.
    Released,
}

impl LossCause {
    /// The causes by which the engine loses locks.
    pub(crate) const OF_LOCKS: [Self; 7] = [
        Self::Expired,
        Self::Denied,
        Self::Gone,
        Self::Overwritten,
        Self::Kicked,
        Self::Wiped,
        Self::Shutdown,
    ];

    /// Returns a lower-case word for the cause, as in metrics.
    #[must_use]
    pub fn word(self) -> &'static str {
        self.texts().0
    }

    /// Returns the word, and the text for errors and log lines.
    fn texts(self) -> (&'static str, &'static str) {
        match self {
            Self::Expired => ("expired", "its lease could not be renewed in time"),
            Self::Denied => (
                "denied",
                "its lease was not renewed, because credentials or a certificate were refused",
            ),
            Self::Gone => ("gone", "its key or lease was deleted in etcd"),
            Self::Overwritten => ("overwritten", "another client overwrote its key"),
            Self::Kicked => ("kicked", "an operator requested it with `etcd-locked kick`"),
            Self::HoldLimit => ("hold_limit", "its `max_hold` is over"),
            Self::Wiped => ("wiped", "etcd was wiped, or restored from a snapshot"),
            Self::Shutdown => ("shutdown", "the grace of the shutdown is over"),
            Self::Overtaken => (
                "overtaken",
                "the database has a greater token: a later holder wrote first (or, if this continues, the tokens in \
                 `etcd_locked_tokens` are of another etcd, or from before a loss of its data: empty it while no body runs)",
            ),
            Self::Released => ("released", "it was released"),
        }
    }

    pub(crate) fn of(cause: Cause) -> Self {
        match cause {
            Cause::Gone => Self::Gone,
            Cause::Overwritten => Self::Overwritten,
            Cause::Kicked => Self::Kicked,
            Cause::Wiped => Self::Wiped,
            Cause::Shutdown => Self::Shutdown,
            Cause::Released => Self::Released,
            // All other causes end with a lease that was not renewed.
            _ => Self::Expired,
        }
    }
}

impl fmt::Display for LossCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.texts().1)
    }
}
