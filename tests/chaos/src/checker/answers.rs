//! Answers of calls that were not served: "busy" after the whole wait and of a name that another call uses, "deadlock" where nested
//! calls allow a cycle, and none at all only while others hold the name.

use std::collections::{BTreeMap, BTreeSet};

use super::calls::{Call, CallId};
use super::calm;
use super::exclusion::began;
use super::faults::{Failure, Fault};
use super::pauses::Pauses;
use super::verdicts::{Breach, Verdicts};
use crate::clock::ms;
use crate::history::Outcome;

/// How much sooner than it is due an answer may be recorded.
const RECORD: u64 = ms(2);
/// How long the key of a call may be there after it has ended: it lingers, then etcd is asked to delete it.
const LEFT: u64 = ms(2_000);
/// How long it may be there beyond two leases, if no client deletes it: a change of leader extends leases once.
const EXPIRY: u64 = ms(3_000);
/// From this wait in milliseconds on etcd has answered before the wait is over.
const ANSWERED: u64 = 1_000;
/// How long a call may wait for a name that no process uses.
const SERVED: u64 = ms(5_000);
/// The wait in milliseconds from which on a call is to be served once its name is free.
const PATIENT: u64 = 10_000;
/// How long a published edge may be there after its call.
const EDGE: u64 = ms(1_000);

/// What is known of a history.
struct Known<'a> {
    calls: &'a BTreeMap<CallId, Call>,
    /// The calls for each name, in the order in which they were asked, each with when its key is gone.
    names: BTreeMap<&'a str, Vec<(&'a Call, u64)>>,
    /// Calls in the bodies of others.
    nested: Vec<&'a Call>,
    faults: &'a [Fault],
    pauses: &'a Pauses,
}

pub(super) fn judge(
    calls: &BTreeMap<CallId, Call>,
    faults: &[Fault],
    pauses: &Pauses,
    verdicts: &mut Verdicts,
) {
    let mut known = Known { calls, names: BTreeMap::new(), nested: Vec::new(), faults, pauses };
    let mut asked: Vec<&Call> = calls.values().collect();
    asked.sort_by_key(|call| call.asked_at);
    known.nested = asked.iter().copied().filter(|call| call.asked.under.is_some()).collect();
    for call in asked {
        let gone = known.gone(call);
        for name in &call.asked.names {
            known.names.entry(name).or_default().push((call, gone));
        }
    }
    let known = known;
    for call in calls.values() {
        match call.returned {
            Some((at, Outcome::Busy)) => known.busy(call, at, verdicts),
            Some((at, Outcome::Deadlock)) if !known.has_cycle(call, at) => {
                let text = "no nested calls allow a cycle".to_owned();
                verdicts.breach(Breach::Deadlock, at, &call.asked.names, &[call.id], text);
            }
            _ => {}
        }
        known.served_when_free(call, verdicts);
    }
}

