//! Faults of a history: the time of each, whom it disturbs, and which locks it takes away from their holders.

use std::collections::BTreeMap;

use super::calls::{Call, began};
use super::removals::Span;
use crate::clock::ms;
use crate::history::{Event, FaultBegun, Mode, What};
use crate::schedule::{Kind, Reach};

#[derive(Debug, Clone)]
pub(crate) struct Fault {
    pub(crate) number: u32,
    pub(crate) kind: Kind,
    pub(crate) begun: u64,
    /// When it was healed; `None` if the history ends before.
    pub(crate) healed: Option<u64>,
    /// When its healing began.
    ending: Option<u64>,
    rewound: Option<u64>,
    /// Processes of the worker that it targets; `None` if it targets etcd.
    processes: Option<Vec<u32>>,
    pub(crate) of: FaultBegun,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failure<'a> {
    /// The lock was lost, with this cause.
    Lost(&'a str),
    /// etcd is unreachable, or refuses.
    Refused,
    /// The body has ended, but etcd has not confirmed within two seconds that the key is gone.
    Unreleased,
    /// The answer is late, or reports an unused key as the holder.
    Delayed,
}

/// How long after the deletion of its key a holder may take to notice.
const DELETE_DETECTION: u64 = ms(2_000);
/// How long a leader that was stopped and continues may revoke leases that were renewed at the next leader. It sends sixteen
/// revocations at once: the first ones are lost with its term, and time out after seven seconds; the next ones are applied.
const REVOKED: u64 = ms(8_000);
/// How long the exchange may take in which a renewal notices that its lease is gone.
const EXCHANGE: u64 = ms(1_000);

pub(crate) fn of(events: &[Event]) -> Vec<Fault> {
    let mut faults: Vec<Fault> = Vec::new();
    // Current process of each slot.
    let mut slots: BTreeMap<u32, u32> = BTreeMap::new();
    for Event { at, what } in events {
        match what {
            What::Started { process, slot } => {
                slots.insert(*slot, *process);
                for fault in faults.iter_mut().filter(|fault| fault.healed.is_none()) {
                    if fault.of.worker == Some(*slot)
                        && let Some(processes) = &mut fault.processes
                    {
                        processes.push(*process);
                    }
                }
            }
            What::FaultBegun(begun) => {
                let running = begun.worker.map(|slot| slots.get(&slot).copied());
                faults.push(Fault {
                    number: begun.fault,
                    kind: begun.kind,
                    begun: *at,
                    healed: None,
                    ending: None,
                    rewound: None,
                    processes: running.map(Vec::from_iter),
                    of: begun.clone(),
                });
            }
            What::FaultHealed { fault } => note(&mut faults, *fault, |it| it.healed = Some(*at)),
            What::FaultEnding { fault } => note(&mut faults, *fault, |it| it.ending = Some(*at)),
            What::Rewound { fault } => note(&mut faults, *fault, |it| it.rewound = Some(*at)),
            What::FaultMissed { fault } => faults.retain(|it| it.number != *fault),
            _ => {}
        }
    }
    faults
}

fn note(faults: &mut [Fault], number: u32, note: impl FnOnce(&mut Fault)) {
    if let Some(fault) = faults.iter_mut().find(|fault| fault.number == number) {
        note(fault);
    }
}

impl Fault {
    /// Returns its end, or that of the run.
    pub(crate) fn until(&self) -> u64 {
        self.healed.unwrap_or(u64::MAX)
    }

    /// Returns true if it targets a worker to which this process does not belong.
    pub(super) fn is_of_another(&self, process: u32) -> bool {
        let processes = self.processes.as_ref();
        processes.is_some_and(|processes| !processes.contains(&process))
    }

    /// Returns true if the fault may cause this failure of a call. A fault of a worker affects only its process.
    pub(super) fn explains(&self, call: &Call, failure: Failure<'_>) -> bool {
        if self.is_of_another(call.id.process) {
            return false;
        }
        let named = call.asked.names.iter().any(|name| self.of.names.contains(name));
        let brief = ms(call.asked.ttl) < LONG_TTL;
        match (self.kind.reach(), failure) {
            (Reach::Nothing, _) => false,
            (Reach::Brief, Failure::Lost(_)) => brief,
            (Reach::Key, Failure::Lost(cause)) => {
                let taken = match cause {
                    "Gone" => self.kind == Kind::LeaseRevoked || (named && self.is_of_one_key()),
                    "Overwritten" => named && self.kind == Kind::KeyOverwritten,
                    _ => false,
                };
                taken && self.is_owner(call)
            }
            (Reach::Key | Reach::Name, _) => named && failure == Failure::Delayed,
            (Reach::Brief | Reach::Harmless, _) => failure == Failure::Delayed,
            (Reach::One, Failure::Lost(cause)) => {
                brief || (cause == "Gone" && self.makes_etcd_revoke())
            }
            (Reach::One, Failure::Refused) => false,
            (Reach::Writes, Failure::Lost(_)) => false,
            // An election may take longer than a release waits.
            (Reach::One | Reach::Writes | Reach::All, _) => true,
        }
    }

