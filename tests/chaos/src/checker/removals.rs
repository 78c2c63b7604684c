//! Removals: keys that etcd or an operator has taken from live holders, whose engines notice it a moment later.

use std::collections::BTreeMap;

use super::calls::{Call, CallId, began};
use super::faults::Fault;
use super::pauses::Pauses;
use crate::clock::ms;
use crate::history::{Ending, Event, Outcome, Said, What};
use crate::schedule::Kind;

/// Time within which losses by the same removal are recorded.
const RECORD: u64 = ms(1_000);
/// A body that ends this soon after its key was taken may not know of the loss.
const UNTOLD: u64 = ms(250);
/// Causes of losses that show that a process's key or lease is gone.
const GONE: &[&str] = &["Gone", "Overwritten"];
/// Code that a process logs once when it notices that etcd has lost its history.
const HISTORY_LOST: &str = "etcd.history_lost";

pub(super) type Span = (u64, u64);

/// Explanations of why a holder's key was gone while its guard said "held".
pub(super) struct Removals<'a> {
    faults: &'a [Fault],
    pauses: &'a Pauses,
    /// Calls of each process that lost a lock because its key or lease was gone, with the time.
    noticed: BTreeMap<u32, Vec<(u64, &'a Call)>>,
    rewinds: Vec<Rewind>,
}

struct Rewind {
    kind: Kind,
    at: u64,
    healed: u64,
    /// Until when the fault may be the reason that an old lock is held.
    until: u64,
    /// When each process reported that it knows.
    known: BTreeMap<u32, u64>,
}

impl<'a> Removals<'a> {
    pub(super) fn of(
        events: &[Event],
        calls: &'a BTreeMap<CallId, Call>,
        faults: &'a [Fault],
        pauses: &'a Pauses,
    ) -> Self {
        let mut noticed: BTreeMap<u32, Vec<(u64, &Call)>> = BTreeMap::new();
        for call in calls.values() {
            if let Some((at, Outcome::Lost(cause))) = &call.returned
                && GONE.contains(&cause.as_str())
            {
                noticed.entry(call.id.process).or_default().push((*at, call));
            }
        }
        Self { faults, pauses, noticed, rewinds: rewinds(events, faults) }
    }

    /// Returns the kind of fault that explains an overlap of two holders between two moments.
    pub(super) fn overlap(&self, both: [&Call; 2], name: &str, span: Span) -> Option<Kind> {
        // The later one may lack the key: its process handed the lock over without knowing that the key was gone.
        let mut removals = both.into_iter().filter_map(|call| self.explain(call, name, span));
        removals.next().map(|fault| fault.kind).or_else(|| self.of_two_histories(both, span))
    }

    /// Returns the kind of fault that makes two calls hold a name in different histories of etcd, if the older one may not know.
    pub(super) fn of_two_histories(&self, both: [&Call; 2], (from, to): Span) -> Option<Kind> {
        if self.share_history(both[0], both[1]) {
            return None;
        }
        let rewind = self.rewinds.iter().find(|rewind| {
            let unknown = rewind.at..=rewind.until;
            unknown.contains(&from) && unknown.contains(&to)
        })?;
        let mut both = both.into_iter();
        let known = both.any(|call| to - from <= ms(call.asked.ttl) + self.idle(call, from, to));
        known.then_some(rewind.kind)
    }

    /// Returns true if two calls certainly got their locks in the same history of etcd.
    pub(super) fn share_history(&self, a: &Call, b: &Call) -> bool {
        let history = self.history(a);
        history.is_some() && history == self.history(b)
    }

    /// Returns the number of the history of etcd in which a call got its lock; `None` if its process may have had it before.
    pub(super) fn history(&self, call: &Call) -> Option<usize> {
        let mut number = 0;
        for rewind in &self.rewinds {
            if began(call) < rewind.at {
                break;
            }
            let known = rewind.known.get(&call.id.process).copied();
            if call.asked_at < rewind.healed.max(known.unwrap_or(0)) {
                return None;
            }
            number += 1;
        }
        Some(number)
    }