impl Known<'_> {
    fn busy(&self, call: &Call, at: u64, verdicts: &mut Verdicts) {
        let wait = call.asked.wait.unwrap_or(u64::MAX);
        let took = at.saturating_sub(call.asked_at);
        if took + RECORD < wait.saturating_mul(ms(1)) {
            let text = format!("busy after {} ms of {wait}", took / 1_000_000);
            verdicts.breach(Breach::Error, at, &call.asked.names, &[call.id], text);
        }
        // A brief wait may be over before etcd has answered.
        if (wait == 0 || wait >= ANSWERED) && !self.is_disturbed(call, call.asked_at, at) {
            let used = |name: &String| self.is_used(call, name, call.asked_at, at);
            if !call.asked.names.iter().any(used) {
                let text = "busy, and no other call used its name".to_owned();
                verdicts.breach(Breach::Free, at, &call.asked.names, &[call.id], text);
            }
        }
    }

    /// Tells whether another call wanted a name, or may have had a key there, at some time between two moments.
    fn is_used(&self, call: &Call, name: &str, from: u64, to: u64) -> bool {
        let calls = self.names.get(name).map_or(&[][..], Vec::as_slice);
        let before = calls.partition_point(|(other, _)| other.asked_at <= to);
        let mut others = calls[..before].iter().rev();
        others.any(|(other, gone)| other.id != call.id && from <= *gone)
    }

    /// When the key of a call is gone from etcd at the latest.
    fn gone(&self, call: &Call) -> u64 {
        let over = self.pauses.ended(call.id.process).unwrap_or(u64::MAX);
        let returned = call.returned.as_ref().map_or(over, |(at, _)| *at);
        let ended = call.ended.map_or(0, |(at, _)| at).max(returned).min(over);
        let after = ended.saturating_add(LEFT);
        let kept = ms(call.asked.at_least);
        let crashed = over <= after;
        let lost = matches!(call.returned, Some((_, Outcome::Lost(_) | Outcome::Refused(_))));
        if crashed || lost || self.is_disturbed(call, call.asked_at, after) {
            after.saturating_add(2 * ms(call.asked.ttl) + EXPIRY + kept)
        } else {
            after.saturating_add(kept)
        }
    }

    /// Tells whether a fault or a long stall may have delayed an answer to this call, or the end of its key.
    fn is_disturbed(&self, call: &Call, from: u64, to: u64) -> bool {
        calm::is_explained(call, (from, to), Failure::Delayed, self.faults, self.pauses)
    }

    /// A call that may wait is served soon after its name is free.
    fn served_when_free(&self, call: &Call, verdicts: &mut Verdicts) {
        if call.asked.wait.is_some_and(|wait| wait < PATIENT) {
            return;
        }
        let from = call.asked_at;
        let returned = call.returned.as_ref().map_or(self.pauses.over(), |(at, _)| *at);
        let over = self.pauses.ended(call.id.process).unwrap_or(u64::MAX);
        let to = began(call).min(returned).min(over);
        if to.saturating_sub(from) <= SERVED {
            return;
        }
        // Times of no use, and of every fault that may delay it.
        let disturbing = self.faults.iter().filter(|fault| fault.explains(call, Failure::Delayed));
        let mut taken: Vec<(u64, u64)> = disturbing
            .map(|fault| (fault.begun, fault.until().saturating_add(calm::AFTERMATH)))
            .collect();
        taken.extend(self.pauses.long_stalls(ms(200)));
        for name in &call.asked.names {
            // Others that wait do not hold it.
            let calls = self.names.get(name.as_str()).map_or(&[][..], Vec::as_slice);
            let others = calls.iter().filter(|(other, _)| other.id != call.id);
            taken.extend(others.filter_map(|(other, gone)| {
                let crashed = self.pauses.ended(other.id.process).is_some();
                let begun = other.begun.as_ref().map(|begun| begun.at);
                let since = begun.or(crashed.then_some(other.asked_at))?;
                Some((since.saturating_sub(LEFT), *gone))
            }));
        }
        let free = longest_free(&mut taken, from, to);
        let free = free.saturating_sub(self.idle(call, from, to));
        if free > SERVED {
            let text = format!("waited for {} ms while its name was free", free / 1_000_000);
            verdicts.breach(Breach::Starved, to, &call.asked.names, &[call.id], text);
        }
    }

    fn idle(&self, call: &Call, from: u64, to: u64) -> u64 {
        (to - from).saturating_sub(self.pauses.ran(call.id.process, from, to))
    }

    /// Tells whether nested calls that were open then lead from the name that a call wanted to one that its task held.
    fn has_cycle(&self, call: &Call, at: u64) -> bool {
        let outer = |call: &Call| {
            let process = call.id.process;
            let call = call.asked.under?;
            self.calls.get(&CallId { process, call })
        };
        let Some(holds) = outer(call) else {
            return false;
        };
        let mut edges: Vec<(&Call, &Call)> = Vec::new();
        for inner in &self.nested {
            let Some(outer) = outer(inner).filter(|outer| outer.begun.is_some()) else {
                continue;
            };
            let over = self.pauses.ended(inner.id.process).unwrap_or(u64::MAX);
            let until = match &inner.returned {
                Some((at, _)) => *at,
                None => over.saturating_add(2 * ms(inner.asked.ttl) + EXPIRY),
            };
            if inner.asked_at <= at && call.asked_at <= until.saturating_add(EDGE) {
                edges.push((outer, inner));
            }
        }
        let mut reached: BTreeSet<&str> = call.asked.names.iter().map(String::as_str).collect();
        loop {
            let before = reached.len();
            for (outer, inner) in &edges {
                if outer.asked.names.iter().any(|name| reached.contains(name.as_str())) {
                    reached.extend(inner.asked.names.iter().map(String::as_str));
                }
            }
            if holds.asked.names.iter().any(|name| reached.contains(name.as_str())) {
                return true;
            }
            if reached.len() == before {
                return false;
            }
        }
    }
}

/// The longest time between two moments that none of these ranges covers.
fn longest_free(taken: &mut [(u64, u64)], from: u64, to: u64) -> u64 {
    taken.sort_unstable();
    let (mut since, mut longest) = (from, 0);
    for (begin, end) in taken {
        longest = longest.max((*begin).min(to).saturating_sub(since));
        since = since.max(*end);
    }
    longest.max(to.saturating_sub(since))
}
