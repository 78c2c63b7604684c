//! Runner of the driver: the thread that submits a message handles it, under a mutex, and then performs its effects.
//!
//! No switch to another thread is needed: waking a sleeping processor takes longer than handling the message.
//!
//! Invariants:
//! - Each message is handled once. The messages of one thread are handled in the order in which it submitted them.
//! - Each effect is performed once, without the driver's mutex. One thread at a time performs effects, in the order in which the driver
//!   produced them. An effect may submit messages; the same thread performs their effects later, so nothing recurses.
//! - A thread performs effects for about [`BUDGET`], including its own, and then wakes the engine's thread.
//! - A driver that has ended or panicked is dropped, and refuses all later messages. Its effects are performed.
//! - A panic in the driver, in an effect or in a drop reaches neither the submitter nor another effect.

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use super::driver::{Driver, Message};
use super::effects::Effect;
use crate::clock::{Alarm, Clock};
use crate::mutex::lock;

/// Time after which a thread that performs effects leaves the rest to the engine's thread. It reads the clock after every fourth effect,
/// so slow effects in user code delay neither a caller nor a renewal for long.
const BUDGET: Duration = Duration::from_micros(100);

/// A driver to which every thread may submit messages.
pub(super) struct Runner {
    /// `None` before the beginning and after the end.
    driver: Mutex<Option<Driver>>,
    /// True once the driver has ended. Its tasks may still use the client for a moment.
    ended: AtomicBool,
    effects: Effects,
    clock: Arc<dyn Clock>,
    /// Wakes the engine's thread, which submits ticks while the driver lives.
    alarm: Arc<Alarm>,
}

impl Runner {
    /// Creates a runner without a driver. It refuses messages until it has one.
    pub(super) fn new(clock: Arc<dyn Clock>, alarm: Arc<Alarm>) -> Self {
        Self {
            driver: Mutex::new(None),
            ended: AtomicBool::new(false),
            effects: Effects::default(),
            clock,
            alarm,
        }
    }

    pub(super) fn begin(&self, driver: Driver) {
        *lock(&self.driver) = Some(driver);
    }

    /// Returns true once the driver has ended, without waiting for a message that is being handled.
    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Handles a message; false if there is no driver.
    pub(super) fn submit(&self, message: Message) -> bool {
        let mut running = lock(&self.driver);
        let Some(driver) = &mut *running else {
            drop(running);
            contain(|| drop(message)); // may wake a task
            return false;
        };
        // The thread belongs to a user, so a bug of ours must not end it.
        let handled = catch_unwind(AssertUnwindSafe(|| driver.handle(message)));
        if handled.is_ok() && !driver.finished {
            self.effects.add(&mut driver.effects, false);
            drop(running);
        } else {
            let mut last = std::mem::take(&mut driver.effects);
            self.ended.store(true, Ordering::Release);
            let ended = running.take();
            drop(running);
            // Before the effects, so that a caller who is notified of the end finds the driver gone.
            contain(|| drop(ended));
            self.effects.add(&mut last, true);
        }
        if !self.effects.perform(&*self.clock) {
            self.alarm.ring();
        }
        true
    }
}

/// Submits a message to a runner that may be gone.
pub(super) fn submit(runner: &Weak<Runner>, message: Message) -> bool {
    runner.upgrade().is_some_and(|runner| runner.submit(message))
}

impl fmt::Debug for Runner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runner").finish_non_exhaustive()
    }
}

/// Effects to perform.
#[derive(Default)]
struct Effects(Mutex<Queue>);

#[derive(Default)]
struct Queue {
    effects: VecDeque<Effect>,
    /// True while a thread performs effects.
    performing: bool,
    /// The driver has ended: no effects follow, and the engine's thread may be gone.
    last: bool,
}

impl Effects {
    /// Adds effects, while the driver is locked or once it is gone.
    fn add(&self, effects: &mut Vec<Effect>, last: bool) {
        if last || !effects.is_empty() {
            let mut queue = lock(&self.0);
            queue.effects.extend(effects.drain(..));
            queue.last |= last;
        }
    }

