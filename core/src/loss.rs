//! Cause of a loss: how a holder lost its lock.

/// How a lock was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LossCause {
    /// The lease could not be renewed in time: etcd was unreachable, or the process was stopped for too long.
    Expired,
    /// Its key or lease was removed in etcd, by an operator or by etcd itself.
    Gone,
    /// Another client put the key.
    Overwritten,
    /// etcd has lost its history: it was wiped, or restored from a snapshot.
    Wiped,
    /// The grace period of a shutdown is over.
    Shutdown,
    /// An operator asked this process to give up the lock. The key exists until the lock is released.
    Kicked,
    /// The call released the lock. Reported by handles that outlive the call.
    Released,
}

impl LossCause {
    /// Ordered by number.
    const ALL: [Self; 7] = [
        Self::Expired,
        Self::Gone,
        Self::Overwritten,
        Self::Wiped,
        Self::Shutdown,
        Self::Kicked,
        Self::Released,
    ];

    /// Returns the cause with this number.
    pub(crate) fn numbered(number: u64) -> Option<Self> {
        Self::ALL.get(usize::try_from(number).ok()?).copied()
    }
}
