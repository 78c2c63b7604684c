//! Who wants locks in the bench, and what must hold of them at every step.

use std::time::Duration;

use super::bench::{Bench, Happening};
use crate::core::lease::State;
use crate::core::queue::{Queue, Queued, Slot};
use crate::core::request::{Key, Kv};
use crate::core::{Acquire, CallId, Grant, Input, Output, Refused};
use crate::site::Wait;

pub(super) const NAMES: [&str; 3] = ["locks/a", "locks/b", "locks/forbidden"];

/// One call of `lock(..)` and its body.
#[derive(Debug)]
pub(super) struct Call {
    process: usize,
    name: Key,
    ttl_secs: i64,
    wait: Wait,
    cancel_after: Option<Duration>,
    hold: Duration,
    /// How long the body goes on after a loss: a poll that is under way.
    reluctance: Duration,
    confirm: bool,
    nested: bool,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    Idle,
    Waiting,
    Holding { grant: Grant, lost: bool },
    Releasing,
    Done,
}

impl Bench {
    /// Plans a random call.
    pub(super) fn plan(&mut self, call: CallId, within: Duration) {
        let random = &mut self.random;
        let wait = match random.below(10) {
            0 | 1 => Wait::Once,
            2..=5 => Wait::For(random.millis(0, 6000)),
            _ => Wait::Forever,
        };
        let hold = match random.below(10) {
            0 => random.millis(0, 8000),
            1 | 2 => random.millis(0, 1500),
            _ => random.millis(0, 40),
        };
        let name = match random.below(40) {
            0 => NAMES[2],
            n => NAMES[usize::from(n > 25)],
        };
        let planned = Call {
            process: random.below(self.processes.len() as u64) as usize,
            name: name.into(),
            ttl_secs: if random.chance(0.8) { 2 } else { 5 },
            wait,
            cancel_after: random.chance(0.2).then(|| random.millis(0, 3000) / if random.chance(0.5) { 100 } else { 1 }),
            hold,
            reluctance: if random.chance(0.2) { random.millis(0, 4000) } else { Duration::ZERO },
            confirm: random.chance(0.5),
            nested: random.chance(0.2),
            stage: Stage::Idle,
        };
        self.calls.insert(call, planned);
        let at = self.now + self.random.micros(0, within.as_micros() as u64);
        self.at(at, Happening::Call(call));
    }

    pub(super) fn begin(&mut self, id: CallId) {
        let now = self.now;
        let Some(call) = self.calls.get(&id) else { return };
        let acquire = Acquire {
            call: id,
            name: call.name.clone(),
            ttl_secs: call.ttl_secs,
            wait: call.wait,
            record: [].into(),
            nested: call.nested,
        };
        let (process, cancel_after) = (call.process, call.cancel_after);
        self.tell_soon(process, Input::Acquire(acquire));
        if let Some(after) = cancel_after {
            self.at(now + after, Happening::Cancel(id));
        }
    }

    /// The core gets to know the call.
    pub(super) fn told_of(&mut self, id: CallId) {
        self.calls.get_mut(&id).expect("a call").stage = Stage::Waiting;
    }

    pub(super) fn cancel(&mut self, id: CallId) {
        let asleep = self.now < self.processes[self.calls[&id].process].asleep;
        if asleep {
            return;
        }
        let Some(call) = self.calls.get_mut(&id) else { return };
        if matches!(call.stage, Stage::Waiting) {
            call.stage = Stage::Done;
            let process = call.process;
            self.tell_soon(process, Input::Cancel { call: id });
        }
    }

    /// The body of the call ends.
    pub(super) fn drop_body(&mut self, id: CallId) {
        let Some(call) = self.calls.get_mut(&id) else { return };
        if matches!(call.stage, Stage::Holding { .. }) {
            call.stage = if call.confirm { Stage::Releasing } else { Stage::Done };
            let (process, confirm) = (call.process, call.confirm);
            self.tell_soon(process, Input::Release { call: id, confirm });
        }
    }

    /// A core told its calls something.
    pub(super) fn told(&mut self, n: usize, output: Output) {
        let now = self.now;
        match output {
            Output::Granted(grant) => self.granted(grant),
            Output::Refused { call: id, why } => {
                let call = self.calls.get_mut(&id).expect("a call");
                assert!(matches!(call.stage, Stage::Waiting), "call {id} is answered though {:?}", call.stage);
                let denied = matches!(why, Refused::PermissionDenied(_));
                assert!(!denied || &*call.name == NAMES[2], "call {id} is denied what it may have");
                call.stage = Stage::Done;
            }
            Output::Lost { call: id, cause } => {
                let call = self.calls.get_mut(&id).expect("a call");
                let Stage::Holding { lost, .. } = &mut call.stage else {
                    // Its release is on the way to a core that was asleep.
                    return assert!(self.processes[n].asleep >= now, "call {id} loses what it does not have: {cause:?}");
                };
                assert!(!std::mem::replace(lost, true), "call {id} loses twice");
                let at = now + call.reluctance;
                self.at(at, Happening::Drop(id));
            }
            Output::Released { call: id, .. } => {
                let call = self.calls.get_mut(&id).expect("a call");
                assert!(matches!(call.stage, Stage::Releasing), "call {id} is released though {:?}", call.stage);
                call.stage = Stage::Done;
            }
            Output::Finished => {
                let process = &mut self.processes[n];
                assert!(!std::mem::replace(&mut process.finished, true), "finished twice");
                process.watches.clear();
                // Its engine is gone: whoever still waits for it is told so there.
                for call in self.calls.values().filter(|c| c.process == n) {
                    assert!(!matches!(call.stage, Stage::Waiting), "finished while calls wait");
                }
            }
            Output::Send { .. } | Output::Watch { .. } | Output::Unwatch { .. } | Output::Ready { .. } => {}
        }
    }

