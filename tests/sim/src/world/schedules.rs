//! Random schedules: whatever happens, the invariants hold, and once it has stopped everything comes to its end.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use super::bench::{Bench, Happening};
use super::nemesis::Faults;
use crate::core::Input;

const SEEDS: u64 = 400;

#[test]
fn random_schedules_keep_the_invariants() {
    play_all();
}

/// Plays the seeds that `SEED` and `SEEDS` name.
pub(crate) fn play_all() {
    let number = |name, default| {
        std::env::var(name)
            .ok()
            .and_then(|n| n.parse().ok())
            .unwrap_or(default)
    };
    let first = number("SEED", 1);
    let seeds = number(
        "SEEDS",
        if std::env::var("SEED").is_ok() {
            1
        } else {
            SEEDS
        },
    );
    for seed in first..first + seeds {
        if catch_unwind(AssertUnwindSafe(|| run(seed, false))).is_err() {
            run(seed, true); // once more, with words
            panic!(
                "seed {seed} failed, and did not when run again: something is not deterministic"
            );
        }
    }
}

fn run(seed: u64, loud: bool) {
    let mut bench = Bench::new(seed, 3, loud);
    let storm = Duration::from_secs(15);
    bench.store.forbidden = Some("forbidden");
    for call in 0..30 {
        bench.plan(call, storm);
    }
    bench.at(bench.now, Happening::Nemesis);
    bench.run_until(bench.now + storm, |_| false);

    bench.calm();
    let served = bench.run_until(bench.now + Duration::from_secs(150), |bench| {
        bench.unanswered().is_empty()
    });
    assert!(served, "unanswered: {:#?}", bench.unanswered());
    bench.run_until(bench.now + Duration::from_secs(20), |_| false);
    bench.check_idle();

    for n in 0..bench.processes.len() {
        let until = bench.now + Duration::from_secs(1);
        bench.tell_soon(n, Input::Shutdown { until });
    }
    bench.run_until(bench.now + Duration::from_secs(9), |_| false);
    assert!(
        bench.processes.iter().all(|p| p.dead || p.finished),
        "not shut down"
    );
    bench.check_no_keys();
}

impl Bench {
    /// Ends all faults.
    fn calm(&mut self) {
        self.faults = Faults::default();
        for process in &mut self.processes {
            process.unheard = self.now;
            process.deaf = self.now;
        }
        self.forget_nemesis();
        self.clear_up();
    }
}
