//! Tokens and the register: tokens rise from holder to holder, the register refuses only the late, groups come whole.

use std::collections::{BTreeMap, BTreeSet};

use super::calls::{Call, CallId};
use super::exclusion::{began, by_name};
use super::removals::Removals;
use super::verdicts::{Breach, Verdicts};
use crate::history::{Event, What};

pub(super) fn judge(
    events: &[Event],
    calls: &BTreeMap<CallId, Call>,
    removals: &Removals<'_>,
    verdicts: &mut Verdicts,
) {
    for (name, bodies) in by_name(calls) {
        rising(name, &bodies, removals, verdicts);
    }
    for call in calls.values() {
        groups(call, verdicts);
    }
    register(events, calls, removals, verdicts);
}

/// Compares each body with those before it: with all of them if it is exclusive, else with the exclusive ones.
fn rising(name: &str, bodies: &[&Call], removals: &Removals<'_>, verdicts: &mut Verdicts) {
    let mut of_all: Option<(i64, CallId)> = None;
    let mut of_exclusive: Option<(i64, CallId)> = None;
    let mut current = 0;
    for body in bodies {
        // A lock whose process may have it from before is compared with none.
        let Some(history) = removals.history(body) else {
            continue;
        };
        // A new history of etcd has new tokens.
        if history != current {
            (of_all, of_exclusive) = (None, None);
            current = history;
        }
        let Some(token) = body.token(name) else {
            continue;
        };
        let before = if body.is_exclusive() { of_all } else { of_exclusive };
        if let Some((earlier, of)) = before
            && token <= earlier
            // A key that is gone is handed over once more before its process knows.
            && removals.explain(body, name, began(body), began(body)).is_none()
        {
            let text = format!("token {token} of `{name}` came after {earlier}");
            verdicts.breach(Breach::Token, began(body), &[name.to_owned()], &[of, body.id], text);
        }
        of_all = of_all.max(Some((token, body.id)));
        if body.is_exclusive() {
            of_exclusive = of_exclusive.max(Some((token, body.id)));
        }
    }
}

fn groups(call: &Call, verdicts: &mut Verdicts) {
    let Some(begun) = &call.begun else {
        return;
    };
    let held: BTreeSet<&str> = begun.tokens.iter().map(|(name, _)| name.as_str()).collect();
    let missing: Vec<&str> =
        call.asked.names.iter().map(String::as_str).filter(|name| !held.contains(name)).collect();
    if !missing.is_empty() {
        let text = format!("its body began without {}", missing.join(", "));
        verdicts.breach(Breach::Group, begun.at, &call.asked.names, &[call.id], text);
    }
}

/// A refused write is right if its lock was lost, or a later holder had begun: that one's own overlap is judged elsewhere.
fn register(
    events: &[Event],
    calls: &BTreeMap<CallId, Call>,
    removals: &Removals<'_>,
    verdicts: &mut Verdicts,
) {
    for Event { at, what } in events {
        let What::Written { process, call, name, token, accepted: false } = what else {
            continue;
        };
        verdicts.refused_writes += 1;
        let id = CallId { process: *process, call: *call };
        let held = calls.get(&id).is_some_and(|call| call.held_until > *at);
        let later = || {
            let mut calls = calls.values();
            calls.any(|later| {
                let begin = began(later);
                begin < *at && later.token(name) > Some(*token) && !removals.rewound(begin, *at)
            })
        };
        if held && !later() {
            let text =
                format!("token {token} of `{name}` was refused, and its guard still said \"held\"");
            verdicts.breach(Breach::Register, *at, std::slice::from_ref(name), &[id], text);
        }
    }
}
