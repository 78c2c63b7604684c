//! Call: what one call wants and holds, from its arrival until the last report to its caller.
//!
//! Only this file knows the names of a call. A contender knows whether it belongs to a group.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::contender::Wish;
use crate::ids::{CallId, ContenderId, NameId, Unit};
use crate::moment::Moment;
use crate::output::Refused;

/// The place of a call in all its wait queues. Smaller is earlier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub u64);

#[derive(Debug)]
pub enum Stage {
    /// It waits in the queues of its names.
    Waiting { ticket: Ticket, tries: bool },
    /// It holds its names, and its body runs.
    Holding {
        contenders: Arc<[ContenderId]>,
        /// The hand-over number of its token.
        handover: u16,
        /// True if it has lost them and its caller was notified.
        lost: bool,
    },
    /// Its body is gone, and its caller waits until `left` contenders are gone. `refused`: etcd has refused to delete one. Boxed,
    /// because very many calls may wait, each with space for its next stage.
    Releasing { left: usize, refused: Option<Box<Refused>> },
}

#[derive(Debug)]
pub struct Call {
    pub names: Arc<[NameId]>,
    pub wish: Wish,
    pub record: Arc<[u8]>,
    /// When it arrived.
    pub since: Moment,
    pub stage: Stage,
    /// When its wait ends, or the wait for its release.
    pub until: Option<Moment>,
    /// The contenders that serve no other call, because this one is a group or nested (rule P38).
    pub own: Unit,
    /// True if it arrived nested and its keys list what its task holds (rule P38).
    pub is_shown: bool,
    /// The calls whose locks its task holds.
    pub outer: Vec<CallId>,
    /// When it next puts its own key, or searches for a cycle.
    pub search_at: Option<Moment>,
}

impl Call {
    /// Returns its place in its queues, while it waits.
    pub fn ticket(&self) -> Option<Ticket> {
        match self.stage {
            Stage::Waiting { ticket, .. } => Some(ticket),
            _ => None,
        }
    }

    /// Returns true if it waits, and is a single try.
    pub fn is_try(&self) -> bool {
        matches!(self.stage, Stage::Waiting { tries: true, .. })
    }

    /// Returns true if it wants several names. Its contenders then serve no other call.
    pub fn is_group(&self) -> bool {
        self.names.len() > 1
    }

    /// Returns the contenders that it holds, one for each name.
    pub fn holding(&self) -> &[ContenderId] {
        match &self.stage {
            Stage::Holding { contenders, .. } => contenders,
            _ => &[],
        }
    }
}

#[derive(Debug, Default)]
pub struct Calls {
    // Boxed, because the table allocates space for about twice its entries.
    all: HashMap<CallId, Box<Call>>,
    /// The waiting calls, by arrival.
    waiting: BTreeSet<(Moment, CallId)>,
    /// The waiting nested calls, each after a call whose locks its task holds.
    inner: BTreeSet<(CallId, CallId)>,
    /// The number of waiting calls that are not single tries.
    pub waiters: usize,
}

impl Calls {
    /// Adds a call that begins to wait.
    pub fn add(&mut self, id: CallId, call: Call) {
        self.inner.extend(call.outer.iter().map(|outer| (*outer, id)));
        self.waiting.insert((call.since, id));
        self.waiters += usize::from(!call.is_try());
        self.all.insert(id, Box::new(call));
    }

    pub fn get(&self, id: CallId) -> Option<&Call> {
        self.all.get(&id).map(Box::as_ref)
    }

    pub fn get_mut(&mut self, id: CallId) -> Option<&mut Call> {
        self.all.get_mut(&id).map(Box::as_mut)
    }

    pub fn waiting(&self, id: CallId) -> Option<&Call> {
        self.get(id).filter(|call| call.ticket().is_some())
    }

    /// Returns the arrival of the call that has waited longest.
    pub fn first_waiting(&self) -> Option<Moment> {
        self.waiting.first().map(|(since, _)| *since)
    }

    /// Returns up to `most` waiting calls that arrived by this moment, the oldest first.
    pub fn waiting_since(&self, then: Moment, most: usize) -> Vec<CallId> {
        let since = self.waiting.iter().take_while(|(since, _)| *since <= then);
        since.map(|(_, call)| *call).take(most).collect()
    }

    /// Returns the calls whose locks the task of this call holds.
    pub fn outer(&self, id: CallId) -> impl Iterator<Item = (CallId, &Call)> {
        let outer = self.get(id).into_iter().flat_map(|call| call.outer.iter());
        let outer = outer.filter_map(|of| Some((*of, self.get(*of)?)));
        outer.filter(|(_, call)| !call.holding().is_empty())
    }

    /// Returns the waiting calls that the task of this call has made while it holds its locks.
    pub fn inner(&self, id: CallId) -> impl Iterator<Item = CallId> {
        let from = self.inner.range((id, CallId(0))..);
        from.take_while(move |(outer, _)| *outer == id).map(|(_, inner)| *inner)
    }

    /// Returns true if the task of a call holds a lock.
    pub fn is_nested(&self, id: CallId) -> bool {
        self.outer(id).next().is_some()
    }

    /// Moves a call to its next stage, which lasts until `until`; without a stage, removes the call.
    pub fn go_on(&mut self, id: CallId, stage: Option<Stage>, until: Option<Moment>) {
        let Some(mut call) = self.all.remove(&id) else { return };
        if call.ticket().is_some() {
            self.waiting.remove(&(call.since, id));
            self.waiters -= usize::from(!call.is_try());
            for outer in &call.outer {
                self.inner.remove(&(*outer, id));
            }
        }
        if let Some(stage) = stage {
            (call.stage, call.until, call.search_at) = (stage, until, None);
            self.all.insert(id, call);
        }
    }

    pub fn holding(&self) -> Vec<CallId> {
        let holding = self.all.iter().filter(|(_, call)| !call.holding().is_empty());
        let mut holding: Vec<CallId> = holding.map(|(id, _)| *id).collect();
        holding.sort_unstable();
        holding
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}
