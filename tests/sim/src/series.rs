//! Series: many schedules, on all processors of the machine.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::world::schedules::play;
use crate::world::tally::Tally;
use crate::world::violation::Violation;

/// How often progress is checked, and at how many shares of the work it is shown.
const TICK: Duration = Duration::from_millis(100);
const SHARES: u64 = 10;

/// The results of a series.
#[derive(Debug, Default)]
pub(crate) struct Series {
    pub(crate) schedules: u64,
    pub(crate) steps: u64,
    pub(crate) tally: Tally,
    /// The lowest seed first.
    pub(crate) violations: Vec<(u64, Violation)>,
    pub(crate) took: Duration,
}

/// Plays the seeds `from .. from + count`.
pub(crate) fn play_all(from: u64, count: u64) -> Series {
    let began = Instant::now();
    let next = AtomicU64::new(from);
    let done = AtomicU64::new(0);
    let series = Mutex::new(Series::default());
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        let work = || {
            let mut mine = Series::default();
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= from + count {
                    break;
                }
                let played = play(seed, 0);
                mine.schedules += 1;
                mine.steps += played.steps;
                mine.tally.add(&played.tally);
                if let Some(violation) = played.violation {
                    mine.violations.push((seed, violation));
                }
                done.fetch_add(1, Ordering::Relaxed);
            }
            series.lock().unwrap_or_else(PoisonError::into_inner).add(mine);
        };
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let is_over = || workers.iter().all(thread::ScopedJoinHandle::is_finished);
        show(count, || done.load(Ordering::Relaxed), is_over);
    });
    let mut series = series.into_inner().unwrap_or_else(PoisonError::into_inner);
    series.violations.sort_by_key(|(seed, _)| *seed);
    series.took = began.elapsed();
    series
}

impl Series {
    fn add(&mut self, other: Self) {
        self.schedules += other.schedules;
        self.steps += other.steps;
        self.tally.add(&other.tally);
        self.violations.extend(other.violations);
    }
}

/// Prints progress until all schedules are done: one line for each share of the work.
fn show(count: u64, done: impl Fn() -> u64, is_over: impl Fn() -> bool) {
    let began = Instant::now();
    let mut shown = 0;
    while !is_over() {
        let done = done();
        let share = done * SHARES / count.max(1);
        if share > shown {
            shown = share;
            eprintln!("{done}/{count} schedules, {:.0} s", began.elapsed().as_secs_f64());
        }
        thread::sleep(TICK);
    }
}
