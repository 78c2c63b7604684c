//! Edges: small keys that tell other processes what the task of a holder waits for (rule P38).
//!
//! `<prefix>%s/w/<held key>%/<waiting key>%<its create revision>` hangs on the held key's lease. Its value is the create revision of
//! the held key. An edge is void if one of these incarnations is gone, or the waiting key has been admitted, so a grant has nothing
//! to undo. Only this process writes its edges. Each write compares a session key where there is one, so that a barrier settles
//! one that had no answer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::ids::{CallId, ContenderId, Incarnation, Key, Revision, SessionId, edges_of};
use crate::steps::step;
use crate::transactions::Outcome;

/// How long a call, and the contender it depends on, must have waited before it does anything about cycles; and how long between
/// two steps of that.
pub const STEP: Duration = Duration::from_secs(1);

/// Writes that may be under way at a time.
const WINDOW: usize = 4;

/// Edges that one call publishes at most.
const MOST: usize = 64;

/// From a held key to a waiting key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Edge {
    pub held: Incarnation,
    pub waits: Incarnation,
}

impl Edge {
    /// Its key.
    pub fn key(&self, root: &str) -> Key {
        let (waits, created) = &self.waits;
        format!("{}{waits}%{created}", edges_of(root, &self.held.0)).into()
    }

    /// Its value.
    pub fn value(&self) -> Arc<[u8]> {
        self.held.1.to_string().into_bytes().into()
    }

    /// Reads an edge of a held key; `None`: it is not one of this incarnation.
    pub fn parse(root: &str, held: &Incarnation, key: &[u8], value: &[u8]) -> Option<Self> {
        let revision = |text: &str| Revision::new(text.parse().ok()?);
        let key = std::str::from_utf8(key).ok()?;
        let waits = key.strip_prefix(&*edges_of(root, &held.0))?;
        let (waits, created) = waits.rsplit_once('%')?;
        let edge = Self { held: held.clone(), waits: (waits.into(), revision(created)?) };
        (revision(std::str::from_utf8(value).ok()?)? == held.1).then_some(edge)
    }
}

/// Whether an edge is at etcd, as far as this process knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Absent,
    Present,
    /// A write had no answer. The next one waits until a barrier has shown that this one can no longer apply.
    Unsure,
}

/// A write of an edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Write {
    Put,
    Delete,
}

#[derive(Debug)]
struct Kept {
    /// The contender of the held key, and its session.
    contender: ContenderId,
    session: SessionId,
    /// The nested calls that depend on the waiting key.
    wanted_by: BTreeSet<CallId>,
    /// The leaving calls that it delays until it is deleted, or wanted again.
    delays: BTreeSet<CallId>,
    state: State,
    under_way: Option<Write>,
}

impl Kept {
    /// The write that makes it what it should be.
    fn due(&self) -> Option<Write> {
        match (self.state, self.wanted_by.is_empty()) {
            _ if self.under_way.is_some() => None,
            (State::Present, false) | (State::Absent, true) => None,
            (State::Absent | State::Unsure, false) => Some(Write::Put),
            (State::Present | State::Unsure, true) => Some(Write::Delete),
        }
    }

    fn is_over(&self) -> bool {
        self.state == State::Absent && self.wanted_by.is_empty() && self.under_way.is_none()
    }
}

/// The edges of this process.
#[derive(Debug, Default)]
pub struct Edges {
    all: BTreeMap<Edge, Kept>,
    by_call: BTreeMap<CallId, BTreeSet<Edge>>,
    by_contender: BTreeMap<ContenderId, BTreeSet<Edge>>,
    /// Edges whose write is to be sent.
    due: BTreeSet<Edge>,
    /// Those whose deletion etcd has refused: it is sent again slowly (rule P34).
    refused: Vec<Edge>,
    /// Calls whose wait is over, each with the edges that must be gone first; and those of them for which none is left.
    leaving: BTreeMap<CallId, BTreeSet<Edge>>,
    cleared: Vec<CallId>,
    under_way: usize,
}

impl Edges {
    /// The task of a nested call depends on just these; of very many some are published.
    pub fn claim(&mut self, call: CallId, wanted: BTreeMap<Edge, (ContenderId, SessionId)>) {
        let wanted: BTreeMap<_, _> = wanted.into_iter().take(MOST).collect();
        for edge in self.by_call.remove(&call).unwrap_or_default() {
            if let Some(kept) = self.all.get_mut(&edge)
                && !wanted.contains_key(&edge)
            {
                kept.wanted_by.remove(&call);
                self.review(&edge);
            }
        }
        for (edge, (contender, session)) in wanted {
            step();
            let kept = self.all.entry(edge.clone()).or_insert_with(|| Kept {
                contender,
                session,
                wanted_by: BTreeSet::new(),
                delays: BTreeSet::new(),
                state: State::Absent,
                under_way: None,
            });
            kept.wanted_by.insert(call);
            let delays = std::mem::take(&mut kept.delays);
            self.clear(&edge, delays);
            self.review(&edge);
            let of_contender = self.by_contender.entry(contender).or_default();
            of_contender.insert(edge.clone());
            self.by_call.entry(call).or_default().insert(edge);
        }
    }

    /// A call does not wait any more.
    pub fn release(&mut self, call: CallId) {
        self.leaving.remove(&call);
        if self.by_call.contains_key(&call) {
            self.claim(call, BTreeMap::new());
        }
    }

    /// A call's wait is over, and from now on no walk follows it. The edges of these contenders may rest on it, those that are being
    /// deleted too, and are to be claimed anew. False if there are none.
    pub fn leave(&mut self, call: CallId, held: impl Iterator<Item = ContenderId>) -> bool {
        let edges = held.filter_map(|id| self.by_contender.get(&id));
        let edges: BTreeSet<Edge> = edges.flatten().cloned().collect();
        let leaves = !edges.is_empty();
        if leaves {
            self.leaving.insert(call, edges);
        }
        leaves
    }

