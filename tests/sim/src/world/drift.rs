//! Clock of a process, which runs a little faster or slower than etcd's (rule P28).

use std::time::Duration;

use super::bench::Bench;
use super::random::Random;
use etcd_locked_core::Moment;

/// The largest error of its rate, in millionths. Rule P28 allows for 10,000.
const MOST: u64 = 4000;

const MILLION: u128 = 1_000_000;

/// A clock, as it differs since the moment when it was right.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Drift {
    since: Moment,
    /// How much it advances while etcd's clock advances by a million.
    rate: u128,
}

impl Drift {
    pub(crate) fn none(since: Moment) -> Self {
        Self { since, rate: MILLION }
    }

    pub(crate) fn drawn(since: Moment, random: &mut Random) -> Self {
        let rate = MILLION + u128::from(random.below(2 * MOST + 1));
        Self { since, rate: rate - u128::from(MOST) }
    }

    /// Returns what it shows at this moment.
    pub(crate) fn shown(&self, at: Moment) -> Moment {
        self.since + nanos((at - self.since).as_nanos() * self.rate / MILLION)
    }

    /// Returns the first moment at which it shows this.
    pub(crate) fn when(&self, shown: Moment) -> Moment {
        let gone = (shown - self.since).as_nanos() * MILLION;
        self.since + nanos(gone.div_ceil(self.rate))
    }
}

impl Bench {
    /// Lets the clocks of processes run at different rates.
    pub(crate) fn drift(&mut self) {
        self.drifts = true;
        for n in 0..self.processes.len() {
            self.processes[n].clock = self.clock_of(n);
        }
    }

    /// Returns the clock of a process that starts now.
    pub(super) fn clock_of(&self, process: usize) -> Drift {
        match self.drifts {
            true => Drift::drawn(self.now, &mut Random::new(self.seed * 37 + process as u64)),
            false => Drift::none(self.now),
        }
    }
}

fn nanos(nanos: u128) -> Duration {
    Duration::from_nanos(nanos.try_into().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_is_due_when_the_clock_shows_its_time_and_no_earlier() {
        let since = Moment::after_boot(Duration::from_secs(1000));
        for seed in 0..1000 {
            let mut random = Random::new(seed);
            let drift = Drift::drawn(since, &mut random);
            let due = since + random.micros(1, 60_000_000);
            let at = drift.when(due);
            assert!(drift.shown(at) >= due, "{drift:?} {due:?}");
            assert!(drift.shown(at - Duration::from_nanos(1)) < due, "{drift:?} {due:?}");
        }
    }
}
