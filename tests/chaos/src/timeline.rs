//! Timeline of a violation: the calls that make it, one line each, and what happened to workers and etcd meanwhile.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::checker::calls::{self, Call, CallId};
use crate::checker::{Violation, judge};
use crate::clock::ms;
use crate::history::{Event, Outcome, Said, What};
use crate::options::word;

/// How long before the first call of a violation faults are shown.
const BEFORE: u64 = ms(20_000);

/// Shortens a history to the calls without which it would not break the same promise in the same way.
pub(crate) fn shortened(events: &[Event], violation: &Violation) -> Vec<Event> {
    let breaks = |events: &[Event]| {
        let violations = judge(events).violations;
        violations.iter().any(|it| it.breach == violation.breach && it.text == violation.text)
    };
    // First all calls for other names at once, then others of these names in ever smaller parts.
    let all = calls::of(events);
    let of_names = |call: &Call| call.asked.names.iter().any(|name| violation.names.contains(name));
    let near = |call: &Call| call.asked_at <= violation.at;
    let mut kept: BTreeSet<CallId> = all
        .values()
        .filter(|call| violation.calls.contains(&call.id) || (of_names(call) && near(call)))
        .map(|call| call.id)
        .collect();
    let only = |kept: &BTreeSet<CallId>| -> Vec<Event> {
        events.iter().filter(|event| concerns(event, kept)).cloned().collect()
    };
    let certain: BTreeSet<CallId> = violation.calls.iter().copied().collect();
    if breaks(&only(&certain)) {
        return only(&certain);
    }
    if !breaks(&only(&kept)) {
        return events.to_vec();
    }
    let mut step = kept.len().div_ceil(2);
    while step > 0 {
        for part in Vec::from_iter(kept.iter().copied()).chunks(step) {
            let mut fewer = kept.clone();
            part.iter().for_each(|id| _ = fewer.remove(id));
            if breaks(&only(&fewer)) {
                kept = fewer;
            }
        }
        step = if step == 1 { 0 } else { step.div_ceil(2) };
    }
    only(&kept)
}

/// Tells whether an event is of one of these calls, or of no call.
fn concerns(event: &Event, kept: &BTreeSet<CallId>) -> bool {
    let of = match &event.what {
        What::Said { process, said } => match said {
            Said::Asked { call, .. }
            | Said::Begun { call, .. }
            | Said::Polled { call, .. }
            | Said::Write { call, .. }
            | Said::Ended { call, .. }
            | Said::Returned { call, .. } => Some((*process, *call)),
            Said::Logged { .. } | Said::Stalled { .. } | Said::Idle | Said::Drained { .. } => None,
        },
        What::Written { process, call, .. } => Some((*process, *call)),
        _ => None,
    };
    of.is_none_or(|(process, call)| kept.contains(&CallId { process, call }))
}

/// Writes a violation as one line.
pub(crate) fn summary(events: &[Event], violation: &Violation) -> String {
    let start = events.first().map_or(0, |event| event.at);
    let calls: Vec<String> = violation.calls.iter().map(CallId::to_string).collect();
    format!(
        "{:9.3} {}: {}; {} {}",
        violation.at.saturating_sub(start) as f64 / 1e9,
        word(violation.breach),
        violation.text,
        violation.names.join(", "),
        calls.join(", ")
    )
}

