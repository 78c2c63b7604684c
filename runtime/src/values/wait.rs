//! Wait: how long a call queues for its lock, and how another limit shortens it.

use std::time::Duration;

pub use etcd_locked_core::Wait;

/// Shortens a wait to `limit`. A single try does not wait, so it stays as it is.
pub(crate) fn within(wait: Wait, limit: Duration) -> Wait {
    match wait {
        Wait::Once => Wait::Once,
        Wait::For(time) => Wait::For(time.min(limit)),
        Wait::Forever => Wait::For(limit),
    }
}
