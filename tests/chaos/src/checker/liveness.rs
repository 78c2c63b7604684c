//! Judge of liveness: how long after a fault every worker is served every hot name, and whether all are served in calm.

use std::collections::BTreeMap;

use super::Known;
use super::calls::began;
use super::verdicts::{Breach, Verdicts};
use crate::clock::ms;
use crate::history::What;

/// Kind of the calls of tasks that always want the same name; every worker has one task for each such name.
pub(crate) const HOT: &str = "hot";
/// Bound of the time: two leases of ten seconds, as after a change of leader, the longest body, and three seconds.
const BOUND: u64 = ms(26_000);

pub(super) fn judge(known: &Known<'_>, verdicts: &mut Verdicts) {
    // Times at which each process's own task was served, by name.
    let mut served: BTreeMap<(&str, u32), Vec<u64>> = BTreeMap::new();
    for call in known.calls.values().filter(|call| call.asked.kind == HOT) {
        for name in &call.asked.names {
            let begins = served.entry((name, call.id.process)).or_default();
            if call.was_held() {
                begins.push(began(call));
            }
        }
    }
    for begins in served.values_mut() {
        begins.sort_unstable();
    }
    let end = known.events.iter().find(|event| event.what == What::Draining);
    let end = end.or(known.events.last()).map_or(0, |event| event.at);
    for fault in known.faults {
        let Some(healed) = fault.healed else { continue };
        // The next fault, or the end of the run: until then it is calm.
        let others = known.faults.iter().filter(|other| other.number != fault.number);
        if others.clone().any(|other| other.begun <= healed && healed < other.until()) {
            continue;
        }
        let next = others.clone().map(|other| other.begun).filter(|begun| *begun > healed).min();
        let until = next.unwrap_or(end).min(end);
        let mut slowest = Some(0);
        for ((name, process), begins) in &served {
            // A process that ended before, or started later.
            if !known.pauses.lives(*process, healed, until) {
                continue;
            }
            let first = begins.get(begins.partition_point(|begin| *begin < healed));
            if let Some(first) = first.filter(|first| **first <= until) {
                slowest = slowest.map(|slowest: u64| slowest.max(first - healed));
                continue;
            }
            slowest = None;
            let calm = until.saturating_sub(healed);
            if calm > BOUND + known.pauses.stalled(healed, until) {
                let text = format!(
                    "`{name}` was not served in process {process} for {} ms after {} {}",
                    calm / 1_000_000,
                    fault.kind,
                    fault.of.target
                );
                verdicts.of_name(Breach::NotServedInCalm, name, &[], until, text);
            }
        }
        // The time of a step with a second fault does not belong to either alone.
        let alone =
            !others.clone().any(|other| fault.begun <= other.begun && other.begun <= healed);
        if let Some(took) = slowest.filter(|_| alone) {
            verdicts.recoveries.push((fault.kind, took));
        }
    }
}
