//! Tally of a task: its calls, and how long they took.

use std::time::{Duration, Instant};

use crate::latency::Latency;

/// Window of time; calls that end in it count.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub(super) begin: Instant,
    pub(super) end: Instant,
}

impl Window {
    pub(super) fn new(begin: Instant, length: Duration) -> Self {
        Self { begin, end: begin + length }
    }

    pub(super) fn is_over(&self, now: Instant) -> bool {
        now >= self.end
    }
}

#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Calls in the window.
    pub(super) count: u64,
    /// All calls, including those before and after the window.
    pub(super) total: u64,
    pub(super) latency: Latency,
}

impl Tally {
    pub(super) fn record(&mut self, window: &Window, from: Instant, to: Instant) {
        self.total += 1;
        if to < window.begin || window.is_over(to) {
            return;
        }
        self.count += 1;
        self.latency.record(to - from);
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.total += other.total;
        self.latency.add(&other.latency);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_counts_where_it_ends() {
        let begin = Instant::now() + Duration::from_secs(10);
        let at = |millis| begin + Duration::from_millis(millis);
        let early = begin - Duration::from_millis(1);
        let window = Window::new(begin, Duration::from_secs(2));
        let mut tally = Tally::default();
        for (from, to) in [(early, early), (early, at(0)), (at(0), at(1999)), (at(1999), at(2000))]
        {
            tally.record(&window, from, to);
        }
        assert_eq!((tally.count, tally.total), (2, 4));
    }
}