    /// Returns the fault by which the key of a call may have been gone between two moments: an operator has just taken it, or etcd has
    /// revoked its lease, and the process noticed that at about that time.
    pub(super) fn explain(&self, call: &Call, name: &str, (from, to): Span) -> Option<&'a Fault> {
        let ttl = ms(call.asked.ttl);
        let explains = |fault: &&Fault| {
            let Some((span, detection)) = fault.removal(name, ttl) else {
                return false;
            };
            // During another fault a holder may notice it only at its stop time.
            let mut others = self.faults.iter();
            let cut = others.any(|it| it.number != fault.number && it.disturbs(from, to, 0));
            let detection = detection.max(if cut { ttl } else { 0 });
            let detection = detection + self.idle(call, from, to);
            (span.0..=span.1).contains(&from)
                && to - from <= detection
                && fault.takes_from(call)
                && (self.noticed(call, name, from, from + detection)
                    || (!fault.makes_etcd_revoke() && self.is_untold(call, span.0)))
        };
        self.faults.iter().find(explains)
    }

    /// Returns true if a body ended before its process could notice that its key had been taken.
    fn is_untold(&self, call: &Call, taken: u64) -> bool {
        let over = matches!(call.ended, Some((_, Ending::Done)));
        let ended = call.held_until;
        over && ended <= taken + UNTOLD + self.idle(call, taken, ended.max(taken))
    }

    /// Returns true if this call, or one of this name in its process, was lost because its key was gone. A call that ended before its
    /// process could know does not lose its lock; then another under the same lease must have: calls of one TTL share a lease.
    fn noticed(&self, call: &Call, name: &str, from: u64, to: u64) -> bool {
        let near = from.saturating_sub(RECORD)..=to + RECORD;
        let over = matches!(call.ended, Some((_, Ending::Done)));
        let same = |lost: &Call| {
            lost.id == call.id
                || lost.asked.names.iter().any(|of| of == name)
                || (over && lost.asked.ttl == call.asked.ttl)
        };
        let noticed = self.noticed.get(&call.id.process);
        noticed.is_some_and(|lost| lost.iter().any(|(at, lost)| near.contains(at) && same(lost)))
    }

    /// Returns how long the process of a call, or the machine, did not run between two moments.
    fn idle(&self, call: &Call, from: u64, to: u64) -> u64 {
        to - from - self.pauses.ran(call.id.process, from, to) + self.pauses.stalled(from, to)
    }

    pub(super) fn rewound(&self, from: u64, to: u64) -> bool {
        self.faults.iter().any(|fault| fault.rewinds(from, to))
    }
}

/// Gathers the faults by which etcd lost its history, and when each process noticed.
fn rewinds(events: &[Event], faults: &[Fault]) -> Vec<Rewind> {
    let rewind = |fault: &Fault| {
        Some(Rewind {
            kind: fault.kind,
            at: fault.rewound()?,
            healed: fault.until(),
            until: fault.until().saturating_add(super::faults::REWIND_DETECTION),
            known: BTreeMap::new(),
        })
    };
    let mut rewinds: Vec<Rewind> = faults.iter().filter_map(rewind).collect();
    for Event { at, what } in events {
        let What::Said { process, said } = what else {
            continue;
        };
        let Some(rewind) = rewinds.iter_mut().rfind(|rewind| rewind.at < *at) else {
            continue;
        };
        // One line, or the first such loss, concerns all sessions of the process; a later loss only those of one TTL.
        let of_one_ttl = match said {
            Said::Logged { text, .. } if text.contains(HISTORY_LOST) => false,
            Said::Returned { result: Outcome::Lost(cause), .. } => match cause.as_str() {
                "Wiped" => false,
                "Gone" | "Expired" if *at <= rewind.until => true,
                _ => continue,
            },
            _ => continue,
        };
        let first = rewind.known.entry(*process).or_insert(*at);
        if of_one_ttl {
            *first = (*first).max(*at);
        }
    }
    rewinds
}
