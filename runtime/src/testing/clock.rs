//! Clock that a test can move: boot time plus an offset.
//!
//! Invariants:
//! - It never goes back, and it runs by itself: without moves, time passes as usual.
//! - Every waiting timer is in the table, so that a move can stop at each timer that is due.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::clock::{BootClock, Clock, Moment, Sleep};
use crate::mutex::lock;

/// Clones share one clock.
#[derive(Clone, Debug, Default)]
pub(super) struct TestClock(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// Offset to boot time, in nanoseconds.
    added: AtomicU64,
    /// How often the time was read.
    asked: AtomicU64,
    /// How many timers were created.
    made: AtomicU64,
    /// Waiting timers, by when they are due.
    waiting: Mutex<BTreeMap<(Moment, u64), Waker>>,
}

impl TestClock {
    /// Returns how often the library or etcd has read the time. While neither does, nothing happens there.
    pub(super) fn asked(&self) -> u64 {
        self.0.asked.load(Ordering::Acquire)
    }

    /// Returns the time like [`Clock::now`], without counting the read.
    pub(super) fn time(&self) -> Moment {
        BootClock.now() + self.added()
    }

    /// Returns when the first timer is due. This may be slightly in the past: time passes, and the executor's timers are coarse.
    pub(super) fn next(&self) -> Option<Moment> {
        lock(&self.0.waiting).keys().next().map(|(at, _)| *at)
    }

    /// Moves the clock to this moment, unless it is already later, and wakes all timers. Those that are not due continue to wait, for a
    /// shorter time.
    pub(super) fn move_to(&self, when: Moment) {
        let woken = {
            let mut waiting = lock(&self.0.waiting);
            let step = when - self.time();
            let nanos = u64::try_from(step.as_nanos()).unwrap_or(u64::MAX);
            self.0.added.fetch_add(nanos, Ordering::AcqRel);
            // All of them, because timers that are not due have less time left.
            std::mem::take(&mut *waiting)
        };
        for waker in woken.into_values() {
            waker.wake();
        }
    }

    fn added(&self) -> Duration {
        Duration::from_nanos(self.0.added.load(Ordering::Acquire))
    }
}

impl Clock for TestClock {
    fn now(&self) -> Moment {
        self.0.asked.fetch_add(1, Ordering::AcqRel);
        self.time()
    }

    fn sleep_until(&self, when: Moment) -> Sleep {
        let id = self.0.made.fetch_add(1, Ordering::Relaxed);
        Box::pin(Timer { clock: self.clone(), key: (when, id), real: None })
    }
}

/// etcd uses the same time.
impl etcd_locked_embedded::Clock for TestClock {
    fn now(&self) -> Duration {
        Clock::now(self).since_boot()
    }

    fn sleep_until(&self, at: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Clock::sleep_until(self, Moment::after_boot(at))
    }
}

struct Timer {
    clock: TestClock,
    key: (Moment, u64),
    /// Timer of real time, and the offset when it was set.
    real: Option<(Duration, Sleep)>,
}

impl Future for Timer {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let (clock, key) = (self.clock.clone(), self.key);
        loop {
            let added = {
                // Reads and registers under one lock, so that no move falls in between.
                let mut waiting = lock(&clock.0.waiting);
                if clock.time() >= key.0 {
                    waiting.remove(&key);
                    return Poll::Ready(());
                }
                waiting.insert(key, cx.waker().clone());
                clock.added()
            };
            let real = match &mut self.real {
                Some((set, real)) if *set == added => real,
                stale => &mut stale.insert((added, BootClock.sleep_until(key.0 - added))).1,
            };
            if real.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            self.real = None;
        }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        let waker = lock(&self.clock.0.waiting).remove(&self.key);
        drop(waker); // outside the lock: it may drop a task
    }
}
