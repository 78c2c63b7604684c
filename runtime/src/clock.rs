//! Clock of boot time (rule P29), behind a trait with two methods. All time in the library comes from here, timers included, so that a
//! test can move it.

use std::fmt::Debug;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

pub(crate) use etcd_locked_core::Moment;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::mutex::lock;

/// A bound of a wait: an `Instant` of std or tokio, or an `Option` of one, where `None` is no bound.
///
/// The time left is measured when the call is first awaited, by tokio's clock, so a paused clock stands still. After that, it is an
/// ordinary wait. If a test moves the test kit's clock while the call waits, the deadline comes nearer; an earlier move does not count.
#[diagnostic::on_unimplemented(
    message = "a deadline must be an `Instant` of std or tokio, not a `{Self}`",
    label = "not an `Instant`",
    note = "write `Instant::now() + Duration::from_secs(5)`; a length of time is written `wait = \"5s\"`, or `.wait(duration)`"
)]
pub trait Deadline {
    #[doc(hidden)]
    fn due(self) -> Option<Instant>;
}

impl Deadline for std::time::Instant {
    fn due(self) -> Option<Instant> {
        Some(self.into())
    }
}

impl Deadline for tokio::time::Instant {
    fn due(self) -> Option<Instant> {
        Some(self)
    }
}

impl<D: Deadline> Deadline for Option<D> {
    fn due(self) -> Option<Instant> {
        self.and_then(Deadline::due)
    }
}

/// A running timer.
pub(crate) type Sleep = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Limit to once a minute, for log lines that would otherwise come with every call.
#[derive(Debug, Default)]
pub(crate) struct Minutely(Option<Moment>);

impl Minutely {
    /// Returns true if a minute has passed, and starts the next one.
    pub(crate) fn is_due(&mut self, now: Moment) -> bool {
        let is_due = self.0.is_none_or(|last| now - last >= Duration::from_secs(60));
        if is_due {
            self.0 = Some(now);
        }
        is_due
    }
}

/// Time as the library sees it.
pub(crate) trait Clock: Debug + Send + Sync {
    fn now(&self) -> Moment;
    /// Completes at or after `when`; needs a tokio runtime with time enabled.
    fn sleep_until(&self, when: Moment) -> Sleep;
}

/// Returns the future's output, or `None` if it is not ready by `when`. Creates no timer if the future is ready at once. The caller pins
/// the future, because an `async fn` reserves space for its argument twice, and each `async fn` that passes it on doubles that.
pub(crate) async fn by<F: Future + Unpin>(
    clock: &dyn Clock,
    when: Moment,
    mut future: F,
) -> Option<F::Output> {
    let mut sleep = None;
    poll_fn(|cx| match Pin::new(&mut future).poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => {
            let sleep = sleep.get_or_insert_with(|| clock.sleep_until(when));
            sleep.as_mut().poll(cx).map(|()| None)
        }
    })
    .await
}

/// Returns a random number below a thousand.
pub(crate) fn chance(clock: &dyn Clock) -> u32 {
    clock.now().since_boot().subsec_micros() % 1000
}

/// Returns a time up to a fifth shorter or longer than this one, so that processes do not act in step.
pub(crate) fn about(time: Duration, clock: &dyn Clock) -> Duration {
    time * 4 / 5 + time * chance(clock) * 2 / 5000
}

/// Completes at that moment; never, if `when` is `None`.
pub(crate) async fn until(clock: &dyn Clock, when: Option<Moment>) {
    match when {
        Some(when) => clock.sleep_until(when).await,
        None => std::future::pending().await,
    }
}

/// Timer that any thread can set, and on which one waits. Setting it to a later moment has no effect, because most moments are put off
/// before they are due. So the waiter checks what is due when the timer rings, and sets it again.
#[derive(Debug)]
pub(crate) struct Alarm {
    clock: Arc<dyn Clock>,
    at: Mutex<Option<Moment>>,
    brought_forward: Notify,
}

impl Alarm {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, at: Mutex::new(None), brought_forward: Notify::new() }
    }

    /// Sets the timer to ring by `when`.
    pub(crate) fn set(&self, now: Moment, when: Moment) {
        let mut at = lock(&self.at);
        // An overdue timer has slept through a suspend and would sleep on.
        if at.is_none_or(|at| when < at || at <= now) {
            *at = Some(when);
            drop(at);
            self.brought_forward.notify_one();
        }
    }

    pub(crate) fn ring(&self) {
        let now = self.clock.now();
        self.set(now, now);
    }

    /// Waits until it rings, then clears it. Dropping the future loses nothing.
    pub(crate) async fn rings(&self) {
        loop {
            let at = *lock(&self.at);
            if at.is_some_and(|at| at <= self.clock.now()) {
                break; // a timer would take a millisecond
            }
            tokio::select! {
                () = until(&*self.clock, at) => break,
                () = self.brought_forward.notified() => {}
            }
        }
        *lock(&self.at) = None;
    }
}

/// Boot time: unlike `Instant` on Linux, it continues while the machine is suspended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BootClock;

impl Clock for BootClock {
    fn now(&self) -> Moment {
        Moment::after_boot(since_boot())
    }

    fn sleep_until(&self, when: Moment) -> Sleep {
        Box::pin(tokio::time::sleep(when - self.now()))
    }
}

/// Reads the clock that continues while the machine is suspended: on macOS that is the monotonic one.
#[cfg(unix)]
fn since_boot() -> Duration {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    const CLOCK: rustix::time::ClockId = rustix::time::ClockId::Boottime;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    const CLOCK: rustix::time::ClockId = rustix::time::ClockId::Monotonic;
    let t = rustix::time::clock_gettime(CLOCK);
    Duration::new(u64::try_from(t.tv_sec).unwrap_or(0), u32::try_from(t.tv_nsec).unwrap_or(0))
}

/// Elsewhere, returns the time since the first call, by `Instant`: on Windows it continues while the machine is suspended.
#[cfg(not(unix))]
fn since_boot() -> Duration {
    static FIRST: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    FIRST.get_or_init(std::time::Instant::now).elapsed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overdue_alarm_is_set_anew() {
        let alarm = Alarm::new(Arc::new(BootClock));
        let secs = Duration::from_secs;
        let now = BootClock.now();
        alarm.set(now, now + secs(60));
        alarm.set(now, now + secs(90)); // put off: it rings when it was first set
        assert_eq!(*lock(&alarm.at), Some(now + secs(60)));
        alarm.set(now + secs(90), now + secs(95));
        assert_eq!(*lock(&alarm.at), Some(now + secs(95)));
    }
}
