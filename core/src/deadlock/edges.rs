//! Edges: small keys that tell other processes what the task of a holder waits for (rule P38).
//!
//! `<prefix>%s/w/<held key>%/<waiting key>%<its create revision>` hangs on the held key's lease. Its value is the create revision of
//! the held key. An edge is void if one of these incarnations is gone, or the waiting key
//! has been admitted, so a grant has nothing to undo. Only this process writes its edges. Each write compares the session, so that
//! a barrier settles one that had no answer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::ids::{CallId, ContenderId, Incarnation, Key, Revision, SessionId, edges_of};
use crate::steps;

/// Writes that may be under way at a time.
const WINDOW: usize = 4;

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
        let edge = Self {
            held: held.clone(),
            waits: (waits.into(), revision(created)?),
        };
        (revision(std::str::from_utf8(value).ok()?)? == held.1).then_some(edge)
    }
}

/// What is known of an edge at etcd.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Status {
    Absent,
    Present,
    /// A write had no answer: a barrier will see that it can no longer apply.
    Unsure,
}

#[derive(Debug)]
struct Kept {
    contender: ContenderId,
    session: SessionId,
    wanted_by: BTreeSet<CallId>,
    status: Status,
    writing: bool,
}

/// What is to be done with an edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Write {
    Put,
    Delete,
}

/// How a write ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It was applied.
    Applied,
    /// Nothing was applied, and nothing will be.
    Refused,
    /// It may have been applied.
    Unknown,
}

/// The edges of this process.
#[derive(Debug, Default)]
pub struct Edges {
    all: BTreeMap<Edge, Kept>,
    by_call: BTreeMap<CallId, BTreeSet<Edge>>,
    by_contender: BTreeMap<ContenderId, BTreeSet<Edge>>,
    /// Edges that are not at etcd as they should be.
    due: BTreeSet<Edge>,
    /// Calls whose wait is over, each with the edges that must be gone first.
    leaving: BTreeMap<CallId, BTreeSet<Edge>>,
    under_way: usize,
}

impl Edges {
    /// The task of a nested call depends on just these.
    pub fn claim(&mut self, call: CallId, wanted: BTreeMap<Edge, (ContenderId, SessionId)>) {
        let before = self.by_call.remove(&call).unwrap_or_default();
        for edge in before.iter().filter(|edge| !wanted.contains_key(*edge)) {
            self.unwant(call, edge);
        }
        for (edge, (contender, session)) in &wanted {
            steps::step();
            let kept = self.all.entry(edge.clone()).or_insert_with(|| Kept {
                contender: *contender,
                session: *session,
                wanted_by: BTreeSet::new(),
                status: Status::Absent,
                writing: false,
            });
            kept.wanted_by.insert(call);
            self.by_contender
                .entry(*contender)
                .or_default()
                .insert(edge.clone());
            self.review(edge);
        }
        if !wanted.is_empty() {
            self.by_call.insert(call, wanted.into_keys().collect());
        }
    }

    /// A call depends on nothing any more.
    pub fn release(&mut self, call: CallId) {
        self.leaving.remove(&call);
        self.claim(call, BTreeMap::new());
    }

    /// The edges that these calls want.
    pub fn wanted_by(&self, calls: impl Iterator<Item = CallId>) -> BTreeSet<Edge> {
        let edges = calls.filter_map(|call| self.by_call.get(&call));
        edges.flatten().cloned().collect()
    }

    /// A call's wait is over: from now on no walk follows it.
    pub fn begin_leaving(&mut self, call: CallId) {
        self.leaving.insert(call, BTreeSet::new());
    }

    /// A call's wait is over: of these edges, those that no call wants any more have to be deleted before other processes may
    /// learn of it. False if there are none.
    pub fn leave(&mut self, call: CallId, edges: BTreeSet<Edge>) -> bool {
        let unwanted = |edge: &Edge| {
            self.all
                .get(edge)
                .is_some_and(|kept| kept.wanted_by.is_empty())
        };
        let left: BTreeSet<Edge> = edges.into_iter().filter(unwanted).collect();
        let wait = !left.is_empty();
        match wait {
            true => self.leaving.insert(call, left),
            false => self.leaving.remove(&call),
        };
        wait
    }

    /// Whether a call waits for its edges to be deleted.
    pub fn is_leaving(&self, call: CallId) -> bool {
        self.leaving.contains_key(&call)
    }

    /// The calls that waited for their edges to be deleted, and do no more.
    pub fn take_cleared(&mut self) -> Vec<CallId> {
        let done = |(call, edges): (&CallId, &BTreeSet<Edge>)| {
            let gone = edges.iter().all(|edge| {
                self.all
                    .get(edge)
                    .is_none_or(|kept| !kept.wanted_by.is_empty())
            });
            gone.then_some(*call)
        };
        let cleared: Vec<CallId> = self.leaving.iter().filter_map(done).collect();
        for call in &cleared {
            self.leaving.remove(call);
        }
        cleared
    }

    fn unwant(&mut self, call: CallId, edge: &Edge) {
        if let Some(kept) = self.all.get_mut(edge) {
            kept.wanted_by.remove(&call);
        }
        self.review(edge);
    }

