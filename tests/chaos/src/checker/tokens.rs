//! Judge of tokens and the register: tokens rise from holder to holder, the register refuses only late writes, groups are whole.

use super::Known;
use super::calls::{Call, CallId, began};
use super::verdicts::{Breach, Verdicts};
use crate::history::{Event, What};

pub(super) fn judge(known: &Known<'_>, verdicts: &mut Verdicts) {
    for (name, bodies) in &known.holders {
        known.rising(name, bodies, verdicts);
    }
    for call in known.calls.values() {
        groups(call, verdicts);
    }
    known.register(verdicts);
}

fn groups(call: &Call, verdicts: &mut Verdicts) {
    let Some(begun) = &call.begun else {
        return;
    };
    let names = call.asked.names.iter().map(String::as_str);
    let missing: Vec<_> = names.filter(|name| call.token(name).is_none()).collect();
    if !missing.is_empty() {
        let text = format!("its body began without {}", missing.join(", "));
        verdicts.of_call(Breach::GroupPartlyHeld, call, begun.at, text);
    }
}

impl Known<'_> {
    /// Compares each body with those before it: with all of them if it is exclusive, otherwise only with the exclusive ones.
    fn rising(&self, name: &str, bodies: &[&Call], verdicts: &mut Verdicts) {
        let mut of_all: Option<(i64, CallId)> = None;
        let mut of_exclusive: Option<(i64, CallId)> = None;
        let mut current = 0;
        for body in bodies {
            // A lock that its process may have kept from an earlier history is not compared.
            let Some(history) = self.removals.history(body) else {
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
            let (before, begin) =
                (if body.is_exclusive() { of_all } else { of_exclusive }, began(body));
            if let Some((earlier, of)) = before
                && token <= earlier
                // A process may hand over a deleted key once more before it knows.
                && self.removals.explain(body, name, (begin, begin)).is_none()
            {
                let text = format!("token {token} of `{name}` came after {earlier}");
                let names = [name.to_owned()];
                verdicts.breach(Breach::TokenNotRising, begin, &names, &[of, body.id], text);
            }
            of_all = of_all.max(Some((token, body.id)));
            if body.is_exclusive() {
                of_exclusive = of_exclusive.max(Some((token, body.id)));
            }
        }
    }

    /// Checks that a refused write came from a lost lock, or after a later holder had begun; that overlap is judged elsewhere.
    fn register(&self, verdicts: &mut Verdicts) {
        for Event { at, what } in self.events {
            let What::Written { process, call, name, token, accepted: false } = what else {
                continue;
            };
            verdicts.measured.refused_writes += 1;
            let id = CallId { process: *process, call: *call };
            let held = self.calls.get(&id).is_some_and(|call| call.held_until > *at);
            let is_later = |later: &Call| {
                let begin = began(later);
                let newer = later.token(name) > Some(*token);
                begin < *at && newer && !self.removals.rewound(begin, *at)
            };
            if held && !self.calls.values().any(is_later) {
                let text = format!(
                    "token {token} of `{name}` was refused, and its guard still said \"held\""
                );
                let names = std::slice::from_ref(name);
                verdicts.breach(Breach::HolderRefusedByTheRegister, *at, names, &[id], text);
            }
        }
    }
}
