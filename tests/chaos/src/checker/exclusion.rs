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

/// How soon a call returns that gives its body up after the poll in which it was lost, on a busy machine.
const GIVEN_UP: u64 = 100_000_000;

/// The kind of calls whose bodies block their threads for longer than their TTL.
const BLOCKING: &str = "blocking";

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
        let (Some(first), Some(last)) = (call.late.first(), call.late.last()) else {
            continue;
        };
        if call.late.len() == 1 && may_be_late(call, *last, pauses) {
            verdicts.late_polls += 1;
            continue;
        }
        let text = format!(
            "polled {} times after its loss, for {} ms",
            call.late.len(),
            (last - first) / 1_000_000
        );
        verdicts.breach(Breach::RanOn, *last, &call.asked.names, &[call.id], text);
    }
}

/// Tells whether a loss may have come after the gate and before or in the poll: its body blocks its thread, the process stood still, or
/// the call gave the body up right after it. (The engine notes a loss on its own thread, between any two steps of the body's.)
fn may_be_late(call: &Call, late: u64, pauses: &Pauses) -> bool {
    let since = call.held_until.max(call.asked_at);
    let given_up = matches!(&call.returned, Some((at, Outcome::Lost(_))) if *at < late + GIVEN_UP);
    given_up
        || call.asked.kind == BLOCKING
        || pauses.ran(call.id.process, since, late) < late - since
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
    let stopped: Vec<&Call> = bodies
        .iter()
        .copied()
        .filter(|body| !body.late.is_empty())
        .collect();
    let mut there: Vec<&Call> = Vec::new();
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
                format!(
                    "both were polled under `{name}`, for {:.1} ms",
                    lasts as f64 / 1e6
                ),
            );
        }
        there.push(body);
        let earlier = stopped
            .iter()
            .filter(|earlier| began(earlier) < begin && excludes(earlier, body));
        for late in earlier
            .flat_map(|earlier| &earlier.late)
            .filter(|late| **late > begin)
        {
            verdicts.after_stop(late - begin);
        }
    }
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
        let mut others = there.iter();
        if let Some(kind) = others.find_map(|call| removals.overlap(call, body, name, from, to)) {
            verdicts.removed(kind, to - from);
        } else {
            let ids: Vec<CallId> = there.iter().map(|call| call.id).collect();
            let text = format!("{} hold one of {most} permits of `{name}`", there.len());
            verdicts.breach(Breach::Permits, began(body), &[name.to_owned()], &ids, text);
        }
    }
}
