//! A state machine that is run by whoever has something to tell it, there and then; if somebody else is at it, that one hears
//! the news too (flat combining: Hendler, Incze, Shavit, Tzafrir, SPAA 2010).
//!
//! What a thread tells costs it no switch to another one, and its answer none back: waking a processor that sleeps takes
//! longer than all the machine does.
//!
//! Invariants:
//! - What is told is heard once, in the order in which it was told.
//! - Nobody waits for the machine. Who finds it taken goes away; who has it looks for news once more after giving it back.
//! - Nobody is kept for long: after so much news a thread of its own is called for the rest, once the machine is given back (if
//!   it came earlier, it would find it taken and go away).
//! - A machine that has ended, or has panicked, is dropped, and what it was told with it.

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// How much one visitor hears on behalf of others.
const PATIENCE: usize = 64;

/// What is run.
pub(super) trait Machine {
    type News;

    fn hear(&mut self, news: Self::News);

    /// It has heard all there is, and is left alone.
    fn rest(&mut self);

    /// It hears nothing any more.
    fn has_ended(&self) -> bool;
}

pub(super) struct Combiner<M: Machine> {
    told: Mutex<VecDeque<M::News>>,
    /// None: not begun yet, or ended.
    machine: Mutex<Option<M>>,
    /// Has a thread of its own tell it something.
    call: Box<dyn Fn() + Send + Sync>,
}

impl<M: Machine> Combiner<M> {
    pub(super) fn new(call: impl Fn() + Send + Sync + 'static) -> Self {
        Self {
            told: Mutex::new(VecDeque::new()),
            machine: Mutex::new(None),
            call: Box::new(call),
        }
    }

    /// Until now it has heard nothing.
    pub(super) fn begin(&self, machine: M) {
        *lock(&self.machine) = Some(machine);
    }

    /// Whether there was a machine to hear it: it has, or will in a moment.
    pub(super) fn tell(&self, news: M::News) -> bool {
        lock(&self.told).push_back(news);
        let mut heard = false;
        let mut patience = PATIENCE;
        loop {
            let mut machine = match self.machine.try_lock() {
                Ok(machine) => machine,
                Err(TryLockError::Poisoned(machine)) => machine.into_inner(),
                Err(TryLockError::WouldBlock) => return true, // whoever has it looks once more
            };
            let Some(running) = &mut *machine else {
                drop(machine);
                let unheard = std::mem::take(&mut *lock(&self.told));
                drop(unheard); // outside the locks: it may wake somebody
                return heard;
            };
            // This may be a user's thread, which a mistake of ours must not end (I10).
            let leave = catch_unwind(AssertUnwindSafe(|| self.hear(running, &mut patience)));
            let leave = leave.unwrap_or(Leave::Ended);
            let ended = machine.take_if(|_| leave == Leave::Ended);
            drop(machine);
            drop(ended);
            heard = true;
            if leave == Leave::ToOthers {
                (self.call)();
                return true;
            }
            // Looks after giving it back: whoever found it taken has told before (the lock of `told` orders the two).
            if lock(&self.told).is_empty() {
                return true;
            }
        }
    }

    fn hear(&self, machine: &mut M, patience: &mut usize) -> Leave {
        while *patience > 0 {
            let news = lock(&self.told).pop_front();
            let Some(news) = news else {
                machine.rest();
                return Leave::AllHeard;
            };
            *patience -= 1;
            machine.hear(news);
            if machine.has_ended() {
                return Leave::Ended;
            }
        }
        Leave::ToOthers
    }
}

