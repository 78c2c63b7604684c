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
    /// The lock's key or lease was removed in etcd, by an operator or by etcd itself.
    Gone,
    /// Another client put the lock's key.
    Overwritten,
    /// An operator has asked for it with `etcd-locked kick`. No other holder has it before the call releases it, which a dropped body does, unless
    /// the operator forces that.
    Kicked,
    /// Its hold limit ([`max_hold`](crate::Acquire::max_hold)) is over: a guard says so, which has the lock until it is released.
    HoldLimit,
    /// etcd has lost its history: it was wiped, or restored from a snapshot. Tokens may go backwards.
    Wiped,
    /// The engine was shut down and its grace is over, or the engine has ended by itself.
    Shutdown,
    /// A database has a greater token, which a later holder has shown: a fenced transaction was refused before the loss was known here.
    /// If that goes on for a holder whose lock is not lost, the tokens are of another etcd, or of before a loss of etcd's data: see
    /// [`Dialect::migration`](crate::Dialect::migration).
    Overtaken,
    /// The call gave the lock back: what a view of it says that outlives the call.
    Released,
}

impl LossCause {
    /// All that the engine loses a lock by.
    pub(crate) const OF_LOCKS: [Self; 7] = [
        Self::Expired,
        Self::Denied,
        Self::Gone,
        Self::Overwritten,
        Self::Kicked,
        Self::Wiped,
        Self::Shutdown,
    ];

    /// Its name where it is one word, in small letters, as in metrics.
    #[must_use]
    pub fn word(self) -> &'static str {
        self.texts().0
    }

    /// The word, and what errors and log lines say.
    fn texts(self) -> (&'static str, &'static str) {
        match self {
            Self::Expired => ("expired", "its lease could not be renewed in time"),
            Self::Denied => (
                "denied",
                "its lease was not renewed, because credentials or a certificate were refused",
            ),
            Self::Gone => ("gone", "its key or lease was removed in etcd"),
            Self::Overwritten => ("overwritten", "its key was overwritten"),
            Self::Kicked => ("kicked", "an operator has asked for it with `etcd-locked kick`"),
            Self::HoldLimit => ("hold_limit", "its hold limit is over"),
            Self::Wiped => ("wiped", "etcd has lost its data"),
            Self::Shutdown => ("shutdown", "the grace of the shutdown is over"),
            Self::Overtaken => (
                "overtaken",
                "a database has a greater token: a later holder was there first (or, where that goes on, the tokens in \
                 `etcd_locked_tokens` are of another etcd, or of before a loss of its data: empty it while no body runs)",
            ),
            Self::Released => ("released", "it was given back"),
        }
    }
}

impl LossCause {
    pub(crate) fn of(cause: Cause) -> Self {
        match cause {
            Cause::Gone => Self::Gone,
            Cause::Overwritten => Self::Overwritten,
            Cause::Kicked => Self::Kicked,
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
        f.write_str(self.texts().1)
    }
}
