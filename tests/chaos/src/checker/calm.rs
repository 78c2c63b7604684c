//! Calm: times in which no fault and no long stall explains that a call fails or is overtaken.

use super::calls::Call;
use super::faults::Fault;
use super::pauses::{Pauses, covered};
use crate::clock::ms;
use crate::history::{Event, What};

/// How long after a fault etcd may still be named as the cause of an error.
pub(super) const AFTERMATH: u64 = ms(15_000);
/// The shortest TTL.
const TTL: u64 = ms(2_000);

/// How long a stall is at least that may cost a lease of this TTL, or delay its calls: the time to its next renewal.
fn long_stall(ttl: u64) -> u64 {
    ttl / 3
}

/// Tells whether a call was not disturbed between two moments, nor in the time before.
pub(super) fn is_calm(
    call: &Call,
    (from, to): (u64, u64),
    before: u64,
    faults: &[Fault],
    pauses: &Pauses,
) -> bool {
    let mut disturbs = faults.iter();
    !disturbs.any(|fault| fault.disturbs(from, to, before))
        && pauses.longest_stall(from.saturating_sub(before), to) < long_stall(ms(call.asked.ttl))
}

/// How much of a run is calm, for calls of every TTL.
pub(super) fn lasts(events: &[Event], faults: &[Fault], pauses: &Pauses, before: u64) -> u64 {
    let Some(first) = events.first().map(|event| event.at) else {
        return 0;
    };
    let end = events.iter().find(|event| event.what == What::Draining);
    let end = end.map_or(pauses.over(), |event| event.at);
    let disturbed = faults.iter().map(|fault| (fault.begun, fault.until()));
    let disturbed = disturbed.chain(pauses.long_stalls(long_stall(TTL)));
    let disturbed: Vec<_> = disturbed
        .map(|(from, to)| (from, to.saturating_add(before)))
        .collect();
    end.saturating_sub(first)
        .saturating_sub(covered(&disturbed, first, end))
}
