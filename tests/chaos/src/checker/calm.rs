//! Calm: times in which no fault and no long stall explains that a call fails or is overtaken.

use super::calls::Call;
use super::exclusion::BLOCKING;
use super::faults::{Failure, Fault, LONG_TTL};
use super::pauses::{Pauses, covered};
use crate::clock::ms;
use crate::history::{Event, What};

/// How long after a fault it may still be the cause of an error.
pub(super) const AFTERMATH: u64 = ms(15_000);
/// How long after its TTL a process may learn at the latest that a lock is lost, and say so.
const LEARNT: u64 = ms(5_000);
/// How long a body blocks its thread: until then its call says nothing.
const BLOCKED: u64 = ms(6_000);
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

/// Tells whether a fault, or a long stall, may be why a call fails so between two moments.
pub(super) fn is_explained(
    call: &Call,
    (from, to): (u64, u64),
    failure: Failure<'_>,
    faults: &[Fault],
    pauses: &Pauses,
) -> bool {
    let ttl = ms(call.asked.ttl);
    // A lock that is lost has not been renewed for a TTL, or its key was gone; a call is refused after some seconds of trying.
    let since = match failure {
        Failure::Lost(cause) => {
            let leases = if cause == "Revoked" { 2 } else { 1 };
            let blocked = if call.asked.kind == BLOCKING { BLOCKED } else { 0 };
            to.saturating_sub(leases * ttl + LEARNT + blocked)
        }
        Failure::Refused | Failure::Unreleased => to.saturating_sub(AFTERMATH),
        Failure::Delayed => from.saturating_sub(AFTERMATH),
    };
    let explains = |fault: &&Fault| fault.disturbs(since, to, 0) && fault.explains(call, failure);
    let explaining: Vec<&Fault> = faults.iter().filter(explains).collect();
    let least = match failure {
        // A release is given up after two seconds, whatever the TTL.
        Failure::Unreleased => long_stall(ttl).min(ms(1_000)),
        _ => long_stall(ttl),
    };
    let stalled = pauses.longest_stall(since, to) >= least;
    if failure != Failure::Lost("Expired") || ttl < LONG_TTL {
        return stalled || !explaining.is_empty();
    }
    // Renewals come every third of the TTL: it takes a longer time without any until a long lease has run out.
    let silent: Vec<_> = explaining.iter().map(|fault| (fault.begun, fault.until())).collect();
    stalled || covered(&silent, 0, to) >= ttl / 3
}

/// Tells whether a lock of a long lease that was revoked meanwhile is one that etcd itself revoked, though it was renewed.
pub(super) fn is_revoked_by_etcd(call: &Call, (from, to): (u64, u64), faults: &[Fault]) -> bool {
    let lost = Failure::Lost("Revoked");
    let near = || faults.iter().filter(|fault| fault.disturbs(from, to, AFTERMATH));
    ms(call.asked.ttl) >= LONG_TTL
        && near().any(Fault::makes_etcd_revoke)
        && !near().any(|fault| !fault.makes_etcd_revoke() && fault.explains(call, lost))
}

/// How much of a run is calm, for calls of every TTL.
pub(super) fn lasts(events: &[Event], faults: &[Fault], pauses: &Pauses, before: u64) -> u64 {
    let Some((first, end)) = judged(events, pauses) else {
        return 0;
    };
    let disturbed = faults.iter().map(|fault| (fault.begun, fault.until()));
    let disturbed = disturbed.chain(pauses.long_stalls(long_stall(TTL)));
    let disturbed: Vec<_> = disturbed.map(|(from, to)| (from, to.saturating_add(before))).collect();
    end.saturating_sub(first).saturating_sub(covered(&disturbed, first, end))
}

/// The share of the time of all processes in which nothing explains that a lock of ten seconds is lost.
pub(super) fn share_judged(events: &[Event], faults: &[Fault], pauses: &Pauses) -> f64 {
    let Some((first, end)) = judged(events, pauses) else {
        return 0.0;
    };
    let (mut lived, mut calm) = (0, 0);
    for (process, started, ended) in pauses.processes() {
        let (from, to) = (started.max(first), ended.min(end));
        let disturbing = faults.iter().filter(|fault| fault.unsettles(process));
        let disturbed = disturbing.map(|fault| (fault.begun, fault.until()));
        let disturbed = disturbed.chain(pauses.long_stalls(long_stall(LONG_TTL)));
        let disturbed: Vec<_> =
            disturbed.map(|(from, to)| (from, to.saturating_add(AFTERMATH))).collect();
        let lives = to.saturating_sub(from);
        lived += lives;
        calm += lives.saturating_sub(covered(&disturbed, from, to));
    }
    calm as f64 / lived.max(1) as f64
}

/// From when until when calls are asked.
fn judged(events: &[Event], pauses: &Pauses) -> Option<(u64, u64)> {
    let first = events.first()?.at;
    let end = events.iter().find(|event| event.what == What::Draining);
    Some((first, end.map_or(pauses.over(), |event| event.at)))
}
