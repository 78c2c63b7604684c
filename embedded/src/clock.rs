//! Clock of an embedded etcd, by which leases expire.

use std::fmt;
use std::future::{Future, pending};
use std::pin::Pin;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::Instant;

/// Future that waits for a moment.
pub(crate) type Sleep = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Source of time of an [`Etcd`](crate::Etcd), by which leases expire.
pub trait Clock: Send + Sync + 'static {
    /// Returns the time since any fixed start; never goes back.
    fn now(&self) -> Duration;

    /// Waits until [`now`](Clock::now) is at least `at`.
    fn sleep_until(&self, at: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>>;
}

impl fmt::Debug for dyn Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clock").field("now", &self.now()).finish()
    }
}

/// Monotonic clock of the machine, as tokio sees it: it pauses and advances with tokio's time.
#[derive(Debug, Clone, Copy)]
pub struct Monotonic {
    start: Instant,
}

impl Monotonic {
    /// Makes a clock that starts now.
    #[must_use]
    pub fn new() -> Self {
        Self { start: Instant::now() }
    }
}

impl Default for Monotonic {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for Monotonic {
    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn sleep_until(&self, at: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        match (Handle::try_current(), self.start.checked_add(at)) {
            (Ok(_), Some(at)) => Box::pin(tokio::time::sleep_until(at)),
            // Without tokio there is no timer; every call still reads the clock.
            _ => Box::pin(pending()),
        }
    }
}
