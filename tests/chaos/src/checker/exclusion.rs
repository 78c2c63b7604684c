//! Exclusion: bodies that overlap inside their validity, permits above their number, readers together with a writer.
//!
//! A body is valid from its first poll to the last poll at which its guard said "held", a moment after the clock was read. Since a
//! lost lock stays lost, it was held all that time. So two such intervals that overlap and exclude each other break the promise.

use std::collections::BTreeMap;

use super::calls::{Call, CallId};
use super::pauses::Pauses;
use super::removals::Removals;
use super::verdicts::{Breach, Verdicts};
use crate::history::{Mode, Outcome};
use crate::schedule::Kind;

/// How soon a call returns that gives its body up after the poll in which it was lost, on a busy machine.
const GIVEN_UP: u64 = 100_000_000;

/// The kind of calls whose bodies block their threads for longer than their TTL.
pub(super) const BLOCKING: &str = "blocking";

/// How many bodies a run may have that are polled after their loss: a body's poll lasts some microseconds of its ten milliseconds, and
/// only there a stop or a loss may come between the gate and what the body says.
const LATE_POLLS: usize = 1;
/// How many losses it takes for one more.
const LOSSES_A_LATE_POLL: usize = 100;

pub(super) fn judge(
    calls: &BTreeMap<CallId, Call>,
    removals: &Removals<'_>,
    pauses: &Pauses,
    verdicts: &mut Verdicts,
) {
    for (name, bodies) in by_name(calls) {
        pairs(name, &bodies, removals, verdicts);
        permits(name, &bodies, removals, verdicts);
    }
    for call in calls.values() {
        if let Some(again) = call.again.first() {
            let text = "its body began once more".to_owned();
            verdicts.breach(Breach::Twice, *again, &call.asked.names, &[call.id], text);
        }
    }
    late(calls, pauses, verdicts);
}

/// Judges polls after a loss: one in which the lock is lost is measured, if it has a reason and is rare; any more are found.
fn late(calls: &BTreeMap<CallId, Call>, pauses: &Pauses, verdicts: &mut Verdicts) {
    let mut found = |call: &Call, at: u64, text: String| {
        verdicts.breach(Breach::RanOn, at, &call.asked.names, &[call.id], text);
    };
    let mut blocking = 0;
    let mut plain: Vec<(&Call, Late)> = Vec::new();
    for call in calls.values() {
        let (Some(first), Some(last)) = (call.late.first(), call.late.last()) else {
            continue;
        };
        if call.held_until > *first {
            found(call, call.held_until, "held once more after its loss".to_owned());
        } else if call.late.len() > 1 {
            let text = format!(
                "polled {} times after its loss, for {} ms",
                call.late.len(),
                (last - first) / 1_000_000
            );
            found(call, *last, text);
        } else if call.asked.kind == BLOCKING {
            blocking += 1;
        } else if let Some(reason) = reason(call, *last, pauses) {
            plain.push((call, reason));
        } else {
            found(call, *last, "polled after its loss, for no reason".to_owned());
        }
    }
    let lost = |call: &&Call| {
        matches!(call.returned, Some((_, Outcome::Lost(_)))) && call.asked.kind != BLOCKING
    };
    let lost = calls.values().filter(lost).count();
    if plain.len() > LATE_POLLS + lost / LOSSES_A_LATE_POLL {
        for (call, _) in &plain {
            let text = format!(
                "polled after its loss, as were {} bodies of {lost} that were lost",
                plain.len()
            );
            let at = call.late.first().copied().unwrap_or_default();
            found(call, at, text);
        }
    }
    let of = |reason| plain.iter().filter(|(_, is)| *is == reason).count() as u64;
    verdicts.late_blocking = blocking;
    verdicts.late_stopped = of(Late::Stopped);
    verdicts.late_between = of(Late::Between);
}

/// Why a body was polled once after its loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Late {
    /// Its process stood still in that poll.
    Stopped,
    /// The engine noted the loss after the gate and before the body asked, and the call gave the body up right after it.
    Between,
}

/// The reason for which a body that blocks no thread was polled then.
fn reason(call: &Call, late: u64, pauses: &Pauses) -> Option<Late> {
    let since = call.held_until.max(call.asked_at);
    let stood = pauses.ran(call.id.process, since, late) < late.saturating_sub(since);
    let given_up = matches!(&call.returned, Some((at, Outcome::Lost(_))) if *at < late + GIVEN_UP);
    match (stood, given_up) {
        (true, _) => Some(Late::Stopped),
        (false, true) => Some(Late::Between),
        (false, false) => None,
    }
}

