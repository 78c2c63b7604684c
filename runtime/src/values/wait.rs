//! Wait: how long a call queues for its lock.

use std::time::Duration;

/// How long a call queues for its lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// One try.
    Once,
    /// At most this long.
    For(Duration),
    /// Until the lock is granted.
    Forever,
}

impl Wait {
    /// Shortens the wait to `limit`. A single try does not wait, so it stays as it is.
    pub(crate) fn within(self, limit: Duration) -> Self {
        match self {
            Self::Once => Self::Once,
            Self::For(time) => Self::For(time.min(limit)),
            Self::Forever => Self::For(limit),
        }
    }
}
