//! Validity: while nothing of etcd's reaches a process, its guards say "held" for one TTL at most, and no body begins after that.
//!
//! A guard's own word is not asked here: the moment at which the fault began and the TTL are enough. Since a lock that is lost stays
//! lost, one that is held at some moment was held all the time before.

use std::collections::BTreeMap;

use super::calls::{Call, CallId};
use super::exclusion::began;
use super::faults::Fault;
use super::pauses::Pauses;
use super::verdicts::{Breach, Verdicts};
use crate::clock::ms;
use crate::options::word;
use crate::schedule::Kind;

/// Kinds of faults during which no renewal is answered.
const SILENT: &[Kind] = &[
    Kind::WorkerCut,
    Kind::RequestsLost,
    Kind::AnswersLost,
    Kind::WorkerFrozen,
    Kind::QuorumKilled,
    Kind::QuorumFrozen,
];
/// How long after its record a fault may begin, on a busy machine.
const RECORD: u64 = ms(500);

pub(super) fn judge(
    calls: &BTreeMap<CallId, Call>,
    faults: &[Fault],
    pauses: &Pauses,
    verdicts: &mut Verdicts,
) {
    let silent = |fault: &&Fault| SILENT.contains(&fault.kind);
    for fault in faults.iter().filter(silent) {
        let until = fault.lasts_until().min(pauses.over());
        let begun = fault.begun + RECORD;
        let begun = begun + pauses.stalled(fault.begun, begun);
        for call in calls.values().filter(|call| call.was_held()) {
            let of_another = |processes: &[u32]| !processes.contains(&call.id.process);
            let stop = begun + ms(call.asked.ttl);
            let held = call.held_until.min(until);
            if fault.processes().is_some_and(of_another) || held <= stop || began(call) >= until {
                continue;
            }
            let (what, at) = match began(call) > stop {
                true => ("began", began(call)),
                false => ("was held", held),
            };
            let text = format!(
                "{what} {} ms into \"{}\", with a TTL of {} ms",
                (at - fault.begun) / 1_000_000,
                word(fault.kind),
                call.asked.ttl
            );
            verdicts.breach(Breach::Validity, held, &call.asked.names, &[call.id], text);
        }
    }
}