/// How a visitor leaves the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leave {
    AllHeard,
    /// There may be more, for the thread that is called.
    ToOthers,
    Ended,
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<M: Machine> fmt::Debug for Combiner<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Combiner").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, mpsc};
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;

    /// Hears who tells what, in order.
    #[derive(Default)]
    struct Ear {
        last: [usize; 3],
        heard: Arc<AtomicUsize>,
        ended: bool,
    }

    const END: usize = usize::MAX;
    const PANIC: usize = usize::MAX - 1;
    const TICK: usize = 0;

    /// What is told; counts where it goes.
    struct News(usize, usize, Arc<AtomicUsize>);

    impl Drop for News {
        fn drop(&mut self) {
            self.2.fetch_add(1, Ordering::Relaxed);
        }
    }

    impl Machine for Ear {
        type News = News;

        fn hear(&mut self, news: News) {
            match news.1 {
                END => self.ended = true,
                TICK => {}
                PANIC => panic!("on purpose"),
                what => {
                    assert_eq!(what, self.last[news.0] + 1, "out of order, or lost");
                    self.last[news.0] = what;
                    self.heard.fetch_add(1, Ordering::Relaxed);
                }
            }
        }

        fn rest(&mut self) {}

        fn has_ended(&self) -> bool {
            self.ended
        }
    }

    #[test]
    fn what_many_tell_at_once_is_heard_once_and_in_order() {
        const EACH: usize = 50_000;
        let (call, calls) = mpsc::channel();
        let caller = call.clone();
        let combiner = Combiner::new(move || {
            let _ = caller.send(());
        });
        let (heard, dropped) = (Arc::<AtomicUsize>::default(), Arc::default());
        combiner.begin(Ear {
            heard: Arc::clone(&heard),
            ..Ear::default()
        });
        let news = |who, what| News(who, what, Arc::clone(&dropped));
        thread::scope(|scope| {
            let (combiner, news) = (&combiner, &news);
            scope.spawn(move || while calls.recv().is_ok() && combiner.tell(news(0, TICK)) {});
            for who in 0..3 {
                scope.spawn(move || {
                    for what in 1..=EACH {
                        assert!(combiner.tell(news(who, what)));
                    }
                });
            }
            let patience = Instant::now() + Duration::from_secs(30);
            while heard.load(Ordering::Relaxed) < 3 * EACH && Instant::now() < patience {
                thread::yield_now();
            }
            combiner.tell(news(0, END));
            call.send(()).unwrap();
        });
        assert_eq!(heard.load(Ordering::Relaxed), 3 * EACH, "some were lost");
    }

    #[test]
    fn a_machine_that_has_ended_or_panicked_is_gone_with_what_it_was_told() {
        for end in [END, PANIC] {
            let combiner = Combiner::new(|| {});
            let dropped = Arc::default();
            let news = |what| News(0, what, Arc::clone(&dropped));
            assert!(!combiner.tell(news(1)), "before it has begun");
            combiner.begin(Ear::default());
            assert!(combiner.tell(news(1)));
            assert!(combiner.tell(news(end)));
            assert!(!combiner.tell(news(2)));
            assert_eq!(dropped.load(Ordering::Relaxed), 4);
        }
    }

    /// Tells its own combiner something while it hears.
    struct Echo(Arc<Combiner<Self>>, Arc<AtomicUsize>);

    impl Machine for Echo {
        type News = usize;

        fn hear(&mut self, news: usize) {
            self.1.fetch_add(1, Ordering::Relaxed);
            if news > 0 {
                self.0.tell(news - 1);
            }
        }

        fn rest(&mut self) {}

        fn has_ended(&self) -> bool {
            false
        }
    }

    /// Tells its own combiner something whenever it has heard all.
    struct Chatter(Arc<Combiner<Self>>, Arc<AtomicUsize>);

    impl Machine for Chatter {
        type News = ();

        fn hear(&mut self, (): ()) {
            self.1.fetch_add(1, Ordering::Relaxed);
        }

        fn rest(&mut self) {
            self.0.tell(());
        }

        fn has_ended(&self) -> bool {
            false
        }
    }

    #[test]
    fn nobody_is_kept_by_the_news_of_others() {
        let calls = Arc::new(AtomicUsize::new(0));
        let called = Arc::clone(&calls);
        let combiner = Arc::new(Combiner::new(move || {
            called.fetch_add(1, Ordering::Relaxed);
        }));
        let heard = Arc::default();
        combiner.begin(Chatter(Arc::clone(&combiner), Arc::clone(&heard)));
        assert!(combiner.tell(()));
        assert_eq!(heard.load(Ordering::Relaxed), PATIENCE);
        assert_eq!(calls.load(Ordering::Relaxed), 1, "for the rest");
        *lock(&combiner.machine) = None; // it holds itself
    }

    #[test]
    fn what_is_told_while_it_hears_is_heard_next() {
        let combiner = Arc::new(Combiner::new(|| {}));
        let heard = Arc::default();
        combiner.begin(Echo(Arc::clone(&combiner), Arc::clone(&heard)));
        combiner.tell(9);
        assert_eq!(heard.load(Ordering::Relaxed), 10);
        *lock(&combiner.machine) = None; // it holds itself
    }
}
