//! The boot-time clock (rule P29) behind a two-method trait: everything the library knows of time comes from here.

use std::fmt::Debug;
use std::future::Future;
use std::ops::{Add, Sub};
use std::pin::Pin;
use std::time::Duration;

/// A point in time: how long after boot, suspended time included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(Duration);

impl Moment {
    /// The moment this long after boot.
    pub(crate) const fn after_boot(elapsed: Duration) -> Self {
        Self(elapsed)
    }

    /// How long after boot.
    pub(crate) const fn since_boot(self) -> Duration {
        self.0
    }
}

impl Add<Duration> for Moment {
    type Output = Self;
    fn add(self, d: Duration) -> Self {
        Self(self.0.saturating_add(d))
    }
}

impl Sub<Duration> for Moment {
    type Output = Self;
    fn sub(self, d: Duration) -> Self {
        Self(self.0.saturating_sub(d))
    }
}

impl Sub for Moment {
    type Output = Duration;
    /// Zero if `earlier` is the later of the two.
    fn sub(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

/// Time as the library sees it.
pub(crate) trait Clock: Debug + Send + Sync {
    /// Now.
    fn now(&self) -> Moment;
    /// Completes at or after `when`; needs a tokio runtime with time enabled.
    fn sleep_until(&self, when: Moment) -> Pin<Box<dyn Future<Output = ()> + Send>>;
}

/// `CLOCK_BOOTTIME`: unlike `Instant`, it goes on while the machine is suspended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BootClock;

impl Clock for BootClock {
    fn now(&self) -> Moment {
        let t = rustix::time::clock_gettime(CLOCK);
        Moment::after_boot(Duration::new(
            u64::try_from(t.tv_sec).unwrap_or(0),
            u32::try_from(t.tv_nsec).unwrap_or(0),
        ))
    }

    fn sleep_until(&self, when: Moment) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(tokio::time::sleep(when - self.now()))
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
const CLOCK: rustix::time::ClockId = rustix::time::ClockId::Boottime;
/// Elsewhere the monotonic clock: macOS counts suspended time in it.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const CLOCK: rustix::time::ClockId = rustix::time::ClockId::Monotonic;
