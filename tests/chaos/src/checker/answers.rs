//! Judge of answers to calls that were not served. "busy" comes after the whole wait and for a name that another call uses. "deadlock"
//! needs a possible cycle of nested calls. A call may stay without an answer only while others hold the name.

use std::collections::{BTreeMap, BTreeSet};

use super::Known;
use super::calls::{Call, CallId, began};
use super::calm;
use super::faults::Failure;
use super::verdicts::{Breach, Verdicts};
use crate::clock::ms;
use crate::history::Outcome;

/// How much too early an answer may be recorded.
const RECORD: u64 = ms(2);
/// How long the key of a call may exist after the call has ended: it lingers, then a delete is sent.
const LEFT: u64 = ms(2_000);
/// How long it may exist beyond two leases, if no client deletes it: a change of leader extends leases once.
const EXPIRY: u64 = ms(3_000);
/// Wait, in milliseconds, from which etcd responds before the wait is over.
const ANSWERED: u64 = 1_000;
/// Longest wait of a call for a name that no process uses.
const SERVED: u64 = ms(5_000);
/// Wait, in milliseconds, from which a call must be served after its name is free.
const PATIENT: u64 = 10_000;
/// How long the key of a waiting call may exist after the call.
const EDGE: u64 = ms(1_000);

/// Calls for each name, in the order in which they were made, each with the time at which its key is gone.
type Keys<'a> = BTreeMap<&'a str, Vec<(&'a Call, u64)>>;

pub(super) fn judge(known: &Known<'_>, verdicts: &mut Verdicts) {
    let mut keys = Keys::new();
    let mut asked: Vec<&Call> = known.calls.values().collect();
    asked.sort_by_key(|call| call.asked_at);
    for call in asked {
        let gone = known.gone(call);
        for name in &call.asked.names {
            keys.entry(name).or_default().push((call, gone));
        }
    }
    for call in known.calls.values() {
        match call.returned {
            Some((at, Outcome::Busy)) => known.busy(call, at, &keys, verdicts),
            Some((at, Outcome::Deadlock)) if !known.has_cycle(call, at) => {
                let text = "no nested calls allow a cycle".to_owned();
                verdicts.of_call(Breach::DeadlockWithoutACycle, call, at, text);
            }
            _ => {}
        }
        known.served_when_free(call, &keys, verdicts);
    }
}

impl Known<'_> {
    fn busy(&self, call: &Call, at: u64, keys: &Keys<'_>, verdicts: &mut Verdicts) {
        let wait = call.asked.wait.unwrap_or(u64::MAX);
        let took = at.saturating_sub(call.asked_at);
        if took + RECORD < wait.saturating_mul(ms(1)) {
            let text = format!("busy after {} ms of {wait}", took / 1_000_000);
            verdicts.of_call(Breach::UnexplainedError, call, at, text);
        }
        // Another call wanted the name, or may have had a key for it.
        let is_used = |name: &String| {
            let calls = keys.get(name.as_str()).map_or(&[][..], Vec::as_slice);
            let before = calls.partition_point(|(other, _)| other.asked_at <= at);
            let mut others = calls[..before].iter().rev();
            others.any(|(other, gone)| other.id != call.id && call.asked_at <= *gone)
        };
        // A short wait may be over before etcd has responded.
        if (wait == 0 || wait >= ANSWERED)
            && !self.is_disturbed(call, at)
            && !call.asked.names.iter().any(is_used)
        {
            let text = "busy, and no other call used its name".to_owned();
            verdicts.of_call(Breach::BusyThoughFree, call, at, text);
        }
    }

    /// Returns the latest time at which the key of a call is gone from etcd.
    fn gone(&self, call: &Call) -> u64 {
        let over = self.pauses.ended(call.id.process).unwrap_or(u64::MAX);
        let returned = call.returned.as_ref().map_or(over, |(at, _)| *at);
        let ended = call.ended.map_or(0, |(at, _)| at).max(returned).min(over);
        let after = ended.saturating_add(LEFT);
        let kept = ms(call.asked.min_hold);
        let crashed = over <= after;
        let lost = matches!(call.returned, Some((_, Outcome::Lost(_) | Outcome::Refused(_))));
        if crashed || lost || self.is_disturbed(call, after) {
            after.saturating_add(2 * ms(call.asked.ttl) + EXPIRY + kept)
        } else {
            after.saturating_add(kept)
        }
    }

    /// Returns true if a fault or a long stall may have delayed the answer to this call, or the end of its key.
    fn is_disturbed(&self, call: &Call, to: u64) -> bool {
        self.is_explained(call, (call.asked_at, to), Failure::Delayed)
    }

    /// Checks that a call which may wait is served soon after its name is free.
    fn served_when_free(&self, call: &Call, keys: &Keys<'_>, verdicts: &mut Verdicts) {
        if call.asked.wait.is_some_and(|wait| wait < PATIENT) {
            return;
        }
        let from = call.asked_at;
        let returned = call.returned.as_ref().map_or(self.pauses.over, |(at, _)| *at);
        let over = self.pauses.ended(call.id.process).unwrap_or(u64::MAX);
        let to = began(call).min(returned).min(over);
        if to.saturating_sub(from) <= SERVED {
            return;
        }
        // Times in which the name is used, and those of every fault that may delay the call.
        let disturbing = self.faults.iter().filter(|fault| fault.explains(call, Failure::Delayed));
        let mut taken: Vec<(u64, u64)> = disturbing
            .map(|fault| (fault.begun, fault.until().saturating_add(calm::AFTERMATH)))
            .collect();
        taken.extend(self.pauses.long_stalls(ms(200)));
        for name in &call.asked.names {
            // Other waiting calls do not hold it.
            let calls = keys.get(name.as_str()).map_or(&[][..], Vec::as_slice);
            let others = calls.iter().filter(|(other, _)| other.id != call.id);
            taken.extend(others.filter_map(|(other, gone)| {
                let crashed = self.pauses.ended(other.id.process).is_some();
                let begun = other.begun.as_ref().map(|begun| begun.at);
                let since = begun.or(crashed.then_some(other.asked_at))?;
                Some((since.saturating_sub(LEFT), *gone))
            }));
        }
        let idle = (to - from).saturating_sub(self.pauses.ran(call.id.process, from, to));
        taken.sort_unstable();
        let (mut since, mut free) = (from, 0);
        for (begin, end) in taken.into_iter().chain([(to, to)]) {
            free = free.max(begin.min(to).saturating_sub(since));
            since = since.max(end);
        }
        let free = free.saturating_sub(idle);
        if free > SERVED {
            let text = format!("waited for {} ms while its name was free", free / 1_000_000);
            verdicts.of_call(Breach::BusyInCalm, call, to, text);
        }
    }

    fn outer(&self, inner: &Call) -> Option<&Call> {
        self.calls.get(&CallId { process: inner.id.process, call: inner.asked.under? })
    }

    /// Returns true if the nested calls open at that time lead from the name that a call wanted to one that its task held.
    fn has_cycle(&self, call: &Call, at: u64) -> bool {
        let Some(holds) = self.outer(call) else {
            return false;
        };
        let mut edges: Vec<(&Call, &Call)> = Vec::new();
        for inner in self.calls.values() {
            let Some(outer) = self.outer(inner).filter(|outer| outer.begun.is_some()) else {
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