    /// Returns true for a kind of fault after which etcd was seen to revoke leases that were being renewed.
    pub(super) fn makes_etcd_revoke(&self) -> bool {
        let kinds = [Kind::LeaderFrozen, Kind::MemberFrozen, Kind::QuorumFrozen];
        kinds.contains(&self.kind)
    }

    /// Returns true if the key that an operator takes belongs to the process of this call, according to its record.
    fn is_owner(&self, call: &Call) -> bool {
        let owner = self.of.taken.as_ref().and_then(|taken| taken.owner);
        owner.is_none_or(|owner| owner == call.id.process)
    }

    /// Returns true if the key that an operator takes may be the one with which this call holds the name.
    pub(super) fn takes_from(&self, call: &Call) -> bool {
        let Some(taken) = &self.of.taken else {
            return true;
        };
        let holds = match call.asked.mode {
            Mode::Exclusive => taken.older == 0,
            Mode::Permits(of) => taken.older < usize::from(of),
            Mode::Shared => true,
        };
        // A call that waited when the operator looked may have been served before the key was taken.
        let taken = self.until().min(self.begun + TAKEN);
        self.is_owner(call) && (holds || began(call) <= taken)
    }

    pub(super) fn is_of_one_key(&self) -> bool {
        [Kind::KeyDeleted, Kind::KeyOverwritten].contains(&self.kind)
    }

    pub(super) fn rewound(&self) -> Option<u64> {
        let rewinds = [Kind::EtcdWiped, Kind::EtcdRestored].contains(&self.kind);
        // Older histories do not have an event for it.
        rewinds.then(|| self.rewound.unwrap_or(self.begun))
    }

    /// Returns until when it certainly lasts.
    pub(super) fn lasts_until(&self) -> u64 {
        self.ending.unwrap_or(self.until())
    }

    /// Describes how it takes away the key of a live holder whose lease has this TTL: when the next holder may begin, and how long after
    /// that the holder may take to notice.
    pub(super) fn removal(&self, name: &str, ttl: u64) -> Option<(Span, u64)> {
        let by_etcd = self.makes_etcd_revoke();
        if !by_etcd && !self.of.names.iter().any(|removed| removed == name) {
            return None;
        }
        let (from, after, detection) = match self.kind {
            // A holder notices it with its next renewal.
            _ if by_etcd => (self.begun, REVOKED.max(2 * ttl), ttl / 3 + EXCHANGE),
            Kind::LeaseRevoked => (self.begun, ttl / 3 + EXCHANGE, ttl / 3 + EXCHANGE),
            Kind::KeyDeleted => (self.begun, DELETE_DETECTION, DELETE_DETECTION),
            // The key exists all the time, and excludes others, until an operator deletes it at the end.
            Kind::KeyOverwritten => {
                let deleted = self.until().saturating_sub(DELETE_RECORD);
                (deleted, DELETE_DETECTION, DELETE_DETECTION)
            }
            _ => return None,
        };
        Some(((from, self.until().saturating_add(after)), detection))
    }

    /// Returns true if etcd loses its history between two moments, or processes have not yet noticed that. Tokens from before and
    /// after are not comparable.
    pub(crate) fn rewinds(&self, from: u64, to: u64) -> bool {
        let until = self.until().saturating_add(REWIND_DETECTION);
        self.rewound().is_some_and(|rewound| rewound <= to && from <= until)
    }

    /// Returns true if it lasts at some time between two moments, or lasted within the given time before.
    pub(crate) fn disturbs(&self, from: u64, to: u64, before: u64) -> bool {
        self.begun <= to && from <= self.until().saturating_add(before)
    }
}

/// Limit of the time between an operator's record and the removal of the key.
const TAKEN: u64 = ms(500);
/// TTL from which a lock outlives any fault of one member or one endpoint.
pub(super) const LONG_TTL: u64 = ms(10_000);
/// How long after the loss of history an old lock may be held: a renewal of the longest TTL, an exchange, and etcd's users.
pub(crate) const REWIND_DETECTION: u64 = ms(8_000);
/// How long before its record the deletion at the end of a fault may have happened.
const DELETE_RECORD: u64 = ms(2_000);
