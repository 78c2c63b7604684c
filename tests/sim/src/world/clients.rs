//! Who wants locks in the bench, and what must hold of them at every step.

use std::time::Duration;

use super::bench::{Bench, Happening};
use super::store::Incarnation;
use crate::core::request::Key;
use crate::core::{Acquire, CallId, Grant, Input, Output, Owned, Refused};
use crate::error::LossCause;
use crate::site::Wait;

pub(crate) const NAMES: [&str; 4] = ["locks/a", "locks/b", "locks/c", FORBIDDEN];

/// The one nobody may write.
pub(crate) const FORBIDDEN: &str = "locks/forbidden";

/// One call of `lock(..)` and its body.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) process: usize,
    /// As it names them; several are one group.
    pub(crate) names: Vec<Key>,
    /// When the core got to know it, in order.
    arrived: u64,
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
        let names = match random.below(40) {
            0 => vec![FORBIDDEN],
            1 => vec![NAMES[random.below(3) as usize], FORBIDDEN],
            2..=25 => vec![NAMES[random.below(3) as usize % 2]],
            // Of two or three, in any order.
            n => {
                let mut names: Vec<&str> = NAMES[..3].to_vec();
                names.rotate_left(random.below(3) as usize);
                if random.chance(0.5) {
                    names.swap(0, 1);
                }
                names.truncate(if n > 35 { 3 } else { 2 });
                names
            }
        };
        let planned = Call {
            process: random.below(self.processes.len() as u64) as usize,
            names: names.into_iter().map(Key::from).collect(),
            arrived: 0,
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
            names: call.names.clone(),
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
        let arrived = self.calls.values().map(|c| c.arrived).max();
        let call = self.calls.get_mut(&id).expect("a call");
        call.stage = Stage::Waiting;
        call.arrived = arrived.unwrap_or(0) + 1;
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
                    !denied || call.wants(FORBIDDEN),
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
                let incarnations = incarnations(grant);
                let at = now + call.reluctance;
                let sound = match cause {
                    LossCause::Deleted | LossCause::Overwritten => {
                        incarnations.into_iter().any(|incarnation| {
                            let kv = self.store.keys.get(&incarnation.0);
                            kv.is_none_or(|kv| kv.create_revision != incarnation.1)
                                || self.tainted.contains(&incarnation)
                        })
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
        assert!(!call.wants(FORBIDDEN), "a forbidden name is granted");
        assert_eq!(call.names.len(), grant.owned.len(), "all names, or none");
        for (name, owned) in call.names.iter().zip(&grant.owned) {
            let (family, _) = owned.key.rsplit_once('/').expect("a lease");
            assert_eq!(family, &**name, "in the order of the names");
            assert_eq!(
                owned.created, grant.owned[0].created,
                "one transaction, one rank"
            );
            if self.tainted.contains(&incarnation(owned)) {
                continue;
            }
            let last = self.tokens.insert(name.clone(), owned.revision);
            assert!(
                last < Some(owned.revision),
                "{name}'s token {} follows {last:?}",
                owned.revision
            );
        }
        call.stage = Stage::Holding {
            grant,
            lost: false,
            over: false,
        };
        let at = now + call.hold;
        let call = &self.calls[&id];
        let overtaken = self.calls.iter().find(|(_, other)| {
            other.process == call.process
                && matches!(other.stage, Stage::Waiting)
                && other.arrived < call.arrived
                && call.names.iter().any(|name| other.wants(name))
        });
        assert!(
            overtaken.is_none(),
            "call {id} overtakes {overtaken:?} in its process"
        );
        self.at(at, Happening::Drop(id));
    }
}

impl Call {
    pub(crate) fn wants(&self, name: &str) -> bool {
        self.names.iter().any(|of| &**of == name)
    }
}

pub(crate) fn incarnation(owned: &Owned) -> Incarnation {
    (owned.key.as_bytes().to_vec(), owned.created)
}

pub(crate) fn incarnations(grant: &Grant) -> Vec<Incarnation> {
    grant.owned.iter().map(incarnation).collect()
}
