//! Checker: a pure function from a history to verdicts.

mod answers;
mod bounds;
pub(crate) mod calls;
mod calm;
mod exclusion;
pub(crate) mod faults;
pub(crate) mod liveness;
mod order;
mod pauses;
mod remains;
mod removals;
#[cfg(test)]
mod tests;
mod tokens;
mod validity;
pub(crate) mod verdicts;

use std::collections::BTreeMap;

use self::calls::{Call, CallId, began};
use self::faults::Fault;
use self::pauses::Pauses;
use self::removals::Removals;
use self::verdicts::Verdicts;
use crate::history::{Event, What};
use crate::options::Who;

/// Version of the rules. Each change of them raises it, because figures of two versions do not add up.
pub(crate) const VERSION: u32 = 5;

struct Known<'a> {
    events: &'a [Event],
    calls: &'a BTreeMap<CallId, Call>,
    /// Bodies that held each name, in the order in which they began.
    holders: BTreeMap<&'a str, Vec<&'a Call>>,
    faults: &'a [Fault],
    pauses: &'a Pauses,
    removals: Removals<'a>,
}

pub(crate) fn judge(events: &[Event]) -> Verdicts {
    let calls = calls::of(events);
    let faults = faults::of(events);
    let pauses = Pauses::of(events);
    let known = Known {
        events,
        calls: &calls,
        holders: holders(&calls),
        faults: &faults,
        pauses: &pauses,
        removals: Removals::of(events, &calls, &faults, &pauses),
    };
    let mut verdicts = Verdicts::default();
    exclusion::judge(&known, &mut verdicts);
    tokens::judge(&known, &mut verdicts);
    // Peers do not promise an order among the tasks of a process.
    let ours = |event: &Event| !matches!(&event.what, What::Run(run) if run.who != Who::Ours);
    if events.iter().all(ours) {
        order::judge(&known, &mut verdicts);
    }
    validity::judge(&known, &mut verdicts);
    answers::judge(&known, &mut verdicts);
    bounds::judge(&known, &mut verdicts);
    liveness::judge(&known, &mut verdicts);
    remains::judge(&known, &mut verdicts);
    verdicts.measured.stalls = pauses.stalls();
    verdicts.violations.sort_by_key(|violation| violation.at);
    verdicts
}

fn holders(calls: &BTreeMap<CallId, Call>) -> BTreeMap<&str, Vec<&Call>> {
    let mut holders: BTreeMap<&str, Vec<&Call>> = BTreeMap::new();
    for call in calls.values().filter(|call| call.was_held()) {
        for name in &call.asked.names {
            holders.entry(name).or_default().push(call);
        }
    }
    holders.values_mut().for_each(|bodies| bodies.sort_by_key(|call| began(call)));
    holders
}
