//! Judge of exclusion: it finds bodies that overlap while valid, more permits than allowed, and readers together with a writer.
//!
//! A body is valid from its first poll to the last poll at which its guard said "held", a moment after the clock was read. Since a
//! lost lock stays lost, it was held all that time. So two such intervals that overlap and exclude each other break the promise.

use super::Known;
use super::calls::{Call, began};
use super::removals::Span;
use super::verdicts::{Breach, Verdicts};
use crate::history::{Mode, Outcome};
use crate::schedule::Kind;

/// How soon a call returns after the poll in which its lock was lost, on a busy machine.
const GIVEN_UP: u64 = 100_000_000;

pub(super) const BLOCKING: &str = "blocking";

/// Number of bodies in a run that may be polled after their loss. A poll takes some microseconds of every ten milliseconds, and only
/// then a stop or a loss can come between the gate and the body's report.
const LATE_POLLS: usize = 1;
/// Number of losses that allow one more such body.
const LOSSES_A_LATE_POLL: usize = 100;

pub(super) fn judge(known: &Known<'_>, verdicts: &mut Verdicts) {
    for (name, bodies) in &known.holders {
        known.pairs(name, bodies, verdicts);
        known.permits(name, bodies, verdicts);
    }
    for call in known.calls.values() {
        if let Some(again) = call.again.first() {
            let text = "its body began once more".to_owned();
            verdicts.of_call(Breach::BodyBegunTwice, call, *again, text);
        }
    }
    known.late(verdicts);
}

fn excludes(a: &Call, b: &Call) -> bool {
    match (a.asked.mode, b.asked.mode) {
        (Mode::Shared, Mode::Shared) => false,
        (Mode::Permits(_), Mode::Permits(_)) => false,
        _ => a.id != b.id,
    }
}

impl Known<'_> {
    /// Judges polls after a loss: a single one is only measured, if it has a reason and is rare. More are violations.
    fn late(&self, verdicts: &mut Verdicts) {
        let mut plain: Vec<&Call> = Vec::new();
        for call in self.calls.values() {
            let (Some(first), Some(last)) = (call.late.first(), call.late.last()) else {
                continue;
            };
            let blocks = call.asked.kind == BLOCKING;
            let (many, lasted) = (call.late.len(), (last - first) / 1_000_000);
            let (at, text) = match many {
                _ if call.held_until > *first => {
                    (call.held_until, "held once more after its loss".to_owned())
                }
                1 if blocks || self.has_reason(call, *last) => {
                    verdicts.measured.late += 1;
                    if !blocks {
                        plain.push(call);
                    }
                    continue;
                }
                1 => (*last, "polled after its loss, for no reason".to_owned()),
                _ => (*last, format!("polled {many} times after its loss, for {lasted} ms")),
            };
            verdicts.of_call(Breach::PolledAfterItsLoss, call, at, text);
        }
        let lost = |call: &&Call| {
            matches!(call.returned, Some((_, Outcome::Lost(_)))) && call.asked.kind != BLOCKING
        };
        let lost = self.calls.values().filter(lost).count();
        if plain.len() > LATE_POLLS + lost / LOSSES_A_LATE_POLL {
            for call in &plain {
                let many = plain.len();
                let text = format!(
                    "polled after its loss, as were {many} bodies of {lost} that were lost"
                );
                verdicts.of_call(Breach::PolledAfterItsLoss, call, call.late[0], text);
            }
        }
    }

    /// Returns true if a body that does not block its thread may be polled after its loss: its process stood still in that poll. Or the
    /// engine noted the loss between the gate and the body's check, and the call dropped the body right after that poll.
    fn has_reason(&self, call: &Call, late: u64) -> bool {
        let since = call.held_until.max(call.asked_at);
        let stood = self.pauses.ran(call.id.process, since, late) < late.saturating_sub(since);
        let soon = late + GIVEN_UP;
        stood || matches!(&call.returned, Some((at, Outcome::Lost(_))) if *at < soon)
    }

    fn pairs(&self, name: &str, bodies: &[&Call], verdicts: &mut Verdicts) {
        let mut there: Vec<&Call> = Vec::new();
        for body in bodies {
            let begin = began(body);
            there.retain(|earlier| earlier.held_until > begin);
            for earlier in there.iter().filter(|earlier| excludes(earlier, body)) {
                let end = earlier.held_until.min(body.held_until).max(begin);
                let lasts = end - begin;
                if let Some(kind) = self.removals.overlap([earlier, body], name, (begin, end)) {
                    verdicts.removed(kind, lasts);
                    continue;
                }
                let lasts = lasts as f64 / 1e6;
                let text = format!("both were polled under `{name}`, for {lasts:.1} ms");
                verdicts.of_name(Breach::Overlap, name, &[earlier, body], begin, text);
            }
            there.push(body);
        }
    }

    fn permits(&self, name: &str, bodies: &[&Call], verdicts: &mut Verdicts) {
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
            let span = (began(body), ends.unwrap_or(0).max(began(body)));
            let extra = there.len() - usize::from(most);
            let explained = self.without_key(name, &there, body, span);
            if explained.len() >= extra {
                verdicts.removed(explained[0], span.1 - span.0);
            } else {
                let text = format!("{} hold one of {most} permits of `{name}`", there.len());
                verdicts.of_name(Breach::TooManyPermits, name, &there, began(body), text);
            }
        }
    }

    /// Returns the kinds of faults that explain why these permits may have lost their keys in etcd, or lack one in its new history:
    /// one for each such permit.
    fn without_key(&self, name: &str, there: &[&Call], newest: &Call, span: Span) -> Vec<Kind> {
        let mut taken = Vec::new();
        let mut kinds = Vec::new();
        for call in there {
            if let Some(fault) = self.removals.explain(call, name, span) {
                // An operator has taken one key, and so one permit.
                if !fault.is_of_one_key() || !taken.contains(&fault.number) {
                    taken.push(fault.number);
                    kinds.push(fault.kind);
                }
            } else {
                kinds.extend(self.removals.of_two_histories([call, newest], span));
            }
        }
        kinds
    }
}
