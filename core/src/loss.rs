//! Cause of a loss: how a lock was lost, as its holder learns it.

/// How a lock was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LossCause {
    /// The lease could not be renewed in time: etcd out of reach, or the process stopped for too long.
    Expired,
    /// Its key or lease was removed in etcd, by an operator or by etcd itself.
    Gone,
    /// Another client put the lock's key.
    Overwritten,
    /// etcd has lost its history: it was wiped, or restored from a snapshot.
    Wiped,
    /// The grace of a shutdown is over.
    Shutdown,
    /// An operator has asked this process to give it up. Its key is there until it is released.
    Kicked,
    /// The call gave the lock back: what a view of it says that outlives the call.
    Released,
}

impl LossCause {
    /// In the order of their numbers.
    const ALL: [Self; 7] = [
        Self::Expired,
        Self::Gone,
        Self::Overwritten,
        Self::Wiped,
        Self::Shutdown,
        Self::Kicked,
        Self::Released,
    ];

    /// The cause of this number.
    pub(crate) fn numbered(number: u64) -> Option<Self> {
        Self::ALL.get(usize::try_from(number).ok()?).copied()
    }
}
