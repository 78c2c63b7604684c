//! Call: what each call wants and holds, from the moment it comes until its caller has been answered for the last time.
//!
//! Only this file knows which names a call has. Its contenders know whether they belong to a group.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::contender::Wish;
use crate::ids::{CallId, ContenderId, NameId};
use crate::moment::Moment;
use crate::output::Refused;

/// A call's place in all its queues: smaller is earlier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// How far a call has come.
#[derive(Debug)]
pub enum Stage {
    /// It stands in the queues of its names, at this place.
    Waiting { ticket: Ticket, tries: bool },
    /// It holds its names, and its body runs.
    Holding {
        contenders: Arc<[ContenderId]>,
        /// The number of hand-overs in its token.
        handover: u16,
        /// It has lost them, and its caller has been notified.
        lost: bool,
    },
    /// Its body is gone, and its caller waits for this number of contenders to go. `refused`: etcd has refused to delete one.
    Releasing { left: usize, refused: Option<Refused> },
}

/// One call.
#[derive(Debug)]
pub struct Call {
    pub names: Arc<[NameId]>,
    pub wish: Wish,
    pub record: Arc<[u8]>,
    /// When it came.
    pub since: Moment,
    pub stage: Stage,
    /// When its wait, or the wait for its release, is over.
    pub until: Option<Moment>,
    /// The contenders that were put for it alone, because it is a group, or nested (rule P38).
    pub own: Arc<[ContenderId]>,
    /// It came nested, and its keys say what its task holds (rule P38).
    pub is_shown: bool,
    /// The calls whose locks its task holds.
    pub outer: Vec<CallId>,
    /// The calls that its task has made under its locks, and that wait.
    pub inner: BTreeSet<CallId>,
    /// When it puts a key of its own, or looks for a cycle.
    pub search_at: Option<Moment>,
}

impl Call {
    /// Its place in its queues, while it waits.
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

    /// Returns true if it wants several names: its contenders serve no other call.
    pub fn is_group(&self) -> bool {
        self.names.len() > 1
    }

    /// The contenders that it holds, one for each name.
    pub fn holding(&self) -> &[ContenderId] {
        match &self.stage {
            Stage::Holding { contenders, .. } => contenders,
            _ => &[],
        }
    }
}

/// All calls.
#[derive(Debug, Default)]
pub struct Calls {
    // Boxed: a table has room for twice as many.
    all: HashMap<CallId, Box<Call>>,
    /// Those that wait, by when they came.
    waiting: BTreeSet<(Moment, CallId)>,
    /// How many of them are not single tries.
    pub waiters: usize,
}

impl Calls {
    /// A call begins to wait.
    pub fn add(&mut self, id: CallId, call: Call) {
        for outer in &call.outer {
            if let Some(outer) = self.get_mut(*outer) {
                outer.inner.insert(id);
            }
        }
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

    /// A call that waits.
    pub fn waiting(&self, id: CallId) -> Option<&Call> {
        self.get(id).filter(|call| call.ticket().is_some())
    }

    /// When the call came that has waited for longest.
    pub fn first_waiting(&self) -> Option<Moment> {
        self.waiting.first().map(|(since, _)| *since)
    }

    /// The waiting calls that came by then, in the order in which they came: at most this many.
    pub fn waiting_since(&self, then: Moment, most: usize) -> Vec<CallId> {
        let since = self.waiting.iter().take_while(|(since, _)| *since <= then);
        since.map(|(_, call)| *call).take(most).collect()
    }

    /// The calls whose locks the call's task holds.
    pub fn outer(&self, id: CallId) -> impl Iterator<Item = (CallId, &Call)> {
        let outer = self.get(id).into_iter().flat_map(|call| call.outer.iter());
        let outer = outer.filter_map(|of| Some((*of, self.get(*of)?)));
        outer.filter(|(_, call)| !call.holding().is_empty())
    }

    /// Returns true if the task of a call holds a lock.
    pub fn is_nested(&self, id: CallId) -> bool {
        self.outer(id).next().is_some()
    }

    /// A call goes on to another stage, which ends then if it has an end; `None`: it is over.
    pub fn go_on(&mut self, id: CallId, stage: Option<Stage>, until: Option<Moment>) {
        let Some(mut call) = self.all.remove(&id) else { return };
        if call.ticket().is_some() {
            self.waiting.remove(&(call.since, id));
            self.waiters -= usize::from(!call.is_try());
            for outer in &call.outer {
                if let Some(outer) = self.get_mut(*outer) {
                    outer.inner.remove(&id);
                }
            }
        }
        if let Some(stage) = stage {
            (call.stage, call.until, call.search_at) = (stage, until, None);
            self.all.insert(id, call);
        }
    }

    /// All calls that hold their names.
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
