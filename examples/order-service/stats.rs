//! Statistics: the number of locks taken, and how long requests waited. A service in production would feed a histogram instead.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;

use crate::arrived::Arrived;

/// The statistics of this process.
#[derive(Default)]
pub(crate) struct Stats {
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    locks_taken: u64,
    waits: Vec<Duration>,
}

/// `GET /stats`.
#[derive(Serialize)]
pub(crate) struct Summary {
    locks_taken: u64,
    waits_us: Vec<u128>,
}

impl Stats {
    /// Records that a handler's body begins. `current()` is the lock it runs under, if any.
    pub(crate) fn begin(&self, arrived: Arrived) {
        let wait = arrived.ago();
        let mut seen = self.seen();
        seen.locks_taken += u64::from(etcd_locked::current().is_some());
        seen.waits.push(wait);
    }

    pub(crate) fn summary(&self) -> Summary {
        let seen = self.seen();
        Summary {
            locks_taken: seen.locks_taken,
            waits_us: seen.waits.iter().map(Duration::as_micros).collect(),
        }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        // Nothing under this lock can panic.
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
