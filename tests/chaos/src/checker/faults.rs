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
    /// The names whose keys an operator removes or puts.
    names: Vec<String>,
}

/// How long after a member was disturbed etcd may still revoke leases that live.
const REVOKES: u64 = ms(60_000);
/// How long after its key is gone a holder may learn of it: a renewal of the longest TTL, and an exchange.
pub(super) const LEARNS: u64 = ms(10_000);

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
                names: names.clone(),
            }),
            What::FaultHealed { fault } => {
                if let Some(fault) = faults.iter_mut().find(|it| it.number == *fault) {
                    fault.healed = Some(*at);
                }
            }
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

    /// Tells whether it explains that a live holder's key of this name was gone at a moment: an operator has removed the key, or
    /// etcd has revoked its lease after a member had been stopped.
    pub(crate) fn removes(&self, name: &str, at: u64) -> bool {
        let within = |time| self.begun <= at && at <= self.until().saturating_add(time);
        let named = || self.names.iter().any(|removed| removed == name);
        match self.kind.as_str() {
            kind if REVOKING.contains(&kind) => within(REVOKES),
            kind if REMOVING.contains(&kind) => named() && within(LEARNS),
            // The key is there all the time, and excludes others, until an operator deletes it at the end.
            OVERWRITING => named() && within(LEARNS) && self.until() <= at + DELETES,
            _ => false,
        }
    }

    /// Tells whether an operator takes keys away, and not etcd now and then.
    pub(crate) fn is_operators(&self) -> bool {
        !REVOKING.contains(&self.kind.as_str())
    }

    /// Tells whether etcd loses what it knew, or processes are yet to learn of that, at some time between two moments: tokens of
    /// before and of afterwards have nothing to do with each other.
    pub(crate) fn rewinds(&self, from: u64, to: u64) -> bool {
        REWINDING.contains(&self.kind.as_str()) && self.disturbs(from, to, FORGETS)
    }

    /// Tells whether it is there at some time between two moments, or was within the time before.
    pub(crate) fn disturbs(&self, from: u64, to: u64, before: u64) -> bool {
        self.begun <= to && from <= self.until().saturating_add(before)
    }
}

/// Kinds of faults by which an operator removes keys at once.
const REMOVING: &[&str] = &["lease revoked", "key deleted"];
/// Kinds of faults by which etcd loses what it knew.
const REWINDING: &[&str] = &["etcd wiped", "etcd restored from a snapshot"];
/// How long afterwards a lock of before may be held: a renewal of the longest TTL, an exchange, and etcd's users.
pub(crate) const FORGETS: u64 = ms(8_000);
/// The kind by which an operator puts a holder's key anew, and deletes it at the end.
const OVERWRITING: &str = "key overwritten";
/// How long before its record the deletion at the end of a fault may be.
const DELETES: u64 = ms(2_000);
/// Kinds of faults after which etcd has been seen to revoke leases that were being renewed.
const REVOKING: &[&str] = &["leader frozen", "member frozen", "quorum frozen"];
