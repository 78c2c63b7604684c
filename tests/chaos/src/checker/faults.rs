//! Faults of a history: when each was there, whom it disturbs, and which locks it takes away from their holders.

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
    /// `None`: the history ends before.
    pub(crate) healed: Option<u64>,
    /// When it was about to be healed.
    ending: Option<u64>,
    rewound: Option<u64>,
    /// The processes of the worker that it is aimed at; `None`, if it is aimed at etcd.
    processes: Option<Vec<u32>>,
    pub(crate) of: FaultBegun,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failure<'a> {
    /// Its lock is lost by this cause.
    Lost(&'a str),
    /// etcd is out of reach, or refuses.
    Refused,
    /// Its body has ended, and etcd has not confirmed within two seconds that its key is gone.
    Unreleased,
    /// Its answer takes time, or says of a key that nobody uses that it is in the way.
    Delayed,
}

/// How long after its key was deleted a holder may learn of it.
const DELETE_DETECTION: u64 = ms(2_000);
/// A leader that was stopped goes on, and for so long may revoke leases that were renewed at the next leader. It has sixteen revocations
/// under way at once: the first ones are lost with its term, and time out after seven seconds; the next ones are carried out.
const REVOKED: u64 = ms(8_000);
/// How long an exchange may take by which a renewal learns that its lease is gone.
const EXCHANGE: u64 = ms(1_000);

pub(crate) fn of(events: &[Event]) -> Vec<Fault> {
    let mut faults: Vec<Fault> = Vec::new();
    // The process of each slot.
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
    /// The end of it, or of the run.
    pub(crate) fn until(&self) -> u64 {
        self.healed.unwrap_or(u64::MAX)
    }

    /// Tells whether it is one of a worker, and this process is not that worker's.
    pub(super) fn is_of_another(&self, process: u32) -> bool {
        let processes = self.processes.as_ref();
        processes.is_some_and(|processes| !processes.contains(&process))
    }

    /// Tells whether a call may fail so by it. A fault of a worker is felt by its process alone.
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
            // Another leader may take longer than a release has time.
            (Reach::One | Reach::Writes | Reach::All, _) => true,
        }
    }

    /// Tells whether it is one after which etcd has been seen to revoke leases that were being renewed.
    pub(super) fn makes_etcd_revoke(&self) -> bool {
        let kinds = [Kind::LeaderFrozen, Kind::MemberFrozen, Kind::QuorumFrozen];
        kinds.contains(&self.kind)
    }

    /// Tells whether the key that an operator takes was of the process of this call, as far as its record says.
    fn is_owner(&self, call: &Call) -> bool {
        let owner = self.of.taken.as_ref().and_then(|taken| taken.owner);
        owner.is_none_or(|owner| owner == call.id.process)
    }

    /// Tells whether the key that an operator takes may be the one by which this call holds the name.
    pub(super) fn takes_from(&self, call: &Call) -> bool {
        let Some(taken) = &self.of.taken else {
            return true;
        };
        let holds = match call.asked.mode {
            Mode::Exclusive => taken.older == 0,
            Mode::Permits(of) => taken.older < usize::from(of),
            Mode::Shared => true,
        };
        // One that waited when the operator looked may have been served before the key was taken.
        let taken = self.until().min(self.begun + TAKEN);
        self.is_owner(call) && (holds || began(call) <= taken)
    }

    pub(super) fn is_of_one_key(&self) -> bool {
        [Kind::KeyDeleted, Kind::KeyOverwritten].contains(&self.kind)
    }

    pub(super) fn rewound(&self) -> Option<u64> {
        let rewinds = [Kind::EtcdWiped, Kind::EtcdRestored].contains(&self.kind);
        // Histories of before have no event for it.
        rewinds.then(|| self.rewound.unwrap_or(self.begun))
    }

    /// Until when it surely lasts.
    pub(super) fn lasts_until(&self) -> u64 {
        self.ending.unwrap_or(self.until())
    }

    /// Says how it takes the key of a live holder away, whose lease has this TTL: when the next holder may begin, and how long after its
    /// key is gone the holder may learn of it.
    pub(super) fn removal(&self, name: &str, ttl: u64) -> Option<(Span, u64)> {
        let by_etcd = self.makes_etcd_revoke();
        if !by_etcd && !self.of.names.iter().any(|removed| removed == name) {
            return None;
        }
        let (from, after, detection) = match self.kind {
            // A holder learns by its next renewal.
            _ if by_etcd => (self.begun, REVOKED.max(2 * ttl), ttl / 3 + EXCHANGE),
            Kind::LeaseRevoked => (self.begun, ttl / 3 + EXCHANGE, ttl / 3 + EXCHANGE),
            Kind::KeyDeleted => (self.begun, DELETE_DETECTION, DELETE_DETECTION),
            // The key is there all the time, and excludes others, until an operator deletes it at the end.
            Kind::KeyOverwritten => {
                let deleted = self.until().saturating_sub(DELETE_RECORD);
                (deleted, DELETE_DETECTION, DELETE_DETECTION)
            }
            _ => return None,
        };
        Some(((from, self.until().saturating_add(after)), detection))
    }

    /// Tells whether etcd loses what it knew, or processes are yet to learn of that, at some time between two moments: tokens of
    /// before and of afterwards have nothing to do with each other.
    pub(crate) fn rewinds(&self, from: u64, to: u64) -> bool {
        let until = self.until().saturating_add(REWIND_DETECTION);
        self.rewound().is_some_and(|rewound| rewound <= to && from <= until)
    }

    /// Tells whether it is there at some time between two moments, or was within the time before.
    pub(crate) fn disturbs(&self, from: u64, to: u64, before: u64) -> bool {
        self.begun <= to && from <= self.until().saturating_add(before)
    }
}

/// How long after its record an operator's request takes a key at most.
const TAKEN: u64 = ms(500);
/// The TTL from which on a lock outlives whatever happens to one member, or one endpoint.
pub(super) const LONG_TTL: u64 = ms(10_000);
/// How long afterwards a lock of before may be held: a renewal of the longest TTL, an exchange, and etcd's users.
pub(crate) const REWIND_DETECTION: u64 = ms(8_000);
/// How long before its record the deletion at the end of a fault may be.
const DELETE_RECORD: u64 = ms(2_000);
