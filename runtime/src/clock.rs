//! Clock of boot time (rule P29), behind a two-method trait: everything the library knows of time comes from here, timers
//! included, so that a test can move it.

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

/// A timer that runs.
pub(crate) type Sleep = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What is done at most once a minute, as lines of the log are that would come with each call.
#[derive(Debug, Default)]
pub(crate) struct Minutely(Option<Moment>);

impl Minutely {
    /// Returns true if it is to be done now.
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

/// What the future answers; `None` if it has not by then. What need not wait costs no timer. The caller pins the future: an
/// `async fn` has room for its argument twice, and each `async fn` that hands it on doubles that.
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

/// Completes at that moment; never, if there is none.
pub(crate) async fn until(clock: &dyn Clock, when: Option<Moment>) {
    match when {
        Some(when) => clock.sleep_until(when).await,
        None => std::future::pending().await,
    }
}

/// A timer that is set from any thread, and rings on one. Set for a later moment than it is set for, it stays as it is: most are
/// put off before they are due, so the waiter reads what is due when it rings, and sets it again.
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

    /// It rings by `when`, now being `now`.
    pub(crate) fn set(&self, now: Moment, when: Moment) {
        let mut at = lock(&self.at);
        // One that is overdue has slept through a suspend, and sleeps on.
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

    /// Completes when it rings; then it is not set any more. Dropping the future loses nothing.
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

/// Boot time: unlike `Instant` on Linux, it goes on while the machine is suspended.
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

/// Reads the clock that also counts while the machine is suspended: on macOS that is the monotonic one.
#[cfg(unix)]
fn since_boot() -> Duration {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    const CLOCK: rustix::time::ClockId = rustix::time::ClockId::Boottime;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    const CLOCK: rustix::time::ClockId = rustix::time::ClockId::Monotonic;
    let t = rustix::time::clock_gettime(CLOCK);
    Duration::new(u64::try_from(t.tv_sec).unwrap_or(0), u32::try_from(t.tv_nsec).unwrap_or(0))
}

/// Elsewhere the time since the first call, by `Instant`: on Windows it counts while the machine is suspended.
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
