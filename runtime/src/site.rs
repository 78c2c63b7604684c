//! What an annotation says about its function, known while compiling.

use std::time::Duration;

/// The place of an annotation and its options.
#[doc(hidden)]
#[derive(Debug)]
pub struct Site {
    /// Module path and name of the function.
    pub function: &'static str,
    /// How long to queue; `None`: as configured.
    pub wait: Option<Wait>,
    /// Lease TTL; `None`: as configured.
    pub ttl: Option<Duration>,
}

/// How long a call queues for its lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// One try.
    Once,
    /// At most this long.
    For(Duration),
    /// Until it is served.
    Forever,
}

impl Wait {
    /// No longer than this. One try is none.
    pub(crate) fn within(self, limit: Duration) -> Self {
        match self {
            Self::Once => Self::Once,
            Self::For(time) => Self::For(time.min(limit)),
            Self::Forever => Self::For(limit),
        }
    }
}
