//! Moments, as the time since boot; and the deadline of a session, one atomic that callers read before every poll (rule P28).

use std::num::NonZeroU64;
use std::ops::{Add, Sub};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::loss::LossCause;

/// A point in time: how long after boot, suspended time included (rule P29).
// In nanoseconds, enough for 584 years; never zero, so that an `Option` of one is no larger: each waiting call has several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(NonZeroU64);

impl Moment {
    /// The moment this long after boot.
    pub fn after_boot(elapsed: Duration) -> Self {
        Self::of(nanos(elapsed))
    }

    /// How long after boot.
    pub fn since_boot(self) -> Duration {
        Duration::from_nanos(self.0.get())
    }

    /// The first moment not before this one that is a multiple of this time: what is due about then is due together.
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

/// The time between two moments; zero, if the second is not earlier.
impl Sub for Moment {
    type Output = Duration;
    fn sub(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.get().saturating_sub(earlier.0.get()))
    }
}

/// The local stop time of a session: until when its locks may be relied on; then how they were lost.
///
/// A loss is absorbing, and its first cause stands: the first reader past the stop time swaps in [`LossCause::Expired`], and only a
/// stop time that is still ahead is moved on. So a late answer cannot revive what a body has seen end.
// A cause is kept as its number, which as a stop time is long past.
#[derive(Debug)]
pub struct Deadline(AtomicU64);

impl Deadline {
    /// Ends at this moment.
    pub fn new(stop: Moment) -> Self {
        Self(AtomicU64::new(stop.0.get()))
    }

    /// How the session was lost, if it can no longer be relied on; from the first cause on it stays so.
    pub fn lost(&self, now: Moment) -> Option<LossCause> {
        self.lose_if(LossCause::Expired, |stop| now.0.get() >= stop)
    }

    /// Whether the session can no longer be relied on.
    pub fn is_over(&self, now: Moment) -> bool {
        self.lost(now).is_some()
    }

    /// Moves the stop time on; false if it had been reached before the answer was seen.
    pub fn extend(&self, now: Moment, to: Moment) -> bool {
        let later = |stop| (now.0.get() < stop).then(|| stop.max(to.0.get()));
        self.update(later).is_ok() || !self.is_over(now)
    }

    /// Ends it now; answers how it was lost: by this, or by what came first.
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

    /// The stop time; `None` once lost.
    pub fn stop(&self) -> Option<Moment> {
        let stop = self.0.load(Ordering::Acquire);
        let ahead = LossCause::numbered(stop).is_none();
        ahead.then_some(Moment::of(stop))
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