    /// Whether a call's wait is over but for its edges.
    pub fn is_leaving(&self, call: CallId) -> bool {
        self.leaving.contains_key(&call)
    }

    /// Of the edges of a leaving call, those that no call wants any more have to be deleted before its caller, and so other processes,
    /// may learn that its wait is over. False if there are none.
    pub fn must_clear(&mut self, call: CallId) -> bool {
        let Some(edges) = self.leaving.get_mut(&call) else {
            return false;
        };
        edges.retain(|edge| {
            let kept = self.all.get_mut(edge);
            let kept = kept.filter(|kept| kept.wanted_by.is_empty());
            kept.is_some_and(|kept| kept.delays.insert(call))
        });
        !edges.is_empty()
    }

    /// An edge is deleted, or wanted again: these calls do not wait for that any more.
    fn clear(&mut self, edge: &Edge, delays: BTreeSet<CallId>) {
        for call in delays {
            step();
            if let Some(edges) = self.leaving.get_mut(&call) {
                edges.remove(edge);
                if edges.is_empty() {
                    self.cleared.push(call);
                }
            }
        }
    }

    /// The leaving calls whose edges have gone since this was asked last.
    pub fn cleared(&mut self) -> Vec<CallId> {
        std::mem::take(&mut self.cleared)
    }

    /// Sees whether an edge is to be written, or forgotten.
    fn review(&mut self, edge: &Edge) {
        let Some(kept) = self.all.get(edge) else {
            return;
        };
        match kept.due() {
            Some(_) => drop(self.due.insert(edge.clone())),
            None if kept.is_over() => self.remove(edge),
            None => drop(self.due.remove(edge)),
        }
    }

    fn remove(&mut self, edge: &Edge) {
        self.due.remove(edge);
        let Some(kept) = self.all.remove(edge) else {
            return;
        };
        if let Some(edges) = self.by_contender.get_mut(&kept.contender) {
            edges.remove(edge);
            if edges.is_empty() {
                self.by_contender.remove(&kept.contender);
            }
        }
        self.clear(edge, kept.delays);
    }

    /// The next write under one of the sessions that take edges, if one may be sent.
    pub fn next_write(
        &mut self,
        takes: impl Fn(SessionId) -> bool,
    ) -> Option<(Edge, SessionId, Write)> {
        if self.under_way >= WINDOW {
            return None;
        }
        let may_go = |edge: &&Edge| {
            let kept = self.all.get(*edge);
            kept.is_some_and(|kept| takes(kept.session))
        };
        let edge = self.due.iter().find(may_go)?.clone();
        let kept = self.all.get(&edge)?;
        let (session, write) = (kept.session, kept.due()?);
        self.begin(std::slice::from_ref(&edge), write);
        Some((edge, session, write))
    }

    /// A write of these edges is sent.
    pub fn begin(&mut self, edges: &[Edge], write: Write) {
        self.under_way += edges.len();
        for edge in edges {
            self.due.remove(edge);
            if let Some(kept) = self.all.get_mut(edge) {
                kept.under_way = Some(write);
            }
        }
    }

    /// A write of these edges ended.
    pub fn written(&mut self, edges: &[Edge], outcome: Outcome) {
        for edge in edges {
            self.under_way -= 1;
            let Some(kept) = self.all.get_mut(edge) else {
                continue;
            };
            kept.state = match (outcome, kept.under_way.take()) {
                (Outcome::Applied, Some(Write::Put)) => State::Present,
                (Outcome::Applied, _) => State::Absent,
                (Outcome::Refused, _) => kept.state,
                (Outcome::Unknown, _) => State::Unsure,
            };
            match (outcome, kept.due()) {
                // Not sent again by itself: the call's next step claims what still counts.
                (Outcome::Refused | Outcome::Unknown, Some(Write::Put)) => {}
                (Outcome::Refused, Some(Write::Delete)) => self.refused.push(edge.clone()),
                _ => self.review(edge),
            }
        }
    }

    /// Deletions that etcd has refused are sent again.
    pub fn retry_refused(&mut self) {
        for edge in std::mem::take(&mut self.refused) {
            self.review(&edge);
        }
    }

    /// A contender's keys were deleted with all their edges, or its session is gone.
    pub fn forget(&mut self, contender: ContenderId) {
        let edges = self.by_contender.remove(&contender);
        for edge in edges.unwrap_or_default() {
            self.remove(&edge);
        }
    }

    /// The edges that a call wants.
    pub fn of(&self, call: CallId) -> impl Iterator<Item = &Edge> {
        self.by_call.get(&call).into_iter().flatten()
    }

    /// Whether a contender's keys have edges, or are to have some.
    pub fn are_of(&self, contender: ContenderId) -> bool {
        self.by_contender.contains_key(&contender)
    }

    /// The call that wants this edge, the session of its held key, and all edges of the call; `None`: they are not all at etcd as they
    /// should be.
    pub fn victim(&self, edge: &Edge) -> Option<(CallId, SessionId, Vec<Edge>)> {
        let kept = self.all.get(edge)?;
        let call = *kept.wanted_by.first()?;
        let edges = self.by_call.get(&call)?;
        let mut all = edges.iter().filter_map(|edge| self.all.get(edge));
        let calm = |kept: &Kept| kept.state == State::Present && kept.under_way.is_none();
        let is_calm = all.all(calm);
        is_calm.then(|| (call, kept.session, edges.iter().cloned().collect()))
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}