    /// Sees whether an edge is at etcd as it should be.
    fn review(&mut self, edge: &Edge) {
        let Some(kept) = self.all.get(edge) else {
            return;
        };
        let wanted = !kept.wanted_by.is_empty();
        let right = match kept.status {
            Status::Absent => !wanted,
            Status::Present => wanted,
            Status::Unsure => true, // the barrier comes first
        };
        match right || kept.writing {
            true => self.due.remove(edge),
            false => self.due.insert(edge.clone()),
        };
        if kept.status == Status::Absent && !wanted && !kept.writing {
            self.drop(edge);
        }
    }

    fn drop(&mut self, edge: &Edge) {
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
    }

    /// The next write, if one may be sent under one of the sessions that are open.
    pub fn next_write(
        &mut self,
        is_open: impl Fn(SessionId) -> bool,
    ) -> Option<(Edge, Write, SessionId)> {
        if self.under_way >= WINDOW {
            return None;
        }
        let open = |edge: &&Edge| {
            self.all
                .get(*edge)
                .is_some_and(|kept| is_open(kept.session))
        };
        let edge = self.due.iter().find(open)?.clone();
        self.due.remove(&edge);
        let kept = self.all.get_mut(&edge)?;
        kept.writing = true;
        self.under_way += 1;
        let write = if kept.wanted_by.is_empty() {
            Write::Delete
        } else {
            Write::Put
        };
        let session = kept.session;
        Some((edge, write, session))
    }

    /// A write ended; the session to be barred, if its outcome is not known.
    pub fn written(&mut self, edge: &Edge, write: Write, outcome: Outcome) -> Option<SessionId> {
        self.under_way -= 1;
        let kept = self.all.get_mut(edge)?;
        kept.writing = false;
        let session = kept.session;
        match (outcome, write) {
            (Outcome::Applied, Write::Put) => kept.status = Status::Present,
            (Outcome::Applied, Write::Delete) => kept.status = Status::Absent,
            // One of its ends is not as it was: the next step looks what there is to wait for.
            (Outcome::Refused, Write::Put) => {
                for call in std::mem::take(&mut kept.wanted_by) {
                    if let Some(edges) = self.by_call.get_mut(&call) {
                        edges.remove(edge);
                    }
                }
            }
            (Outcome::Refused, Write::Delete) => {}
            (Outcome::Unknown, _) => {
                kept.status = Status::Unsure;
                return Some(session);
            }
        }
        self.review(edge);
        None
    }

    /// A session was barred: what was sent under it before can no longer apply.
    pub fn settled(&mut self, session: SessionId) {
        let unsure = |(edge, kept): (&Edge, &Kept)| {
            let unsure = kept.session == session && kept.status == Status::Unsure;
            unsure.then(|| edge.clone())
        };
        let edges: Vec<Edge> = self.all.iter().filter_map(unsure).collect();
        for edge in edges {
            // It may be there: it is put again if it is wanted, which changes nothing, and else deleted.
            if let Some(kept) = self.all.get_mut(&edge) {
                let wanted = !kept.wanted_by.is_empty();
                kept.status = if wanted {
                    Status::Absent
                } else {
                    Status::Present
                };
            }
            self.review(&edge);
        }
    }

    /// A contender's keys were deleted with all their edges, or its session is gone.
    pub fn forget(&mut self, contender: ContenderId) {
        for edge in self.by_contender.remove(&contender).unwrap_or_default() {
            self.due.remove(&edge);
            let Some(kept) = self.all.remove(&edge) else {
                continue;
            };
            for call in kept.wanted_by {
                if let Some(edges) = self.by_call.get_mut(&call) {
                    edges.remove(&edge);
                }
            }
        }
    }

    /// Whether edges of a contender's keys are at etcd, or may be.
    pub fn are_of(&self, contender: ContenderId) -> bool {
        self.by_contender.contains_key(&contender)
    }

    /// The call that wants this edge, and all edges of that call; `None` if some are not at etcd as they should be.
    pub fn victim(&self, edge: &Edge) -> Option<(CallId, Vec<Edge>)> {
        let call = *self.all.get(edge)?.wanted_by.first()?;
        let edges: Vec<Edge> = self.by_call.get(&call)?.iter().cloned().collect();
        let calm = |edge: &Edge| {
            self.all
                .get(edge)
                .is_some_and(|kept| kept.status == Status::Present && !kept.writing)
        };
        edges.iter().all(calm).then_some((call, edges))
    }

    /// An abort deletes all edges of a call: they are neither written nor counted on meanwhile.
    pub fn aborting(&mut self, edges: &[Edge]) {
        for edge in edges {
            if let Some(kept) = self.all.get_mut(edge) {
                kept.writing = true;
            }
        }
    }

    /// The abort ended; the session to be barred, if its outcome is not known.
    pub fn aborted(&mut self, edges: &[Edge], outcome: Outcome) -> Option<SessionId> {
        let mut barred = None;
        for edge in edges {
            self.under_way += 1; // as `written` counts it off
            let write = Write::Delete;
            barred = self.written(edge, write, outcome).or(barred);
        }
        barred
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}
