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
    pub(crate) fn numbered(number: u64) -> Option<Self> {
        use LossCause::{Expired, Gone, Kicked, Overwritten, Released, Shutdown, Wiped};
        let all = [Expired, Gone, Overwritten, Wiped, Shutdown, Kicked, Released];
        all.into_iter().find(|cause| *cause as u64 == number)
    }
}