/// Writes a shortened history as lines for a person. Times are in seconds since the run began.
pub(crate) fn lines(events: &[Event], violation: &Violation) -> String {
    let start = events.first().map_or(0, |event| event.at);
    let seconds = |at: u64| at.saturating_sub(start) as f64 / 1e9;
    let calls = calls::of(events);
    let first = calls.values().map(|call| call.asked_at).min().unwrap_or(violation.at);
    let ends = calls.values().filter_map(|call| call.returned.as_ref().map(|(at, _)| *at));
    let last = ends.max().unwrap_or(violation.at).max(violation.at);
    let mut lines: Vec<(u64, String)> = Vec::new();
    for Event { at, what } in events {
        if *at + BEFORE < first || *at > last {
            continue;
        }
        let line = match what {
            What::Started { process, slot } => {
                format!("         worker {slot} is started as process {process}")
            }
            What::Stopped { process } => format!("         process {process} is stopped"),
            What::Continued { process } => format!("         process {process} goes on"),
            What::Killed { process } => format!("         process {process} is killed"),
            What::Exited { process, .. } => format!("         process {process} ends"),
            What::FaultBegun { fault, kind, target, .. } => {
                format!("  fault {fault}: {}, {target}", word(*kind))
            }
            What::FaultMissed { fault } => format!("  fault {fault} has found nothing"),
            What::Rewound { .. } => "  etcd loses what it knew".to_owned(),
            What::FaultHealed { fault } => format!("  fault {fault} is healed"),
            What::Said { process, said: Said::Logged { text, .. } } if *at + ms(5_000) > first => {
                format!(
                    "         process {process} logs: {}",
                    text.chars().take(110).collect::<String>()
                )
            }
            What::Stalled { since } => {
                format!("         the machine stood still for {} ms", (at - since) / 1_000_000)
            }
            What::Silent { since } => {
                format!("         no member of etcd answered for {} ms", (at - since) / 1_000_000)
            }
            What::Said { process, said: Said::Stalled { since } } => format!(
                "         process {process} did not run for {} ms",
                (at - since) / 1_000_000
            ),
            What::Written { process, call, name, token, accepted: false } => {
                format!("         {process}.{call} writes {token} to `{name}`: refused")
            }
            _ => continue,
        };
        lines.push((*at, line));
    }
    lines.extend(calls.values().map(|call| (call.asked_at, line(call, seconds))));
    lines.push((violation.at, format!("  >>>>>> {}: {}", word(violation.breach), violation.text)));
    lines.sort_by_key(|(at, _)| *at);
    let mut text = String::new();
    for (at, line) in lines {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{:>9.3} {line}", seconds(at));
    }
    text
}

/// One call, from its begin to its end.
fn line(call: &Call, seconds: impl Fn(u64) -> f64) -> String {
    let asked = &call.asked;
    let mut line = format!(
        "  call {} asks for {} ({}, {:?})",
        call.id,
        asked.names.join(", "),
        asked.kind,
        asked.mode
    );
    if let Some(begun) = &call.begun {
        let tokens: Vec<String> = begun.tokens.iter().map(|(_, token)| token.to_string()).collect();
        let _ = write!(
            line,
            "; body from {:.3}, held until {:.3}, token {}",
            seconds(begun.at),
            seconds(call.held_until),
            tokens.join(", ")
        );
    }
    for late in &call.late {
        let _ = write!(line, "; polled though lost at {:.3}", seconds(*late));
    }
    if let Some((at, result)) = &call.returned {
        let result = match result {
            Outcome::Refused(error) => {
                format!("refused: {}", error.chars().take(80).collect::<String>())
            }
            other => format!("{other:?}"),
        };
        let _ = write!(line, "; returns at {:.3}: {result}", seconds(*at));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checker::tests::history;

    #[test]
    fn timeline_has_both_calls_and_the_fault_between() {
        let others = (0..50).map(|n| format!("{}-{} holds 0.{n};", 1_000 + n * 20, 1_010 + n * 20));
        let events = history(&format!(
            "{} 3000-3900 holds 1.1; 3100-3200 fault leader_frozen; 3500-3600 holds 2.1",
            others.collect::<String>()
        ));
        let violation = judge(&events).violations.remove(0);
        let text = lines(&shortened(&events, &violation), &violation);
        let of = |word: &str| text.lines().filter(|line| line.contains(word)).count();
        assert_eq!(of("  call "), 2, "{text}");
        assert_eq!(of("leader frozen"), 1, "{text}");
        assert_eq!(of(">>>>>>"), 1, "{text}");
    }
}
