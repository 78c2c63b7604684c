//! Refusals: whether a name that a core reports as taken is taken, as far as its process could know.

use std::cmp::Reverse;

use super::bench::Bench;
use super::clients::{Call, Stage};
use super::etcd::contends;
use super::violation::must;
use crate::world::{CallId, Revision};
use etcd_locked_core::{Key, Kv, Owner, Refused, Seat};

impl Bench {
    /// Checks a refusal. A call of its own process, or a key of another one, may refuse a single try: the call must have existed
    /// when the try came, or the key at the revision of a response that the core has received since then, or later.
    pub(super) fn check_refusal(&self, id: CallId, why: &Refused) {
        let call = &self.calls[&id];
        let (name, owner) = match why {
            Refused::Held { name, owner } => {
                let taken = self.now < self.was_reset
                    || call.names.iter().any(|name| self.is_taken(call, name));
                must!(Truth, taken, "call {id} tries once for {:?}: {why:?}", call.names);
                (*name, owner)
            }
            Refused::Timeout { name, owner, .. } => (*name, owner),
            _ => return,
        };
        let Some(of) = owner.as_ref().and_then(call_of) else { return };
        let wants = self.calls[&of].names.contains(&call.names[name]);
        must!(Truth, wants && of != id, "{:?} is reported as held by call {of}", call.names[name]);
    }

    fn is_taken(&self, call: &Call, name: &Key) -> bool {
        let before = |it: &&Call| {
            let here = it.process == call.process && it.names.contains(name);
            here && it.known.is_some() && it.known < call.known
        };
        let mut before: Vec<&Call> = self.calls.values().filter(before).collect();
        before.sort_by_key(|it| Reverse(it.known));
        let met = |it: &Call, known| it.left.is_none_or(|at| Some(at) >= known);
        // Behind a call of its own kind it waits for the same calls: those known when the first of them came.
        let first =
            before.iter().fold(call, |first, it| if met(it, first.known) { it } else { first });
        // But groups do not wait together, and any group counts against the call behind it.
        let groups = |it: &Call| it.names.len().max(call.names.len()) > 1;
        let waits = |it: &Call| !matches!(it.stage, Stage::Holding(_));
        let calls = before.iter().filter(|it| met(it, call.known));
        let calls = calls.map(|it| it.mode != call.mode || (groups(it) && waits(it)));
        let heard = &self.processes[call.process].heard[first.heard..];
        let shown = heard.iter().min().zip(heard.iter().max());
        let counts = |kv: &Kv, gone: Revision| {
            // The key of a nested call counts even if that call came later, because it may overtake the try at etcd.
            let nested = matches!(Seat::of_key(&kv.key), Seat::Nested { .. });
            let own = self.process_of(kv) == Some(call.process) && !nested;
            let shown =
                shown.is_some_and(|(from, to)| gone > *from && kv.create_revision.get() <= *to);
            shown && !own && contends(name, &kv.key)
        };
        let gone = self.store.gone.iter().filter(|(kv, at)| counts(kv, *at)).map(|(kv, _)| kv);
        let keys = self.store.kvs().filter(|kv| counts(kv, Revision::MAX)).chain(gone);
        let keys = keys.map(|kv| call.mode.is_excluded_by(Seat::of_key(&kv.key)));
        let others: Vec<bool> = calls.chain(keys).collect();
        let room = call.mode.room().unwrap_or(usize::MAX);
        others.len() > room || others.contains(&true)
    }
}

/// Returns the call of a record.
fn call_of(owner: &Owner) -> Option<CallId> {
    let digits = owner.record.strip_prefix(b"{\"call\":")?;
    let digits = digits.split(|byte| !byte.is_ascii_digit()).next()?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}