/// The bodies that held each name, in the order in which they began.
pub(super) fn by_name(calls: &BTreeMap<CallId, Call>) -> BTreeMap<&str, Vec<&Call>> {
    let mut names: BTreeMap<&str, Vec<&Call>> = BTreeMap::new();
    for call in calls.values().filter(|call| call.was_held()) {
        for name in &call.asked.names {
            names.entry(name).or_default().push(call);
        }
    }
    for bodies in names.values_mut() {
        bodies.sort_by_key(|call| began(call));
    }
    names
}

pub(super) fn began(call: &Call) -> u64 {
    call.begun.as_ref().map_or(u64::MAX, |begun| begun.at)
}

/// Judges each body against the earlier ones that were still there when it began.
fn pairs(name: &str, bodies: &[&Call], removals: &Removals<'_>, verdicts: &mut Verdicts) {
    let stopped: Vec<&Call> = bodies.iter().copied().filter(|body| !body.late.is_empty()).collect();
    let mut there: Vec<&Call> = Vec::new();
    let mut after_stop: BTreeMap<(CallId, u64), u64> = BTreeMap::new();
    for body in bodies {
        let begin = began(body);
        there.retain(|earlier| earlier.held_until > begin);
        for earlier in there.iter().filter(|earlier| excludes(earlier, body)) {
            let end = earlier.held_until.min(body.held_until).max(begin);
            let lasts = end - begin;
            if let Some(kind) = removals.overlap(earlier, body, name, begin, end) {
                verdicts.removed(kind, lasts);
                continue;
            }
            verdicts.breach(
                Breach::Overlap,
                begin,
                &[name.to_owned()],
                &[earlier.id, body.id],
                format!("both were polled under `{name}`, for {:.1} ms", lasts as f64 / 1e6),
            );
        }
        there.push(body);
        let earlier =
            stopped.iter().filter(|earlier| began(earlier) < begin && excludes(earlier, body));
        for earlier in earlier {
            for late in earlier.late.iter().filter(|late| **late > begin) {
                // Of several bodies that have begun meanwhile, the first.
                after_stop.entry((earlier.id, *late)).or_insert(late - begin);
            }
        }
    }
    verdicts.after_stop.extend(after_stop.into_values());
}

fn excludes(a: &Call, b: &Call) -> bool {
    match (a.asked.mode, b.asked.mode) {
        (Mode::Shared, Mode::Shared) => false,
        (Mode::Permits(_), Mode::Permits(_)) => false,
        _ => a.id != b.id,
    }
}

/// Counts the permits that are held at each begin of one.
fn permits(name: &str, bodies: &[&Call], removals: &Removals<'_>, verdicts: &mut Verdicts) {
    let mut there: Vec<&Call> = Vec::new();
    for body in bodies {
        let Mode::Permits(of) = body.asked.mode else {
            continue;
        };
        there.retain(|earlier| earlier.held_until > began(body));
        there.push(body);
        let most = there.iter().fold(of, |most, call| match call.asked.mode {
            Mode::Permits(of) => most.max(of),
            _ => most,
        });
        if there.len() <= usize::from(most) {
            continue;
        }
        let ends = there.iter().map(|call| call.held_until).min();
        let (from, to) = (began(body), ends.unwrap_or(0).max(began(body)));
        let extra = there.len() - usize::from(most);
        let explained = without_key(name, &there, body, removals, from, to);
        if explained.len() >= extra {
            verdicts.removed(explained[0], to - from);
        } else {
            let ids: Vec<CallId> = there.iter().map(|call| call.id).collect();
            let text = format!("{} hold one of {most} permits of `{name}`", there.len());
            verdicts.breach(Breach::Permits, began(body), &[name.to_owned()], &ids, text);
        }
    }
}

/// The kinds of faults by which these permits may have no key in etcd any more, or none in its new history: one for each such permit.
fn without_key(
    name: &str,
    there: &[&Call],
    newest: &Call,
    removals: &Removals<'_>,
    from: u64,
    to: u64,
) -> Vec<Kind> {
    let mut taken = Vec::new();
    let mut kinds = Vec::new();
    for call in there {
        if let Some(fault) = removals.explain(call, name, from, to) {
            // An operator has taken one key, so one permit.
            if !fault.is_of_one_key() || !taken.contains(&fault.number) {
                taken.push(fault.number);
                kinds.push(fault.kind);
            }
        } else {
            kinds.extend(removals.of_two_histories(call, newest, from, to));
        }
    }
    kinds
}
