//! Faults of a history: when each was there, and which locks it takes away from their holders.

use crate::clock::ms;
use crate::history::{Event, What};

/// One fault of a run.
#[derive(Debug, Clone)]
pub(crate) struct Fault {
    pub(crate) number: u32,
    pub(crate) kind: String,
    pub(crate) target: String,
    pub(crate) begun: u64,
    /// `None`: the history ends before.
    pub(crate) healed: Option<u64>,
    /// When etcd lost what it knew.
    rewound: Option<u64>,
    /// The names whose keys an operator removes or puts.
    names: Vec<String>,
}

/// How a holder's key is gone that lives.
pub(super) struct Removal {
    /// When that may have been, and when the next holder may begin.
    pub(super) from: u64,
    pub(super) until: u64,
    /// How long after its key is gone the holder may learn of it.
    pub(super) detection: u64,
    /// etcd may have revoked its lease; otherwise an operator has named the key.
    pub(super) by_etcd: bool,
}

/// How long after its key was deleted a holder may learn of it.
const DELETE_DETECTION: u64 = ms(2_000);
/// How long an exchange may take by which a renewal learns that its lease is gone.
const EXCHANGE: u64 = ms(1_000);

/// All faults, in order.
pub(crate) fn of(events: &[Event]) -> Vec<Fault> {
    let mut faults: Vec<Fault> = Vec::new();
    for Event { at, what } in events {
        match what {
            What::FaultBegun {
                fault,
                kind,
                target,
                names,
            } => faults.push(Fault {
                number: *fault,
                kind: kind.clone(),
                target: target.clone(),
                begun: *at,
                healed: None,
                rewound: None,
                names: names.clone(),
            }),
            What::FaultHealed { fault } => {
                if let Some(fault) = faults.iter_mut().find(|it| it.number == *fault) {
                    fault.healed = Some(*at);
                }
            }
            What::Rewound { fault } => {
                if let Some(fault) = faults.iter_mut().find(|it| it.number == *fault) {
                    fault.rewound = Some(*at);
                }
            }
            What::FaultMissed { fault } => faults.retain(|it| it.number != *fault),
            _ => {}
        }
    }
    faults
}

impl Fault {
    /// The end of it, or of the run.
    pub(crate) fn until(&self) -> u64 {
        self.healed.unwrap_or(u64::MAX)
    }

    /// Says how it takes the key of a live holder away, whose lease has this TTL.
    pub(super) fn removal(&self, name: &str, ttl: u64) -> Option<Removal> {
        let kind = self.kind.as_str();
        let by_etcd = REVOKING.contains(&kind);
        if !by_etcd && !self.names.iter().any(|removed| removed == name) {
            return None;
        }
        let (from, after, detection) = match kind {
            // A holder learns by its next renewal.
            _ if by_etcd => (self.begun, 2 * ttl, ttl / 3 + EXCHANGE),
            "lease revoked" => (self.begun, ttl / 3 + EXCHANGE, ttl / 3 + EXCHANGE),
            "key deleted" => (self.begun, DELETE_DETECTION, DELETE_DETECTION),
            // The key is there all the time, and excludes others, until an operator deletes it at the end.
            "key overwritten" => {
                let deleted = self.until().saturating_sub(DELETE_RECORD);
                (deleted, DELETE_DETECTION, DELETE_DETECTION)
            }
            _ => return None,
        };
        let until = self.until().saturating_add(after);
        Some(Removal {
            from,
            until,
            detection,
            by_etcd,
        })
    }

    /// Tells whether etcd loses what it knew, or processes are yet to learn of that, at some time between two moments: tokens of
    /// before and of afterwards have nothing to do with each other.
    pub(crate) fn rewinds(&self, from: u64, to: u64) -> bool {
        // Histories of before have no event for it.
        let begun = self.rewound.unwrap_or(self.begun);
        let until = self.until().saturating_add(REWIND_DETECTION);
        REWINDING.contains(&self.kind.as_str()) && begun <= to && from <= until
    }

    /// Tells whether it is there at some time between two moments, or was within the time before.
    pub(crate) fn disturbs(&self, from: u64, to: u64, before: u64) -> bool {
        self.begun <= to && from <= self.until().saturating_add(before)
    }
}

/// Kinds of faults by which etcd loses what it knew.
const REWINDING: &[&str] = &["etcd wiped", "etcd restored from a snapshot"];
/// How long afterwards a lock of before may be held: a renewal of the longest TTL, an exchange, and etcd's users.
pub(crate) const REWIND_DETECTION: u64 = ms(8_000);
/// How long before its record the deletion at the end of a fault may be.
const DELETE_RECORD: u64 = ms(2_000);
/// Kinds of faults after which etcd has been seen to revoke leases that were being renewed.
const REVOKING: &[&str] = &["leader frozen", "member frozen", "quorum frozen"];
