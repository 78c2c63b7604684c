//! Removals: keys that etcd or an operator has taken from live holders, whose engines learn of it a moment later.

use std::collections::BTreeMap;

use super::calls::{Call, CallId};
use super::faults::Fault;
use super::pauses::Pauses;
use crate::clock::ms;
use crate::history::{Ending, Outcome};

/// How far apart losses by the same removal are recorded.
const RECORD: u64 = ms(1_000);

/// What explains that a holder's key was gone while its guard said "held".
pub(super) struct Removals<'a> {
    faults: &'a [Fault],
    pauses: &'a Pauses,
    /// Calls of each process that lost a lock because its key or its lease was gone, and when.
    noticed: BTreeMap<u32, Vec<(u64, &'a Call)>>,
}

impl<'a> Removals<'a> {
    pub(super) fn of(
        calls: &'a BTreeMap<CallId, Call>,
        faults: &'a [Fault],
        pauses: &'a Pauses,
    ) -> Self {
        let mut noticed: BTreeMap<u32, Vec<(u64, &Call)>> = BTreeMap::new();
        for call in calls.values() {
            if let Some((at, Outcome::Lost(cause))) = &call.returned
                && ["Deleted", "Revoked"].contains(&cause.as_str())
            {
                noticed
                    .entry(call.id.process)
                    .or_default()
                    .push((*at, call));
            }
        }
        Self {
            faults,
            pauses,
            noticed,
        }
    }

    /// The kind of fault that explains an overlap of two holders between two moments.
    pub(super) fn overlap(
        &self,
        earlier: &Call,
        later: &Call,
        name: &str,
        from: u64,
        to: u64,
    ) -> Option<&'a str> {
        // The later one may be the one without a key: it got it inside its process, which did not know.
        let both = [earlier, later];
        let mut removals = both
            .into_iter()
            .filter_map(|call| self.explain(call, name, from, to));
        removals.next().or_else(|| {
            let rewinds = |fault: &&Fault| fault.rewinds(from, from) && fault.rewinds(to, to);
            let fault = self.faults.iter().find(rewinds)?;
            let mut both = both.into_iter();
            let known =
                both.any(|call| to - from <= ms(call.asked.ttl) + self.idle(call, from, to));
            known.then_some(fault.kind.as_str())
        })
    }

    /// The kind of fault by which the key of a call may have been gone between two moments: an operator has just removed it, or etcd
    /// has revoked its lease, and the process noticed that about then.
    pub(super) fn explain(&self, call: &Call, name: &str, from: u64, to: u64) -> Option<&'a str> {
        let ttl = ms(call.asked.ttl);
        let explains = |fault: &&Fault| {
            let Some(removal) = fault.removal(name, ttl) else {
                return false;
            };
            // Through another fault a holder may learn no sooner than at its stop time.
            let mut others = self.faults.iter();
            let cut = others.any(|it| it.number != fault.number && it.disturbs(from, to, 0));
            let detection = removal.detection.max(if cut { ttl } else { 0 });
            let detection = detection + self.idle(call, from, to);
            (removal.from..=removal.until).contains(&from)
                && to - from <= detection
                && (!removal.by_etcd || self.noticed(call, name, from, from + detection))
        };
        let fault = self.faults.iter().find(explains)?;
        Some(fault.kind.as_str())
    }

    /// Tells whether this call was lost then because its key was gone, or one of this name in its process. A call that was over before
    /// its process could know has lost nothing; then another that had the same lease must have: calls of one TTL share one.
    fn noticed(&self, call: &Call, name: &str, from: u64, to: u64) -> bool {
        let near = from.saturating_sub(RECORD)..=to + RECORD;
        let over = matches!(call.ended, Some((_, Ending::Done)));
        let same = |lost: &Call| {
            lost.id == call.id
                || lost.asked.names.iter().any(|of| of == name)
                || (over && lost.asked.ttl == call.asked.ttl)
        };
        let noticed = self.noticed.get(&call.id.process);
        noticed.is_some_and(|lost| {
            lost.iter()
                .any(|(at, lost)| near.contains(at) && same(lost))
        })
    }

    /// How long the process of a call, or the machine, did not run between two moments.
    fn idle(&self, call: &Call, from: u64, to: u64) -> u64 {
        to - from - self.pauses.ran(call.id.process, from, to) + self.pauses.stalled(from, to)
    }

    /// Tells whether etcd may have lost what it knew between two moments.
    pub(super) fn rewound(&self, from: u64, to: u64) -> bool {
        self.faults.iter().any(|fault| fault.rewinds(from, to))
    }
}
