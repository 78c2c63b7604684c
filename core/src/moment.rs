//! Moment: a point in time, as the time since boot.

use std::ops::{Add, Sub};
use std::time::Duration;

/// A point in time: how long after boot, suspended time included (rule P29).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(Duration);

impl Moment {
    /// The moment this long after boot.
    #[must_use]
    pub const fn after_boot(elapsed: Duration) -> Self {
        Self(elapsed)
    }

    /// How long after boot.
    #[must_use]
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
