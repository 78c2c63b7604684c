//! Removals: keys that etcd or an operator has taken from live holders, whose engines learn of it a moment later.

use std::collections::BTreeMap;

use super::calls::{Call, CallId};
use super::faults::Fault;
use crate::clock::ms;
use crate::history::Outcome;

/// What explains that a holder's key was gone while its guard said "held".
pub(super) struct Removals<'a> {
    faults: &'a [Fault],
    /// When each process lost a lock because its key or its lease was gone.
    noticed: BTreeMap<u32, Vec<u64>>,
}

impl<'a> Removals<'a> {
    pub(super) fn of(calls: &BTreeMap<CallId, Call>, faults: &'a [Fault]) -> Self {
        let mut noticed: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
        for call in calls.values() {
            if let Some((at, Outcome::Lost(cause))) = &call.returned
                && ["Deleted", "Revoked"].contains(&cause.as_str())
            {
                noticed.entry(call.id.process).or_default().push(*at);
            }
        }
        Self { faults, noticed }
    }

    /// Tells whether the key of a call may have been gone at a moment: an operator has just removed it, or etcd may have revoked its
    /// lease, and the process noticed that about then.
    pub(super) fn explain(&self, call: &Call, name: &str, at: u64) -> bool {
        let near = at.saturating_sub(ms(1_000))..at + ms(10_000);
        let noticed = self.noticed.get(&call.id.process);
        let noticed = noticed.is_some_and(|times| times.iter().any(|time| near.contains(time)));
        let removes = |fault: &Fault| fault.removes(name, at) && (noticed || fault.is_operators());
        self.faults.iter().any(removes)
    }

    /// Tells whether etcd may have lost what it knew between two moments.
    pub(super) fn rewound(&self, from: u64, to: u64) -> bool {
        self.faults.iter().any(|fault| fault.rewinds(from, to))
    }
}
