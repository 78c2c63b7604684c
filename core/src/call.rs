//! Call: what each call wants and holds, from the moment it comes until its caller has been answered for the last time.
//!
//! Groups exist only here: a name knows which call is at its head, and this file which names a call has.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::contender::Wish;
use crate::ids::{CallId, ContenderId, NameId};
use crate::moment::Moment;
use crate::name::Ticket;
use crate::output::Refused;

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
    /// Its body is gone, and its caller waits until this number of contenders is too. etcd has refused to delete one, and is asked
    /// again.
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
    /// It came nested, and its keys say what its task holds: they are for it alone (rule P38).
    pub is_shown: bool,
    /// `None` for most calls: their task makes no other meanwhile.
    nest: Option<Box<Nest>>,
}

/// Where a call stands among those of its task.
#[derive(Debug, Default)]
pub struct Nest {
    /// The calls whose locks its task holds.
    outer: Vec<CallId>,
    /// The calls that its task has made under its locks, and that wait.
    inner: BTreeSet<CallId>,
    /// The contenders that were put for the call alone, as their values list what its task holds (rule P38).
    pub own: Arc<[ContenderId]>,
    /// When it puts a key of its own, or looks for a cycle.
    pub search_at: Option<Moment>,
}

impl Call {
    /// One that comes now, and waits at this place in its queues.
    pub fn new(
        now: Moment,
        (names, wish): (Arc<[NameId]>, Wish),
        record: Arc<[u8]>,
        (ticket, tries): (Ticket, bool),
        until: Option<Moment>,
    ) -> Self {
        let stage = Stage::Waiting { ticket, tries };
        let is_shown = false;
        Self { names, wish, record, since: now, stage, until, is_shown, nest: None }
    }

    /// When it has to be looked at next.
    pub fn due(&self) -> Option<Moment> {
        let search = self.nest.as_ref().and_then(|nest| nest.search_at);
        self.until.into_iter().chain(search).min()
    }

    /// Where it stands among the calls of its task, to change it.
    pub fn nest_mut(&mut self) -> &mut Nest {
        self.nest.get_or_insert_default()
    }

    /// The contenders that were put for it alone, as it is nested.
    pub fn own(&self) -> Arc<[ContenderId]> {
        self.nest.as_ref().map_or_else(Arc::default, |nest| nest.own.clone())
    }

    /// Its place in its queues, while it waits.
    pub fn ticket(&self) -> Option<Ticket> {
        match self.stage {
            Stage::Waiting { ticket, .. } => Some(ticket),
            _ => None,
        }
    }

    /// Whether it is a single try, and waits.
    pub fn is_try(&self) -> bool {
        matches!(self.stage, Stage::Waiting { tries: true, .. })
    }

    /// The contenders that it holds, one for each name; none if it holds nothing.
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
    waiters: usize,
}

impl Calls {
    /// A call begins to wait. `holds`: the calls whose locks its task holds.
    pub fn add(&mut self, id: CallId, mut call: Call, holds: Vec<CallId>) {
        for outer in &holds {
            self.get_mut(*outer).into_iter().for_each(|outer| {
                outer.nest_mut().inner.insert(id);
            });
        }
        if !holds.is_empty() {
            call.nest_mut().outer = holds;
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

    /// How many calls wait that are not single tries.
    pub fn waiters(&self) -> usize {
        self.waiters
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

    /// Whether one of these calls holds a lock: then a call that their task makes is nested.
    pub fn hold(&self, calls: &[CallId]) -> bool {
        calls.iter().any(|id| self.get(*id).is_some_and(|call| !call.holding().is_empty()))
    }

    /// The calls whose locks the call's task holds.
    pub fn outer(&self, id: CallId) -> impl Iterator<Item = (CallId, &Call)> {
        let nest = self.get(id).and_then(|call| call.nest.as_ref());
        let outer = nest.into_iter().flat_map(|nest| nest.outer.iter());
        let outer = outer.filter_map(|of| Some((*of, self.get(*of)?)));
        outer.filter(|(_, call)| !call.holding().is_empty())
    }

    /// The calls that the call's task has made under its locks, and that wait.
    pub fn inner(&self, id: CallId) -> impl Iterator<Item = CallId> {
        let nest = self.get(id).and_then(|call| call.nest.as_ref());
        nest.into_iter().flat_map(|nest| nest.inner.iter().copied())
    }

    /// Whether the task of a call holds a lock.
    pub fn is_nested(&self, id: CallId) -> bool {
        self.outer(id).next().is_some()
    }

    /// Whether a call may be part of a cycle: its keys say what its task holds, and the task still holds something.
    pub fn may_deadlock(&self, id: CallId) -> bool {
        let waits = |it: &Call| it.is_shown && it.ticket().is_some();
        self.get(id).is_some_and(waits) && self.is_nested(id)
    }

    fn stops_waiting(&mut self, id: CallId) {
        let Some(call) = self.all.get_mut(&id).filter(|call| call.ticket().is_some()) else {
            return;
        };
        self.waiting.remove(&(call.since, id));
        self.waiters -= usize::from(!call.is_try());
        call.until = None;
        let nest = call.nest.as_mut();
        let outer = nest.map(|nest| {
            nest.search_at = None;
            nest.outer.clone()
        });
        for outer in outer.into_iter().flatten() {
            let outer = self.get_mut(outer);
            outer.into_iter().for_each(|outer| {
                outer.nest_mut().inner.remove(&id);
            });
        }
    }

    /// A call goes on to another stage.
    pub fn go_on(&mut self, id: CallId, stage: Stage) {
        self.stops_waiting(id);
        if let Some(call) = self.all.get_mut(&id) {
            call.stage = stage;
        }
    }

    /// A call is over.
    pub fn remove(&mut self, id: CallId) -> Option<Box<Call>> {
        self.stops_waiting(id);
        self.all.remove(&id)
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
