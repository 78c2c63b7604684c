//! Judge of calls' bounds: answers come within the wait and three seconds, with errors that faults explain, and bodies end.

use super::Known;
use super::calls::{Call, began};
use super::calm;
use super::exclusion::BLOCKING;
use super::faults::Failure;
use super::pauses::covered;
use super::verdicts::{Breach, Verdicts};
use crate::clock::ms;
use crate::history::Outcome;

const TOLERANCE: u64 = ms(3_000);
/// How many milliseconds a single try waits for a slow etcd: the connect time-out, and one exchange that began within it (rule P11).
const TRY_LIMIT: u64 = 8_000;
/// How long a body may be neither polled nor ended while its process runs. It wakes itself every ten milliseconds.
const POLL_LIMIT: u64 = ms(1_000);
/// Limit like `POLL_LIMIT` for a body whose process was killed, because that does not report its last stall.
const LAST_POLL_LIMIT: u64 = ms(2_000);
/// How long a call may take to return after its body has ended: it awaits the release for two seconds.
const RELEASE_LIMIT: u64 = ms(5_000);
/// Wait, in milliseconds, from which a call must be served in calm.
const LONG_WAIT: u64 = 10_000;
/// Length of a body from which others have to wait for it.
const LONG_BODY: u64 = ms(1_000);
/// Wait, in milliseconds, within which etcd has responded.
const PATIENT_WAIT: u64 = 5_000;

pub(super) fn judge(known: &Known<'_>, verdicts: &mut Verdicts) {
    for call in known.calls.values() {
        known.waits(call, verdicts);
        known.hangs(call, verdicts);
        known.errors(call, verdicts);
        known.starved(call, verdicts);
    }
    for (name, bodies) in &known.holders {
        known.retention(name, bodies, verdicts);
    }
}

impl Known<'_> {
    fn waits(&self, call: &Call, verdicts: &mut Verdicts) {
        let process = call.id.process;
        let returned = call.returned.as_ref().map_or(self.pauses.over, |(at, _)| *at);
        if let Some(wait) = call.asked.wait {
            let answered = returned.min(began(call));
            // A single try does not wait for the name, but a slow etcd makes it wait up to its limit.
            let asked = (call.asked_at, answered);
            let wait = match wait {
                0 if self.is_explained(call, asked, Failure::Delayed) => TRY_LIMIT,
                _ => wait,
            };
            let took = self.pauses.ran(process, call.asked_at, answered);
            if took > ms(wait) + TOLERANCE {
                let text = format!("waited for {} ms with a bound of {wait} ms", took / 1_000_000);
                verdicts.of_call(Breach::BeyondItsBound, call, answered, text);
            }
        }
        // A body that continues without its caller ends after its call.
        if let Some((ended, _)) = call.ended {
            let took = self.pauses.ran(process, ended, returned);
            if took > RELEASE_LIMIT {
                let text = format!("returned {} ms after its body", took / 1_000_000);
                verdicts.of_call(Breach::BeyondItsBound, call, returned, text);
            }
        }
    }

    /// Checks that a body is polled until it is dropped or its process ends.
    fn hangs(&self, call: &Call, verdicts: &mut Verdicts) {
        let Some(begun) = call.begun.as_ref().filter(|_| call.asked.kind != BLOCKING) else {
            return;
        };
        let last = call.held_until.max(begun.at);
        let last = call.late.last().map_or(last, |late| last.max(*late));
        let (end, limit) = match call.ended {
            Some((ended, _)) => (ended, POLL_LIMIT),
            None => (self.pauses.over, LAST_POLL_LIMIT),
        };
        let stood = self.pauses.ran(call.id.process, last, end);
        let stood = stood.saturating_sub(self.pauses.stalled(last, end));
        if stood > limit {
            let text =
                format!("its body was neither polled nor ended for {} ms", stood / 1_000_000);
            verdicts.of_call(Breach::BeyondItsBound, call, last, text);
        }
    }

    fn errors(&self, call: &Call, verdicts: &mut Verdicts) {
        let Some((at, result)) = &call.returned else {
            return;
        };
        let asked = (call.asked_at, *at);
        let explained = |failure| self.is_explained(call, asked, failure);
        // A call that waits only some milliseconds may be over before etcd has responded.
        let patient = call.asked.wait.is_none_or(|wait| wait == 0 || wait >= PATIENT_WAIT);
        if *result == Outcome::Lost("Gone".to_owned()) && self.is_revoked_by_etcd(call, asked) {
            verdicts.measured.revoked += 1;
        }
        let refused = match call.ended {
            Some(_) => Failure::Unreleased,
            None => Failure::Refused,
        };
        let text = match result {
            Outcome::Wrong(error) => error.clone(),
            Outcome::Lost(cause) if !explained(Failure::Lost(cause)) => {
                format!("lost without a fault: {cause}")
            }
            Outcome::Refused(error) if patient && !explained(refused) => {
                format!("refused without a fault: {error}")
            }
            _ => return,
        };
        verdicts.of_call(Breach::UnexplainedError, call, *at, text);
    }

    /// Checks that a call which waits long enough is served in calm, unless long bodies under one of its names leave it less than half
    /// of its wait.
    fn starved(&self, call: &Call, verdicts: &mut Verdicts) {
        let (Some((at, Outcome::Busy)), Some(wait)) = (&call.returned, call.asked.wait) else {
            return;
        };
        let (from, to) = (call.asked_at, *at);
        if wait < LONG_WAIT || !self.is_calm(call, (from, to), calm::AFTERMATH) {
            return;
        }
        let held = |name: &String| {
            let bodies = self.holders.get(name.as_str()).map_or(&[][..], Vec::as_slice);
            let times = bodies.iter().map(|body| (began(body), body.held_until));
            let long = times.filter(|(begin, end)| end.saturating_sub(*begin) >= LONG_BODY);
            covered(&Vec::from_iter(long), from, to)
        };
        let held = call.asked.names.iter().map(held).max().unwrap_or(0);
        if held < (to - from) / 2 {
            let text = format!(
                "was not served in {} ms, of which long bodies held its name for {} ms",
                (to - from) / 1_000_000,
                held / 1_000_000
            );
            verdicts.of_call(Breach::BusyInCalm, call, to, text);
        }
    }

    /// Checks retention: a name stays locked for its time after the grant, which follows the call and its predecessor's last poll.
    fn retention(&self, name: &str, bodies: &[&Call], verdicts: &mut Verdicts) {
        let mut last = 0;
        for pair in bodies.windows(2) {
            let [keeps, next] = pair else { continue };
            let granted = keeps.asked_at.max(last);
            last = last.max(keeps.held_until);
            let done = matches!(keeps.returned, Some((_, Outcome::Done)));
            let until = granted + ms(keeps.asked.min_hold);
            let crashed = self.pauses.ended(keeps.id.process).is_some_and(|end| end < until);
            let rewound = !self.removals.share_history(keeps, next);
            if keeps.asked.min_hold == 0 || !done || crashed || rewound || !keeps.is_exclusive() {
                continue;
            }
            let begin = began(next);
            if begin >= until {
                // The next call waits for the end of this retention too.
                last = last.max(until);
            } else if self.removals.explain(keeps, name, (begin, begin)).is_none() {
                let early = (until - begin) / 1_000_000;
                let text = format!("`{name}` was locked {early} ms too early");
                verdicts.of_name(Breach::RetentionCutShort, name, &[keeps, next], begin, text);
            }
        }
    }
}