    fn granted(&mut self, grant: Grant) {
        let (id, now) = (grant.call, self.now);
        let call = self.calls.get_mut(&id).expect("a call");
        assert!(matches!(call.stage, Stage::Waiting), "call {id} is answered though {:?}", call.stage);
        assert_ne!(&*call.name, NAMES[2], "a forbidden name is granted");
        if !self.tainted.contains(&(grant.key.as_bytes().to_vec(), grant.created)) {
            let last = self.tokens.insert(call.name.clone(), grant.revision).unwrap_or_default();
            assert!(last < grant.revision, "{}'s token {} follows {last}", call.name, grant.revision);
        }
        call.stage = Stage::Holding { grant, lost: false };
        let at = now + call.hold;
        self.at(at, Happening::Drop(id));
    }

    /// What must hold at every step.
    pub(super) fn check(&mut self) {
        for name in NAMES {
            let polled: Vec<_> = self.calls.iter().filter(|(_, c)| &*c.name == name && self.may_be_polled(c)).collect();
            assert!(polled.len() < 2, "two bodies of {name} run: {polled:?}");
        }
        for process in self.processes.iter().filter(|p| !p.dead) {
            for queue in process.core.queues.values() {
                let usable = process.core.leases.values().filter(|l| matches!(l.state, State::Open | State::Sealing));
                let keys = usable.map(|l| crate::core::bundle::own_key(&queue.family, l.id));
                let live = keys.filter(|key| self.store.keys.contains_key(key.as_bytes())).count();
                assert!(live < 2, "{live} keys of one process below {}", queue.family);
            }
        }
    }

    fn may_be_polled(&self, call: &Call) -> bool {
        match &call.stage {
            Stage::Holding { grant, lost: false } => {
                !self.processes[call.process].dead
                    && !grant.deadline.is_over(self.now)
                    && !self.tainted.contains(&(grant.key.as_bytes().to_vec(), grant.created))
            }
            _ => false,
        }
    }

    /// A process has removed keys: none that one of its bodies, or its own state, still counts on.
    pub(super) fn check_removals(&mut self) {
        for (key, created) in std::mem::take(&mut self.store.removed) {
            for (id, call) in &self.calls {
                let Stage::Holding { grant, .. } = &call.stage else { continue };
                let same = grant.key.as_bytes() == key && grant.created == created;
                assert!(!same || self.processes[call.process].dead, "the key of call {id} goes before its body");
            }
            for process in self.processes.iter().filter(|p| !p.dead) {
                for queue in process.core.queues.values() {
                    let (Slot::Held { lease, created: of, .. } | Slot::Queued(Queued { lease, created: of, .. })) = queue.slot
                    else {
                        continue;
                    };
                    let Some(l) = process.core.leases.get(&lease) else { continue };
                    let same = crate::core::bundle::own_key(&queue.family, l.id).as_bytes() == key && of == created;
                    assert!(!same, "a process deletes a key it counts on: {queue:?}");
                }
            }
        }
    }

    /// Whether no call waits, holds or releases any more.
    pub(super) fn unanswered(&self) -> Vec<(CallId, &Call, Option<&Queue>)> {
        let there = |call: &Call| !self.processes[call.process].dead && !self.processes[call.process].finished;
        let open = self.calls.iter().filter(|(_, call)| !matches!(call.stage, Stage::Done) && there(call));
        open.map(|(id, call)| (*id, call, self.processes[call.process].core.queues.get(&call.name))).collect()
    }

    /// What a core holds on to once nobody wants anything: nothing.
    pub(super) fn check_idle(&self) {
        for process in self.processes.iter().filter(|p| !p.dead && !p.finished) {
            let core = &process.core;
            assert!(core.queues.is_empty(), "left: {:?}", core.queues);
            assert!(core.calls.is_empty() && core.deletions.is_empty() && core.watches.is_empty(), "left: {core:?}");
            assert!(core.timers.len() < 20 && core.under_way.len() < 4, "left: {:?} {:?}", core.timers, core.under_way);
        }
    }

    /// No key of ours is left, but session keys that an operator took over: those are in nobody's way.
    pub(super) fn check_no_keys(&self) {
        let ours = |kv: &&Kv| !kv.key.ends_with(b"/er") && (self.owners.contains_key(&kv.lease) || !kv.key.starts_with(b"locks%s/"));
        let left: Vec<_> = self.store.keys.values().filter(ours).map(|kv| String::from_utf8_lossy(&kv.key)).collect();
        assert!(left.is_empty(), "left: {left:?}");
    }
}
