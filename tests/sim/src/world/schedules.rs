//! Schedule: a storm of calls and faults, then calm. The invariants must hold throughout, and nothing may be left at the end.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use super::bench::{Bench, Happening};
use super::clients::Crowd;
use super::etcd::Space;
use super::faults::Faults;
use super::random::Random;
use super::tally::Tally;
use super::violation::{Violation, must};
use etcd_locked_core::Input;

/// The result of a schedule.
#[derive(Debug)]
pub(crate) struct Played {
    pub(crate) steps: u64,
    pub(crate) tally: Tally,
    pub(crate) violation: Option<Violation>,
    /// The last steps, as many as were requested.
    pub(crate) trace: Vec<String>,
}

/// Plays the schedule of a seed, and keeps its last `loud` steps.
pub(crate) fn play(seed: u64, loud: usize) -> Played {
    let mut bench = Bench::crowd(seed, loud).unwrap_or_else(|| Bench::drawn(seed, loud));
    let played = catch_unwind(AssertUnwindSafe(|| bench.play()));
    Played {
        steps: bench.steps,
        violation: played.err().map(Violation::caught),
        tally: bench.tally,
        trace: bench.trace.into_steps(),
    }
}

impl Bench {
    fn drawn(seed: u64, loud: usize) -> Self {
        // A separate source, so that its choices do not depend on what the bench draws first.
        let mut random = Random::new(seed ^ 0x5eed);
        let machines = random.one(&[2, 3, 3, 3, 4]);
        let mut bench = Self::new(seed, machines, loud);
        bench.drift();
        bench.faults = Faults::drawn(&mut random);
        bench.store.forbidden = Some("forbidden");
        let mut crowd = Crowd {
            names: random.one(&[1, 2, 3, 3]),
            hasty: random.chance(0.4),
            groups: random.one(&[0.0, 0.0, 0.2, 0.5]),
            nested: random.one(&[0.0, 0.1, 0.4]),
            ..Crowd::default()
        };
        bench.storm = match crowd.hasty {
            true => random.millis(1000, 15_000),
            false => random.millis(8000, 20_000),
        };
        let calls = random.below(40) + 10;
        // Bodies that want each other's names, often with no other fault than late messages. Then nothing excuses a core that
        // sees a cycle where there is none.
        if crowd.names > 1 && random.chance(0.3) {
            crowd.inverted = true;
            crowd.nested = random.one(&[0.5, 0.9]);
            bench.storm = random.millis(500, 8000);
            bench.peaceful = random.chance(0.6);
            crowd.patient = bench.peaceful && random.chance(0.7);
            if bench.peaceful {
                bench.faults = Faults::slow(random.one(&[0.0, 0.5, 0.5]));
            }
        }
        // Shared names, in a third of all schedules: in one mode, or in all modes on the same name.
        if random.chance(0.35) {
            (crowd.shared, crowd.permits) =
                random.one(&[(0.5, 0.0), (0.8, 0.0), (0.0, 0.8), (0.4, 0.5)]);
            // A call for a permit does not wait for one particular holder, so no check can decide whether it is in a cycle.
            if crowd.inverted {
                crowd.permits = 0.0;
            } else if random.chance(0.4) {
                bench.peaceful = true;
                bench.faults = Faults::slow(random.one(&[0.0, 0.0, 0.5]));
                crowd.names = crowd.names.min(2);
                bench.storm = random.millis(300, 6000);
            }
        }
        if !bench.peaceful {
            bench.faults.draw_others(&mut Random::new(seed ^ 0xfa17));
        }
        let mut id = 0;
        while id < calls {
            id += bench.plan(id, &crowd, bench.storm);
        }
        bench
    }

    fn play(&mut self) {
        self.at(self.now, Happening::Nemesis);
        self.run_until(self.now + self.storm, |_| false);

        self.calm();
        let served = self.run_until(self.now + Duration::from_secs(300), |bench| {
            bench.unanswered().next().is_none()
        });
        let left: Vec<_> = self.unanswered().collect();
        must!(Progress, served, "calls without a result: {left:?}");
        self.run_until(self.now + Duration::from_secs(20), |_| false);
        self.check_idle();

        // In some schedules processes shut down while bodies end.
        if self.check_every == 1 && self.random.chance(0.3) {
            self.plan_last_calls();
            let soon = self.random.micros(0, 60_000);
            self.run_until(self.now + soon, |_| false);
        }
        for n in 0..self.processes.len() {
            let until = self.now + Duration::from_secs(1);
            self.submit_soon(n, Input::Shutdown { until });
        }
        self.run_until(self.now + Duration::from_secs(9), |_| false);
        let ended = self.processes.iter().all(|p| !p.is_there());
        must!(Progress, ended, "not shut down");
        self.run_until(self.now + Duration::from_secs(2), |_| false);
        self.check_no_keys();
    }

    /// Ends all faults.
    fn calm(&mut self) {
        if !self.peaceful {
            self.faults = Faults::default();
        }
        for process in &mut self.processes {
            process.cut_off = self.now;
            process.deaf = self.now;
        }
        self.store.space = Space::Enough;
        self.store.denied = None;
        self.calm = Some(self.now);
        self.forget_nemesis();
        self.clear_up();
        self.trace.note(self.now, None, || "calm".into());
    }
}

#[cfg(test)]
mod tests {
    use super::play;

    /// With these seeds, the core once overlooked a cycle: one through a group that readers kept waiting, three through a name
    /// and another below it. With the last two, it once left a waiter unread.
    const ONCE_BROKEN: [u64; 6] = [89_183, 33_961, 41_974, 91_463, 22_925, 2_966];

    #[test]
    fn random_schedules_keep_the_invariants() {
        for seed in (0..380).chain(ONCE_BROKEN) {
            let played = play(seed, 0);
            if let Some(violation) = played.violation {
                let trace = play(seed, 80).trace.join("\n");
                panic!("seed {seed}: {violation}\n{trace}");
            }
        }
    }
}
