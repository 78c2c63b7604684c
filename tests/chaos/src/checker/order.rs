//! Judge of order in calm: calls of one process are served in the order in which they were made, and so are first calls of several
//! processes. It compares only exclusive calls for one name with the same TTL, which wait as long as they must.

use std::collections::BTreeMap;

use super::Known;
use super::calls::{Call, CallId, began};
use super::verdicts::{Breach, Verdicts};
use crate::clock::ms;
use crate::history::Outcome;

/// A call of the same process made this much later is behind in the wait queue: longer than a stall that is not recorded.
const SAME_PROCESS: u64 = ms(250);
/// Without a fault, the contender of a process's first call is in etcd within this time.
const ANY_PROCESS: u64 = ms(2_000);
/// How long a fault matters after it is healed: retries, and a lease of the longest TTL.
const AFTERMATH: u64 = ms(11_000);

pub(super) fn judge(known: &Known<'_>, verdicts: &mut Verdicts) {
    let mut names: BTreeMap<&str, Vec<&Call>> = BTreeMap::new();
    for call in known.calls.values().filter(|call| call.is_exclusive()) {
        for name in &call.asked.names {
            names.entry(name).or_default().push(call);
        }
    }
    for (name, mut asked) in names {
        asked.sort_by_key(|call| call.asked_at);
        of_name(name, &asked, known, verdicts);
    }
}

fn of_name(name: &str, asked: &[&Call], known: &Known<'_>, verdicts: &mut Verdicts) {
    let contended = contended(asked);
    for (at, first) in asked.iter().enumerate() {
        let Some(served) = waited_until(first) else {
            continue;
        };
        let alone = first.asked.names.len() == 1 && first.asked.wait != Some(0);
        if !alone || !known.is_calm(first, (first.asked_at, served), AFTERMATH) {
            continue;
        }
        for later in asked[at + 1..].iter().take_while(|later| later.asked_at < served) {
            let comparable = later.asked.names.len() == 1
                && later.asked.ttl == first.asked.ttl
                && later.asked.wait != Some(0);
            let same = later.id.process == first.id.process;
            let margin = if same { SAME_PROCESS } else { ANY_PROCESS };
            let margin = margin + known.pauses.stalled(first.asked_at, later.asked_at);
            // For two processes, it compares the places of their contenders, which may be older than these calls.
            let since = |call: &Call| contended.get(&call.id).copied().unwrap_or(call.asked_at);
            let (of_first, of_later) = match same {
                true => (first.asked_at, later.asked_at),
                false => (since(first), since(later)),
            };
            if !comparable || of_first < first.asked_at || of_later < of_first + margin {
                continue;
            }
            verdicts.measured.ordered += 1;
            if began(later) < served {
                let text = format!(
                    "asked {} ms later for `{name}` and served {} ms earlier",
                    (later.asked_at - first.asked_at) / 1_000_000,
                    (served - began(later)) / 1_000_000
                );
                verdicts.of_name(Breach::OvertakenInCalm, name, &[first, later], served, text);
            }
        }
    }
}

/// Returns since when, at the earliest, each call's process has had a contender: since then it always had a call for the name.
fn contended(asked: &[&Call]) -> BTreeMap<CallId, u64> {
    // The start and the end of this time.
    let mut processes: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    let since = |call: &&Call| {
        let (since, until) = processes.entry(call.id.process).or_default();
        // A key may linger for the next call.
        if *until == 0 || call.asked_at > until.saturating_add(SAME_PROCESS) {
            *since = call.asked_at;
        }
        let returned = call.returned.as_ref().map_or(u64::MAX, |(at, _)| *at);
        let ended = call.ended.map_or(0, |(at, _)| at);
        *until = returned.max(ended).max(*until);
        (call.id, *since)
    };
    asked.iter().map(since).collect()
}

/// Returns when a call was served, or gave up after its wait; until then it was in the wait queue.
fn waited_until(call: &Call) -> Option<u64> {
    match (&call.returned, call.asked.wait) {
        _ if call.was_held() => Some(began(call)),
        // Its wait did not begin before the call was made.
        (Some((at, Outcome::Busy)), Some(wait)) => Some(*at.min(&(call.asked_at + ms(wait)))),
        _ => None,
    }
}
