//! Bounds of calls: answers come within the wait and three seconds, and only with errors that faults explain.

use std::collections::BTreeMap;

use super::calls::{Call, CallId};
use super::exclusion::{began, by_name};
use super::faults::Fault;
use super::pauses::Pauses;
use super::verdicts::{Breach, Verdicts};
use crate::clock::ms;
use crate::history::{Ending, Outcome};

/// How much longer than its wait a call may take.
const BEYOND: u64 = ms(3_000);
/// The connect time-out in milliseconds, which bounds every call while etcd cannot be reached.
const CONNECTS: u64 = 5_000;
/// How long a call may take to return once its body has ended: a release is awaited for two seconds.
const RELEASE: u64 = ms(5_000);
/// How long after a fault etcd may still be named as the cause of an error.
const EXPLAINS: u64 = ms(15_000);
/// A call that waits for so many milliseconds has an answer by then.
const PATIENT: u64 = 5_000;

pub(super) fn judge(
    calls: &BTreeMap<CallId, Call>,
    faults: &[Fault],
    pauses: &Pauses,
    verdicts: &mut Verdicts,
) {
    for call in calls.values() {
        waits(call, pauses, verdicts);
        errors(call, faults, pauses, verdicts);
    }
    for (name, bodies) in by_name(calls) {
        retention(name, &bodies, faults, pauses, verdicts);
    }
}

fn waits(call: &Call, pauses: &Pauses, verdicts: &mut Verdicts) {
    let process = call.id.process;
    let returned = call.returned.as_ref().map_or(pauses.over(), |(at, _)| *at);
    if let Some(wait) = call.asked.wait {
        // A single try has no wait of its own: it is refused once etcd cannot be reached for the connect time-out.
        let wait = if wait == 0 { CONNECTS } else { wait };
        let answered = returned.min(began(call));
        let took = pauses.ran(process, call.asked_at, answered);
        if took > ms(wait) + BEYOND {
            let text = format!(
                "waited for {} ms with a bound of {wait} ms",
                took / 1_000_000
            );
            verdicts.breach(Breach::Bound, answered, &call.asked.names, &[call.id], text);
        }
    }
    // A body that goes on without its caller is not returned from.
    if let Some((ended, Ending::Done)) = call.ended {
        let took = pauses.ran(process, ended, returned);
        if took > RELEASE {
            let text = format!("returned {} ms after its body", took / 1_000_000);
            verdicts.breach(Breach::Bound, returned, &call.asked.names, &[call.id], text);
        }
    }
}

fn errors(call: &Call, faults: &[Fault], pauses: &Pauses, verdicts: &mut Verdicts) {
    let Some((at, result)) = &call.returned else {
        return;
    };
    let explained = || {
        let mut faults = faults.iter();
        faults.any(|fault| fault.disturbs(call.asked_at, *at, EXPLAINS))
            || pauses.stalled(call.asked_at.saturating_sub(EXPLAINS), *at) > 0
    };
    // A call that waits for some milliseconds may be over before etcd has answered at all.
    let patient = call
        .asked
        .wait
        .is_none_or(|wait| wait == 0 || wait >= PATIENT);
    let text = match result {
        Outcome::Wrong(error) => error.clone(),
        Outcome::Lost(cause) if !explained() => format!("lost without a fault: {cause}"),
        Outcome::Refused(error) if patient && !explained() => {
            format!("refused without a fault: {error}")
        }
        _ => return,
    };
    verdicts.breach(Breach::Error, *at, &call.asked.names, &[call.id], text);
}

/// A name stays locked from the grant on, which is not before the call was asked, nor before its predecessor's last poll.
fn retention(
    name: &str,
    bodies: &[&Call],
    faults: &[Fault],
    pauses: &Pauses,
    verdicts: &mut Verdicts,
) {
    let mut last = 0;
    for pair in bodies.windows(2) {
        let [keeps, next] = pair else { continue };
        let granted = keeps.asked_at.max(last);
        last = last.max(keeps.held_until);
        let done = matches!(keeps.returned, Some((_, Outcome::Done)));
        let until = granted + ms(keeps.asked.at_least);
        let crashed = pauses
            .ended(keeps.id.process)
            .is_some_and(|end| end < until);
        let rewound = faults.iter().any(|fault| fault.rewinds(granted, until));
        if keeps.asked.at_least == 0 || !done || crashed || rewound || !keeps.is_exclusive() {
            continue;
        }
        if began(next) < until {
            let text = format!(
                "`{name}` was locked {} ms too early",
                (until - began(next)) / 1_000_000
            );
            verdicts.breach(
                Breach::Retention,
                began(next),
                &[name.to_owned()],
                &[keeps.id, next.id],
                text,
            );
        }
    }
}
