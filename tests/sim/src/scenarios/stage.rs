//! Stage of the scenarios: a bench without faults, where the scenario makes the calls.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use crate::world::CallId;
use crate::world::bench::Bench;
use crate::world::clients::{Call, Stage};
use crate::world::violation::{Violation, must};

/// A seed whose cores have sessions with room, as in production.
const SEED: u64 = 2;
/// How long a call may take.
pub(super) const SOON: Duration = Duration::from_secs(5);

/// Runs a scenario, and panics with the promise that it violates.
pub(super) fn plays(scenario: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(scenario)) {
        panic!("{}", Violation::caught(payload));
    }
}

/// Makes processes around one etcd. They skip the checks after every step, which would be slow with this many calls.
pub(super) fn stage(processes: usize) -> Bench {
    let mut bench = Bench::new(SEED, processes, 0);
    bench.check_every = 0;
    bench
}

/// Returns a call that waits without limit, and holds until the scenario ends it.
pub(super) fn call(name: &str) -> Call {
    Call::of(&format!("locks/{name}"), 9)
}

impl Bench {
    /// Submits a call of a process.
    pub(super) fn ask(&mut self, machine: usize, call: Call) -> CallId {
        let id = self.calls.len() as CallId + 1;
        self.calls.insert(id, Call { machine, ..call });
        self.begin(id);
        id
    }

    /// Makes a call that is granted soon and holds until the scenario ends it.
    pub(super) fn take_lock(&mut self, machine: usize, name: &str) -> CallId {
        let id = self.ask(machine, call(name));
        self.serve(id);
        id
    }

    /// Runs until a call has its lock. Fails if that takes long.
    pub(super) fn serve(&mut self, id: CallId) {
        let served = self.until(SOON, |bench| bench.has(id));
        must!(Progress, served, "call {id} waits: {:?}", self.calls[&id]);
    }

    /// Returns true if the call was granted and its body runs.
    pub(super) fn has(&self, id: CallId) -> bool {
        matches!(self.calls[&id].stage, Stage::Holding(_))
    }

    pub(super) fn run(&mut self, time: Duration) {
        self.until(time, |_| false);
    }

    /// Runs until `so` is true, at most for this time. Returns whether it became true.
    pub(super) fn until(&mut self, time: Duration, so: impl Fn(&Self) -> bool) -> bool {
        self.run_until(self.now + time, so)
    }
}
