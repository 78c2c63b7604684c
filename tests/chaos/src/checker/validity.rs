//! Judge of validity: while nothing from etcd reaches a process, its guards say "held" for at most one TTL, and no body begins after
//! that. This does not depend on what a guard knows: the begin of the fault and the TTL are enough. Since a lost lock stays lost, one
//! that is held at some moment was held all the time before.

use super::Known;
use super::calls::began;
use super::verdicts::{Breach, Verdicts};
use crate::clock::ms;
use crate::schedule::Kind;

/// Kinds of faults during which no renewal gets a response.
const SILENT: &[Kind] = &[
    Kind::WorkerCut,
    Kind::RequestsLost,
    Kind::AnswersLost,
    Kind::WorkerFrozen,
    Kind::QuorumKilled,
    Kind::QuorumFrozen,
];
/// How long after its record a fault may take effect, on a busy machine.
const RECORD: u64 = ms(500);

pub(super) fn judge(known: &Known<'_>, verdicts: &mut Verdicts) {
    for fault in known.faults.iter().filter(|fault| SILENT.contains(&fault.kind)) {
        let until = fault.lasts_until().min(known.pauses.over);
        let begun = fault.begun + RECORD;
        let begun = begun + known.pauses.stalled(fault.begun, begun);
        for call in known.calls.values().filter(|call| call.was_held()) {
            let stop = begun + ms(call.asked.ttl);
            let held = call.held_until.min(until);
            let of_another = fault.is_of_another(call.id.process);
            if of_another || held <= stop || began(call) >= until {
                continue;
            }
            let (what, at) = match began(call) > stop {
                true => ("began", began(call)),
                false => ("was held", held),
            };
            let (kind, since) = (fault.kind, (at - fault.begun) / 1_000_000);
            let ttl = call.asked.ttl;
            let text = format!("{what} {since} ms into \"{kind}\", with a TTL of {ttl} ms");
            verdicts.of_call(Breach::HeldForTooLong, call, held, text);
        }
    }
}
