//! The boot-time clock (rule P29) behind a two-method trait: everything the library knows of time comes from here, timers
//! included, so that a test can move it.

use std::fmt;
use std::fmt::Debug;
use std::future::{Future, poll_fn};
use std::ops::{Add, Sub};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
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

/// What can bound a wait: an `Instant`, of std or of tokio; or perhaps one, where `None` is no bound.
///
/// What is left until then is measured when the call is first awaited, by tokio's clock, so a time that is paused there stands
/// still; from then on it is a wait like any other. So a clock of the test kit that is moved while the call
/// waits brings its end nearer, and one that was moved before does not.
#[diagnostic::on_unimplemented(
    message = "a deadline is an `Instant`, of std or of tokio, and this is a `{Self}`",
    label = "is no `Instant`",
    note = "write `Instant::now() + Duration::from_secs(5)`; a length of time is written `wait = \"5s\"`, or `.wait(duration)`"
)]
pub trait Deadline {
    #[doc(hidden)]
    fn due(self) -> Option<Due>;
}

/// When a wait is to be over, by tokio's clock.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct Due(tokio::time::Instant);

impl Due {
    /// How long until then; zero if it is over.
    pub(crate) fn left(self) -> Duration {
        self.0
            .saturating_duration_since(tokio::time::Instant::now())
    }

    /// The earlier of the two.
    pub(crate) fn earlier(self, other: Option<Self>) -> Self {
        other.map_or(self, |other| Self(self.0.min(other.0)))
    }
}

impl Deadline for std::time::Instant {
    fn due(self) -> Option<Due> {
        Some(Due(self.into()))
    }
}

impl Deadline for tokio::time::Instant {
    fn due(self) -> Option<Due> {
        Some(Due(self))
    }
}

impl<D: Deadline> Deadline for Option<D> {
    fn due(self) -> Option<Due> {
        self.and_then(Deadline::due)
    }
}

/// A timer that runs.
pub(crate) type Sleep = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Time as the library sees it.
pub(crate) trait Clock: Debug + Send + Sync {
    /// Now.
    fn now(&self) -> Moment;
    /// Completes at or after `when`; needs a tokio runtime with time enabled.
    fn sleep_until(&self, when: Moment) -> Sleep;
}

/// What the future answers; `None` if it has not by then. What need not wait costs no timer.
pub(crate) async fn by<F: Future>(clock: &dyn Clock, when: Moment, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut sleep = None;
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => {
            let sleep = sleep.get_or_insert_with(|| clock.sleep_until(when));
            sleep.as_mut().poll(cx).map(|()| None)
        }
    })
    .await
}

/// A timer that is asked for again and again. It is made anew only for an earlier moment than it is set for: most are put off
/// before they are due, so one that is set too early is left to run out, and set again then.
pub(crate) struct Alarm {
    clock: Arc<dyn Clock>,
    set: Option<(Moment, Sleep)>,
}

impl Alarm {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, set: None }
    }

    /// Completes at or after `when`; never, if there is none. Dropping the future loses nothing.
    pub(crate) async fn at(&mut self, when: Option<Moment>) {
        let Some(when) = when else {
            return std::future::pending().await;
        };
        loop {
            let sleep = match &mut self.set {
                // One that is overdue has slept through a suspend, and sleeps on.
                Some((at, sleep)) if *at <= when && self.clock.now() < *at => sleep,
                set => &mut set.insert((when, self.clock.sleep_until(when))).1,
            };
            sleep.await;
            self.set = None;
            if self.clock.now() >= when {
                return;
            }
        }
    }
}

impl Debug for Alarm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.set.as_ref().map(|(at, _)| at);
        f.debug_tuple("Alarm").field(&at).finish()
    }
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

    fn sleep_until(&self, when: Moment) -> Sleep {
        Box::pin(tokio::time::sleep(when - self.now()))
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
const CLOCK: rustix::time::ClockId = rustix::time::ClockId::Boottime;
/// Elsewhere the monotonic clock: macOS counts suspended time in it.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const CLOCK: rustix::time::ClockId = rustix::time::ClockId::Monotonic;

#[cfg(test)]
mod tests {
    use super::*;

    /// Polls the alarm once, as a loop does that something else wakes: it must not ring.
    async fn look(alarm: &mut Alarm, when: Option<Moment>) {
        let rung = by(&BootClock, BootClock.now(), alarm.at(when)).await;
        assert!(rung.is_none(), "too early");
    }

    /// Waits for the alarm, but not for ever.
    async fn wait(alarm: &mut Alarm, when: Moment) {
        let patience = BootClock.now() + Duration::from_secs(20);
        let rung = by(&BootClock, patience, alarm.at(Some(when))).await;
        assert!(rung.is_some(), "not rung");
        assert!(BootClock.now() >= when, "too early");
    }

    fn after(millis: u64) -> Moment {
        BootClock.now() + Duration::from_millis(millis)
    }

    #[tokio::test]
    async fn an_alarm_that_is_put_off_rings_at_the_later_moment() {
        let mut alarm = Alarm::new(Arc::new(BootClock));
        look(&mut alarm, Some(after(10_000))).await;
        let early = after(500);
        look(&mut alarm, Some(early)).await;
        look(&mut alarm, None).await;
        let set = |alarm: &Alarm| alarm.set.as_ref().map(|(at, _)| *at);
        look(&mut alarm, Some(early + Duration::from_millis(50))).await;
        assert_eq!(set(&alarm), Some(early), "made anew");
        wait(&mut alarm, early + Duration::from_millis(50)).await;
        assert_eq!(set(&alarm), None);
    }

    #[tokio::test]
    async fn an_alarm_that_is_brought_forward_rings_at_the_earlier_moment() {
        let mut alarm = Alarm::new(Arc::new(BootClock));
        look(&mut alarm, Some(after(60_000))).await;
        wait(&mut alarm, after(10)).await;
        look(&mut alarm, Some(after(60_000))).await;
        wait(&mut alarm, after(10)).await;
    }
}
