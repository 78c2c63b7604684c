//! Moments: points in time, as the time since boot; and the deadline of a session, one atomic that callers read before every
//! poll (rule P28).

use std::ops::{Add, Sub};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A point in time: how long after boot, suspended time included (rule P29).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(Duration);

impl Moment {
    /// The moment this long after boot.
    pub const fn after_boot(elapsed: Duration) -> Self {
        Self(elapsed)
    }

    /// How long after boot.
    pub const fn since_boot(self) -> Duration {
        self.0
    }
}

impl Add<Duration> for Moment {
    type Output = Self;
    fn add(self, time: Duration) -> Self {
        Self(self.0.saturating_add(time))
    }
}

impl Sub<Duration> for Moment {
    type Output = Self;
    fn sub(self, time: Duration) -> Self {
        Self(self.0.saturating_sub(time))
    }
}

/// The time between two moments; zero, if the second is not earlier.
impl Sub for Moment {
    type Output = Duration;
    fn sub(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

/// The local stop time of a session: until when its locks may be relied on.
///
/// 0 stands for *lost*, and lost is absorbing: whoever sees the stop time reached swaps it in, and only a stop time that is
/// still ahead is moved on. So a late answer cannot revive what a body has seen end.
#[derive(Debug)]
pub struct Deadline(AtomicU64);

impl Deadline {
    /// Ends at this moment.
    pub fn new(stop: Moment) -> Self {
        Self(AtomicU64::new(nanos(stop)))
    }

    /// Whether the session can no longer be relied on; from the first `true` on it stays so.
    pub fn is_over(&self, now: Moment) -> bool {
        self.update(|stop| (nanos(now) >= stop).then_some(0))
            .is_ok()
    }

    /// Moves the stop time on; false if it had been reached before the answer was seen.
    pub fn extend(&self, now: Moment, to: Moment) -> bool {
        let later = |stop| (nanos(now) < stop).then(|| stop.max(nanos(to)));
        let extended = self.update(later).is_ok();
        if !extended {
            self.lose();
        }
        extended
    }

    fn update(&self, change: impl FnMut(u64) -> Option<u64>) -> Result<u64, u64> {
        let (written, read) = (Ordering::AcqRel, Ordering::Acquire);
        self.0.fetch_update(written, read, change)
    }

    /// Ends it now.
    pub fn lose(&self) {
        self.0.store(0, Ordering::Release);
    }

    /// The stop time; `None` once lost.
    pub fn stop(&self) -> Option<Moment> {
        match self.0.load(Ordering::Acquire) {
            0 => None,
            stop => Some(Moment(Duration::from_nanos(stop))),
        }
    }
}

fn nanos(moment: Moment) -> u64 {
    u64::try_from(moment.0.as_nanos()).unwrap_or(u64::MAX)
}
