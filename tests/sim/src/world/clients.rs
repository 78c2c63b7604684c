//! Who wants locks in the bench, and what must hold of them at every step.

use std::time::Duration;

use super::bench::{Bench, Happening};
use super::store::Incarnation;
use crate::core::request::Key;
use crate::core::{Acquire, CallId, Grant, Input, Output, Refused};
use crate::error::LossCause;
use crate::site::Wait;

pub(crate) const NAMES: [&str; 3] = ["locks/a", "locks/b", "locks/forbidden"];

/// One call of `lock(..)` and its body.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) process: usize,
    pub(crate) name: Key,
    ttl_secs: i64,
    wait: Wait,
    cancel_after: Option<Duration>,
    hold: Duration,
    /// How long the body goes on after a loss: a poll that is under way.
    reluctance: Duration,
    confirm: bool,
    nested: bool,
    pub(crate) stage: Stage,
}

#[derive(Debug)]
pub(crate) enum Stage {
    Idle,
    Waiting,
    Holding {
        grant: Grant,
        /// The core has said so.
        lost: bool,
        /// The deadline has said so.
        over: bool,
    },
    Releasing,
    Done,
}

impl Bench {
    /// Plans a random call.
    pub(crate) fn plan(&mut self, call: CallId, within: Duration) {
        let random = &mut self.random;
        let wait = match random.below(10) {
            0 | 1 => Wait::Once,
            2..=5 => Wait::For(random.millis(0, 6000)),
            _ => Wait::Forever,
        };
        let hold = match random.below(10) {
            0 | 1 => random.millis(0, 8000),
            2 => random.millis(0, 1500),
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
            cancel_after: random
                .chance(0.2)
                .then(|| random.millis(0, 3000) / if random.chance(0.5) { 100 } else { 1 }),
            hold,
            reluctance: if random.chance(0.2) {
                random.millis(0, 4000)
            } else {
                Duration::ZERO
            },
            confirm: random.chance(0.5),
            nested: random.chance(0.2),
            stage: Stage::Idle,
        };
        self.calls.insert(call, planned);
        let at = self.now + self.random.micros(0, within.as_micros() as u64);
        self.at(at, Happening::Call(call));
    }

    pub(crate) fn begin(&mut self, id: CallId) {
        let now = self.now;
        let Some(call) = self.calls.get(&id) else {
            return;
        };
        let acquire = Acquire {
            call: id,
            names: vec![call.name.clone()],
            ttl_secs: call.ttl_secs,
            wait: call.wait,
            record: [].into(),
            holds: call.nested.then_some(u64::MAX).into_iter().collect(),
        };
        let (process, cancel_after) = (call.process, call.cancel_after);
        self.tell_soon(process, Input::Acquire(acquire));
        if let Some(after) = cancel_after {
            self.at(now + after, Happening::Cancel(id));
        }
    }

    /// The core gets to know the call.
    pub(crate) fn told_of(&mut self, id: CallId) {
        self.calls.get_mut(&id).expect("a call").stage = Stage::Waiting;
    }

    pub(crate) fn cancel(&mut self, id: CallId) {
        let asleep = self.now < self.processes[self.calls[&id].process].asleep;
        if asleep {
            return;
        }
        let Some(call) = self.calls.get_mut(&id) else {
            return;
        };
        if matches!(call.stage, Stage::Waiting) {
            call.stage = Stage::Done;
            let process = call.process;
            self.tell_soon(process, Input::Cancel { call: id });
        }
    }

    /// The body of the call ends.
    pub(crate) fn drop_body(&mut self, id: CallId) {
        let Some(call) = self.calls.get_mut(&id) else {
            return;
        };
        if matches!(call.stage, Stage::Holding { .. }) {
            call.stage = if call.confirm {
                Stage::Releasing
            } else {
                Stage::Done
            };
            let (process, confirm) = (call.process, call.confirm);
            self.tell_soon(
                process,
                Input::Release {
                    call: id,
                    confirm,
                    fenced: false,
                },
            );
        }
    }

