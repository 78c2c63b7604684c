//! Graph: which names a call of this process depends on, walked over its queues and holders (rule P38).
//!
//! A waiting call depends on each of its names. A name leads to the tasks of its holders in this process, to the other names of
//! groups that are ahead in its queue, and, across processes, to the contender of it that waits. The walk visits each name once.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::ids::{CallId, ContenderId, Incarnation, Name};
use crate::steps;

/// What a walk asks of the process.
pub trait Waits {
    /// The names a waiting call wants; none if it does not wait, or if it waits for any of several permits.
    fn names(&self, call: CallId) -> Vec<Name>;
    /// The calls of this process that hold a name and exclude a waiter, or one that is ahead of it: each behind the one it excludes.
    fn holders(&self, name: &Name, waiter: CallId) -> Vec<(CallId, CallId)>;
    /// The waiting calls that a holder's task has made.
    fn inner(&self, holder: CallId) -> Vec<CallId>;
    /// The groups that are ahead of a waiter.
    fn groups_ahead(&self, name: &Name, waiter: CallId) -> Vec<CallId>;
    /// The key of this process that waits for a name, and has done so for a while.
    fn stalled(&self, name: &Name) -> Option<(ContenderId, Incarnation)>;
}

/// What a walk has found.
#[derive(Debug)]
pub enum Walked {
    /// The calls of a cycle inside the process, in order: the last belongs to the task of the call it began with.
    Cycle(Vec<CallId>),
    /// The waiting keys that the call depends on.
    Depends(BTreeMap<ContenderId, Incarnation>),
}

/// Walks from a waiting call; `held`: the calls whose locks its task holds.
pub fn walk(waits: &impl Waits, call: CallId, held: &[CallId]) -> Walked {
    let mut targets = BTreeMap::new();
    let mut seen: BTreeSet<Name> = BTreeSet::new();
    // From which call each call was reached.
    let mut from: BTreeMap<CallId, CallId> = BTreeMap::new();
    let mut next: VecDeque<(Name, CallId)> = waits
        .names(call)
        .into_iter()
        .map(|name| (name, call))
        .collect();
    while let Some((name, waiter)) = next.pop_front() {
        steps::step();
        if !seen.insert(name.clone()) {
            continue;
        }
        targets.extend(waits.stalled(&name));
        let mut reached: Vec<(CallId, CallId)> = Vec::new();
        for group in waits.groups_ahead(&name, waiter) {
            reached.push((group, waiter));
        }
        for (blocked, holder) in waits.holders(&name, waiter) {
            steps::step();
            if blocked != waiter && blocked != call {
                from.entry(blocked).or_insert(waiter);
            }
            if holder != call {
                from.entry(holder).or_insert(blocked);
            }
            if held.contains(&holder) {
                return Walked::Cycle(path(&from, call, holder));
            }
            reached.extend(waits.inner(holder).into_iter().map(|inner| (inner, holder)));
        }
        for (of, by) in reached {
            steps::step();
            if of != call && !from.contains_key(&of) {
                from.insert(of, by);
            }
            next.extend(waits.names(of).into_iter().map(|name| (name, of)));
        }
    }
    Walked::Depends(targets)
}

/// The calls from one to another, without the first.
fn path(from: &BTreeMap<CallId, CallId>, first: CallId, last: CallId) -> Vec<CallId> {
    let mut path = vec![last];
    let mut at = last;
    while let Some(before) = from
        .get(&at)
        .copied()
        .filter(|before| *before != first && !path.contains(before))
    {
        path.push(before);
        at = before;
    }
    path.reverse();
    path
}
