//! Moments, counted from boot, and the deadline of a session: one atomic that callers read before every poll (rule P28).

use std::num::NonZeroU64;
use std::ops::{Add, Sub};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::loss::LossCause;

/// A point in time, as the time since boot, suspended time included (rule P29).
// In nanoseconds, which last for 584 years. Never zero, so that an `Option` is no larger: each waiting call has several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(NonZeroU64);

impl Moment {
    pub fn after_boot(elapsed: Duration) -> Self {
        Self::of(nanos(elapsed))
    }

    pub fn since_boot(self) -> Duration {
        Duration::from_nanos(self.0.get())
    }

    /// Rounds up to a multiple of `to`, so that what is due at about the same time is due together.
    pub fn rounded_up(self, to: Duration) -> Self {
        let to = nanos(to).max(1);
        Self::of(self.0.get().div_ceil(to).saturating_mul(to))
    }

    fn of(nanos: u64) -> Self {
        Self(NonZeroU64::new(nanos).unwrap_or(NonZeroU64::MIN))
    }
}

impl Add<Duration> for Moment {
    type Output = Self;
    fn add(self, time: Duration) -> Self {
        Self(self.0.saturating_add(nanos(time)))
    }
}

impl Sub<Duration> for Moment {
    type Output = Self;
    fn sub(self, time: Duration) -> Self {
        Self::of(self.0.get().saturating_sub(nanos(time)))
    }
}

/// The time between two moments; zero if the second is the later one.
impl Sub for Moment {
    type Output = Duration;
    fn sub(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.get().saturating_sub(earlier.0.get()))
    }
}

/// The local stop time of a session, and how the session was lost once it is.
///
/// A loss is final, and its first cause stands. The first reader past the stop time stores [`LossCause::Expired`], and a stop
/// time that has passed is never extended. So a late response cannot revive a lock that a body has seen lost.
// A cause is stored as its number, which would be a stop time just after boot.
#[derive(Debug)]
pub struct Deadline(AtomicU64);

impl Deadline {
    pub fn new(stop: Moment) -> Self {
        Self(AtomicU64::new(stop.0.get()))
    }

    /// Returns how the session was lost, if it was. The result never changes once it is a cause.
    pub fn lost(&self, now: Moment) -> Option<LossCause> {
        self.lose_if(LossCause::Expired, |stop| now.0.get() >= stop)
    }

    /// Returns true if the session can no longer be relied on.
    pub fn is_over(&self, now: Moment) -> bool {
        self.lost(now).is_some()
    }

    /// Extends the stop time. Returns false if that had already passed.
    pub fn extend(&self, now: Moment, to: Moment) -> bool {
        let later = |stop| (now.0.get() < stop).then(|| stop.max(to.0.get()));
        self.update(later).is_ok() || !self.is_over(now)
    }

    /// Ends the session now. Returns the first cause: this one, unless the session was lost before.
    pub fn lose(&self, cause: LossCause) -> LossCause {
        self.lose_if(cause, |_| true).unwrap_or(cause)
    }

    fn lose_if(&self, cause: LossCause, over: impl Fn(u64) -> bool) -> Option<LossCause> {
        let ends = |stop| {
            let lost = LossCause::numbered(stop).is_some();
            (!lost && over(stop)).then_some(cause as u64)
        };
        match self.update(ends) {
            Ok(_) => Some(cause),
            Err(stop) => LossCause::numbered(stop),
        }
    }

    fn update(&self, change: impl FnMut(u64) -> Option<u64>) -> Result<u64, u64> {
        let (written, read) = (Ordering::AcqRel, Ordering::Acquire);
        self.0.fetch_update(written, read, change)
    }

    /// Returns the stop time; `None` once the session is lost.
    pub fn stop(&self) -> Option<Moment> {
        let stop = self.0.load(Ordering::Acquire);
        let ahead = LossCause::numbered(stop).is_none();
        ahead.then_some(Moment::of(stop))
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