    /// A core told its calls something.
    pub(crate) fn told(&mut self, n: usize, output: Output) {
        let now = self.now;
        match output {
            Output::Granted(grant) => self.granted(grant),
            Output::Refused { call: id, why } => {
                let call = self.calls.get_mut(&id).expect("a call");
                assert!(
                    matches!(call.stage, Stage::Waiting),
                    "call {id} is answered though {:?}",
                    call.stage
                );
                let denied = matches!(why, Refused::PermissionDenied(_));
                assert!(
                    !denied || &*call.name == NAMES[2],
                    "call {id} is denied what it may have"
                );
                call.stage = Stage::Done;
            }
            Output::Lost { call: id, cause } => {
                let call = self.calls.get_mut(&id).expect("a call");
                let Stage::Holding { grant, lost, .. } = &mut call.stage else {
                    // Its release is on the way to a core that was asleep.
                    return assert!(
                        self.processes[n].asleep >= now,
                        "call {id} loses what it does not have: {cause:?}"
                    );
                };
                assert!(!std::mem::replace(lost, true), "call {id} loses twice");
                let incarnation = incarnation(grant);
                let at = now + call.reluctance;
                let sound = match cause {
                    LossCause::Deleted | LossCause::Overwritten => {
                        let there = self
                            .store
                            .keys
                            .get(&incarnation.0)
                            .is_some_and(|kv| kv.create_revision == incarnation.1);
                        !there || self.tainted.contains(&incarnation)
                    }
                    // A lagging member may mistake the one for the other.
                    LossCause::Wiped | LossCause::Revoked => {
                        let left = self.store.leases();
                        !left
                            .iter()
                            .any(|lease| grant.owned[0].key.ends_with(&format!("/{lease:x}")))
                    }
                    _ => true,
                };
                assert!(sound, "call {id} is told {cause:?}, and that is not so");
                self.at(at, Happening::Drop(id));
            }
            Output::Released { call: id, .. } => {
                let call = self.calls.get_mut(&id).expect("a call");
                assert!(
                    matches!(call.stage, Stage::Releasing),
                    "call {id} is released though {:?}",
                    call.stage
                );
                call.stage = Stage::Done;
            }
            Output::Finished => {
                let process = &mut self.processes[n];
                assert!(
                    !std::mem::replace(&mut process.finished, true),
                    "finished twice"
                );
                process.watches.clear();
                // Its engine is gone: whoever still waits for it is told so there.
                for call in self.calls.values().filter(|c| c.process == n) {
                    assert!(
                        !matches!(call.stage, Stage::Waiting),
                        "finished while calls wait"
                    );
                }
                self.clear_up();
            }
            Output::Send { .. }
            | Output::Watch { .. }
            | Output::Unwatch { .. }
            | Output::Ready { .. } => {}
        }
    }

    fn granted(&mut self, grant: Grant) {
        let (id, now) = (grant.call, self.now);
        let call = self.calls.get_mut(&id).expect("a call");
        assert!(
            matches!(call.stage, Stage::Waiting),
            "call {id} is answered though {:?}",
            call.stage
        );
        assert_ne!(&*call.name, NAMES[2], "a forbidden name is granted");
        if !self.tainted.contains(&incarnation(&grant)) {
            let last = self
                .tokens
                .insert(call.name.clone(), grant.owned[0].revision)
                .unwrap_or_default();
            assert!(
                last < grant.owned[0].revision,
                "{}'s token {} follows {last}",
                call.name,
                grant.owned[0].revision
            );
        }
        call.stage = Stage::Holding {
            grant,
            lost: false,
            over: false,
        };
        let at = now + call.hold;
        self.at(at, Happening::Drop(id));
    }
}

pub(crate) fn incarnation(grant: &Grant) -> Incarnation {
    (
        grant.owned[0].key.as_bytes().to_vec(),
        grant.owned[0].created,
    )
}