    /// Performs the queued effects, unless another thread does; false if some are left for the engine's thread.
    fn perform(&self, clock: &dyn Clock) -> bool {
        let mut queue = lock(&self.0);
        if queue.performing {
            return true; // that thread performs these as well
        }
        queue.performing = true;
        let (begun, mut performed) = (clock.now(), 0);
        while let Some(effect) = queue.effects.pop_front() {
            drop(queue);
            contain(|| effect.perform());
            performed += 1;
            let over = performed % 4 == 0 && clock.now() - begun > BUDGET;
            queue = lock(&self.0);
            if over && !queue.last {
                break;
            }
        }
        queue.performing = false;
        queue.effects.is_empty()
    }
}

/// Runs code that may call user code, and contains its panic.
pub(super) fn contain(code: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(code)) {
        std::mem::forget(payload); // a user's value, whose drop may panic again
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::clock::BootClock;

    fn effect(run: impl FnOnce() + Send + 'static) -> Vec<Effect> {
        vec![Effect::Run(Box::new(run))]
    }

    #[test]
    fn effects_of_many_threads_keep_their_order() {
        const THREADS: usize = 4;
        const EACH: usize = 20_000;
        let (driver, effects) = (Mutex::new(0), Effects::default());
        let performed = Arc::<Mutex<Vec<usize>>>::default();
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for _ in 0..EACH {
                        let mut running = lock(&driver);
                        *running += 1;
                        let (number, performed) = (*running, Arc::clone(&performed));
                        let push = move || performed.try_lock().unwrap().push(number);
                        effects.add(&mut effect(push), false);
                        drop(running);
                        while !effects.perform(&BootClock) {}
                    }
                });
            }
        });
        assert!(lock(&performed).iter().copied().eq(1..=THREADS * EACH));
    }

    #[test]
    fn effects_of_effects_need_no_deeper_stack() {
        fn submit(effects: &Arc<Effects>, left: usize) {
            let own = Arc::clone(effects);
            let next = move || {
                if left > 0 {
                    submit(&own, left - 1);
                }
            };
            effects.add(&mut effect(next), false);
            while !effects.perform(&BootClock) {}
        }
        let run = || submit(&Arc::default(), 100_000);
        let small = thread::Builder::new().stack_size(128 * 1024).spawn(run);
        small.unwrap().join().unwrap();
    }

    #[test]
    fn thread_leaves_slow_effects_unless_they_are_the_last() {
        let (effects, performed) = (Effects::default(), Arc::<Mutex<usize>>::default());
        let add = |last| {
            for _ in 0..6 {
                let performed = Arc::clone(&performed);
                let slow = move || {
                    thread::sleep(2 * BUDGET);
                    *lock(&performed) += 1;
                };
                effects.add(&mut effect(slow), last);
            }
        };
        add(false);
        assert!(!effects.perform(&BootClock));
        assert_eq!(*lock(&performed), 4);
        add(true);
        assert!(effects.perform(&BootClock));
        assert_eq!(*lock(&performed), 12);
    }

    #[test]
    fn panic_in_an_effect_loses_no_other() {
        let (effects, performed) = (Effects::default(), Arc::<Mutex<bool>>::default());
        let after = Arc::clone(&performed);
        effects.add(&mut effect(|| panic!("on purpose")), false);
        effects.add(&mut effect(move || *lock(&after) = true), false);
        assert!(effects.perform(&BootClock));
        assert!(*lock(&performed));
    }

    #[cfg(all(feature = "embedded", feature = "testing"))]
    #[tokio::test]
    async fn driver_that_panics_refuses_all_that_follows() {
        use super::super::driver::Command;
        use super::super::handle::{Engine, runtime};
        use crate::values::{Config, LockError};

        let engine = Engine::start(Config::embedded(), Arc::new(BootClock), runtime).unwrap();
        engine.warm().await.unwrap();
        let panics = Command::Inspect(Box::new(|_| panic!("on purpose")));
        engine.submit(panics).unwrap();
        let refused = engine.warm().await;
        assert!(matches!(refused, Err(LockError::RuntimeEnded { .. })), "{refused:?}");
    }
}
