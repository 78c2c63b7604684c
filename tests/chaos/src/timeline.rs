//! Timeline of a violation: the calls that make it, one line each, and what happened to workers and etcd meanwhile.

use std::fmt::Write as _;

use crate::checker::Violation;
use crate::checker::calls::{self, Call, CallId};
use crate::clock::ms;
use crate::history::{Event, Said, What};
use crate::options::word;

/// How long before the first call of a violation faults are shown.
const BEFORE: u64 = ms(20_000);

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

/// Writes a violation as lines for a person. Times are in seconds since the run began.
pub(crate) fn lines(events: &[Event], violation: &Violation) -> String {
    let start = events.first().map_or(0, |event| event.at);
    let seconds = |at: u64| at.saturating_sub(start) as f64 / 1e9;
    let mut calls = calls::of(events);
    calls.retain(|id, _| violation.calls.contains(id));
    let first = calls.values().map(|call| call.asked_at).min().unwrap_or(violation.at);
    let ends = calls.values().filter_map(|call| call.returned.as_ref().map(|(at, _)| *at));
    let last = ends.max().unwrap_or(violation.at).max(violation.at);
    let mut lines: Vec<(u64, String)> = Vec::new();
    for Event { at, what } in events {
        if *at + BEFORE < first || *at > last {
            continue;
        }
        let lasted = |since: &u64| (at - since) / 1_000_000;
        let line = match what {
            What::Started { process, slot } => {
                format!("worker {slot} is started as process {process}")
            }
            What::Stopped { process } => format!("process {process} is stopped"),
            What::Continued { process } => format!("process {process} goes on"),
            What::Killed { process } => format!("process {process} is killed"),
            What::Exited { process, .. } => format!("process {process} ends"),
            What::FaultBegun { fault, kind, target, .. } => {
                format!("fault {fault}: {kind}, {target}")
            }
            What::FaultMissed { fault } => format!("fault {fault} has found nothing"),
            What::Rewound { .. } => "etcd loses what it knew".to_owned(),
            What::FaultHealed { fault } => format!("fault {fault} is healed"),
            What::Said { process, said: Said::Logged { text, .. } } if *at + ms(5_000) > first => {
                format!("process {process} logs: {text:.110}")
            }
            What::Stalled { since } => {
                format!("the machine stood still for {} ms", lasted(since))
            }
            What::Silent { since } => {
                format!("no member of etcd answered for {} ms", lasted(since))
            }
            What::Said { process, said: Said::Stalled { since } } => {
                format!("process {process} did not run for {} ms", lasted(since))
            }
            What::Written { process, call, name, token, accepted: false } => {
                format!("{process}.{call} writes {token} to `{name}`: refused")
            }
            _ => continue,
        };
        lines.push((*at, format!("    {line}")));
    }
    lines.extend(calls.values().map(|call| (call.asked_at, line(call, seconds))));
    lines.push((violation.at, format!(">>> {}: {}", word(violation.breach), violation.text)));
    lines.sort_by_key(|(at, _)| *at);
    let lines = lines.iter().map(|(at, line)| format!("{:>9.3} {line}\n", seconds(*at)));
    lines.collect()
}

/// One call, from its begin to its end.
fn line(call: &Call, seconds: impl Fn(u64) -> f64) -> String {
    let asked = &call.asked;
    let names = asked.names.join(", ");
    let mut line =
        format!("  call {} asks for {names} ({}, {:?})", call.id, asked.kind, asked.mode);
    // Writing to a string does not fail.
    if let Some(begun) = &call.begun {
        let (from, until) = (seconds(begun.at), seconds(call.held_until));
        let tokens = &begun.tokens;
        let _ = write!(line, "; body from {from:.3}, held until {until:.3}, tokens {tokens:?}");
    }
    for late in &call.late {
        let _ = write!(line, "; polled though lost at {:.3}", seconds(*late));
    }
    if let Some((at, result)) = &call.returned {
        let _ = write!(line, "; returns at {:.3}: {result:?}", seconds(*at));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checker::judge;
    use crate::checker::tests::history;

    #[test]
    fn timeline_has_both_calls_and_the_fault_between() {
        let others = (0..50).map(|n| format!("{}-{} holds 0.{n};", 1_000 + n * 20, 1_010 + n * 20));
        let events = history(&format!(
            "{} 3000-3900 holds 1.1; 3100-3200 fault leader_frozen; 3500-3600 holds 2.1",
            others.collect::<String>()
        ));
        let text = lines(&events, &judge(&events).violations[0]);
        let of = |word: &str| text.lines().filter(|line| line.contains(word)).count();
        assert_eq!([of("  call "), of("leader frozen"), of(">>>")], [2, 1, 1], "{text}");
    }
}
