//! Calls: what each call wants, how far it has come, and which calls its task has made around it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::contender::Purpose;
use crate::ids::{CallId, ContenderId, Name};
use crate::moment::Moment;
use crate::output::Refused;
use crate::seat::Mode;
use crate::wait_queue::Ticket;

/// How far a call has come.
#[derive(Debug)]
enum Stage {
    /// It stands in the queues of its names.
    Waiting(Waiting),
    /// It holds its names, and its body runs.
    Holding {
        contender: ContenderId,
        /// It has lost them, and its caller knows.
        lost: bool,
        /// They are to stay locked until then (rule P39).
        keep: Option<Moment>,
    },
}

/// How a call waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waiting {
    pub ticket: Ticket,
    /// It is a single try.
    pub tries: bool,
    /// How often it went to the end of its queues (rule P38).
    pub requeued: u32,
}

/// One call.
#[derive(Debug)]
pub struct Call {
    purpose: Purpose,
    record: Arc<[u8]>,
    since: Moment,
    stage: Stage,
    /// `None` for most calls: their task makes no other meanwhile.
    nest: Option<Box<Nest>>,
}

/// Where a call stands among those of its task.
#[derive(Debug, Default)]
struct Nest {
    /// The calls whose locks its task holds.
    outer: Vec<CallId>,
    /// The calls that its task has made under its locks, and that wait.
    inner: BTreeSet<CallId>,
}

impl Call {
    /// One that comes now, and waits.
    pub fn new(now: Moment, purpose: Purpose, record: Arc<[u8]>, waiting: Waiting) -> Self {
        Self { purpose, record, since: now, stage: Stage::Waiting(waiting), nest: None }
    }

    /// What its keys are put for.
    pub fn purpose(&self) -> &Purpose {
        &self.purpose
    }

    pub fn names(&self) -> &Arc<[Name]> {
        &self.purpose.names
    }

    pub fn mode(&self) -> Mode {
        self.purpose.mode
    }

    pub fn record(&self) -> &Arc<[u8]> {
        &self.record
    }

    /// When it came.
    pub fn since(&self) -> Moment {
        self.since
    }

    /// Until when the names that it holds are to stay locked, if they are.
    pub fn keep(&self) -> Option<Moment> {
        match self.stage {
            Stage::Holding { keep, .. } => keep,
            Stage::Waiting(_) => None,
        }
    }

    /// Whether its keys are for itself alone: several, which stand or fall together.
    pub fn is_group(&self) -> bool {
        self.purpose.names.len() > 1
    }

    /// How it waits, if it does.
    pub fn waiting(&self) -> Option<Waiting> {
        match self.stage {
            Stage::Waiting(waiting) => Some(waiting),
            Stage::Holding { .. } => None,
        }
    }

    /// Whether it is a single try.
    pub fn is_try(&self) -> bool {
        self.waiting().is_some_and(|waiting| waiting.tries)
    }

    /// The contender it holds.
    pub fn holding(&self) -> Option<ContenderId> {
        match self.stage {
            Stage::Holding { contender, .. } => Some(contender),
            Stage::Waiting(_) => None,
        }
    }

    fn waiting_mut(&mut self) -> Option<&mut Waiting> {
        match &mut self.stage {
            Stage::Waiting(waiting) => Some(waiting),
            Stage::Holding { .. } => None,
        }
    }

    fn outer(&self) -> &[CallId] {
        self.nest.as_ref().map_or(&[], |nest| &nest.outer)
    }
}

/// All calls.
#[derive(Debug, Default)]
pub struct Calls {
    // Boxed: ids only grow, so the nodes of the tree stay half empty.
    all: BTreeMap<CallId, Box<Call>>,
    /// Those that wait, by when they came.
    waiting: BTreeSet<(Moment, CallId)>,
    /// How many of them are no single tries.
    waiters: usize,
    /// Calls that are over, and whose callers wait to learn that these contenders are gone; and why etcd has not deleted them yet.
    releasing: BTreeMap<ContenderId, (CallId, Option<Refused>)>,
}

impl Calls {
    /// A call begins to wait. `holds`: the calls whose locks its task holds.
    pub fn add(&mut self, id: CallId, mut call: Call, holds: Vec<CallId>) {
        for outer in &holds {
            if let Some(outer) = self.all.get_mut(outer) {
                outer.nest.get_or_insert_default().inner.insert(id);
            }
        }
        if !holds.is_empty() {
            call.nest.get_or_insert_default().outer = holds;
        }
        self.waiting.insert((call.since, id));
        self.waiters += usize::from(!call.is_try());
        self.all.insert(id, Box::new(call));
    }

    pub fn get(&self, id: CallId) -> Option<&Call> {
        self.all.get(&id).map(Box::as_ref)
    }

    /// How it waits, if it does.
    pub fn waiting(&self, id: CallId) -> Option<Waiting> {
        self.get(id)?.waiting()
    }

    /// The contender it holds, if it does.
    pub fn holding(&self, id: CallId) -> Option<ContenderId> {
        self.get(id)?.holding()
    }

    /// How many calls wait that are no single tries.
    pub fn waiters(&self) -> usize {
        self.waiters
    }

    /// When the call came that has waited for longest.
    pub fn first_waiting(&self) -> Option<Moment> {
        self.waiting.first().map(|(since, _)| *since)
    }

    /// The waiting calls that came by then, in the order in which they came.
    pub fn waiting_since(&self, then: Moment) -> Vec<CallId> {
        let since = self.waiting.iter().take_while(|(since, _)| *since <= then);
        since.map(|(_, call)| *call).collect()
    }

    /// The calls whose locks the call's task holds, of those that still hold them.
    pub fn outer(&self, id: CallId) -> impl Iterator<Item = (CallId, ContenderId)> + '_ {
        let outer = self.get(id).map_or(&[][..], Call::outer).iter();
        outer.filter_map(|of| Some((*of, self.holding(*of)?)))
    }

    /// Whether its task holds a lock.
    pub fn is_nested(&self, id: CallId) -> bool {
        self.outer(id).next().is_some()
    }

    /// The waiting calls that the call's task has made under its locks.
    pub fn inner(&self, id: CallId) -> impl Iterator<Item = CallId> + '_ {
        let nest = self.get(id).and_then(|call| call.nest.as_ref());
        nest.into_iter().flat_map(|nest| nest.inner.iter().copied())
    }

    /// Whether it is a group whose task holds nothing: it may go to the end of its queues without being refused (rule P38).
    pub fn may_step_back(&self, id: CallId) -> bool {
        let call = self.get(id).filter(|it| it.waiting().is_some());
        call.is_some_and(|it| it.is_group() && !it.is_try()) && !self.is_nested(id)
    }

    fn stops_waiting(&mut self, id: CallId) -> Option<()> {
        let call = self.all.get(&id)?;
        call.waiting()?;
        self.waiting.remove(&(call.since, id));
        self.waiters -= usize::from(!call.is_try());
        for outer in call.outer().to_vec() {
            let outer = self.all.get_mut(&outer);
            if let Some(nest) = outer.and_then(|outer| outer.nest.as_mut()) {
                nest.inner.remove(&id);
            }
        }
        Some(())
    }

    /// A waiting call goes to the end of its queues.
    pub fn requeue(&mut self, id: CallId, ticket: Ticket) -> Option<()> {
        let waiting = self.all.get_mut(&id)?.waiting_mut()?;
        waiting.ticket = ticket;
        waiting.requeued += 1;
        Some(())
    }

    /// A waiting call holds its names now.
    pub fn hold(&mut self, id: CallId, contender: ContenderId) {
        self.stops_waiting(id);
        if let Some(call) = self.all.get_mut(&id) {
            call.stage = Stage::Holding { contender, lost: false, keep: None };
        }
    }

    /// Its names are to stay locked until then; of several times the last counts.
    pub fn keep_until(&mut self, id: CallId, until: Moment) {
        let stage = self.all.get_mut(&id).map(|call| &mut call.stage);
        if let Some(Stage::Holding { keep, .. }) = stage {
            *keep = (*keep).max(Some(until));
        }
    }

    /// A holding call has lost its names; true if its caller has to learn of it.
    pub fn lose(&mut self, id: CallId) -> bool {
        match self.all.get_mut(&id).map(|call| &mut call.stage) {
            Some(Stage::Holding { lost, .. }) => !std::mem::replace(lost, true),
            _ => false,
        }
    }

    /// It is over.
    pub fn remove(&mut self, id: CallId) -> Option<Box<Call>> {
        self.stops_waiting(id);
        self.all.remove(&id)
    }

    /// The caller of a call that is over waits to learn that this contender is gone.
    pub fn release(&mut self, id: CallId, contender: ContenderId) {
        self.releasing.insert(contender, (id, None));
    }

    /// etcd has refused to delete this contender, which is tried again.
    pub fn release_refused(&mut self, contender: ContenderId, why: Refused) {
        if let Some((_, refused)) = self.releasing.get_mut(&contender) {
            *refused = Some(why);
        }
    }

    /// Whether a caller waits to learn that this contender is gone.
    pub fn is_releasing(&self, contender: ContenderId) -> bool {
        self.releasing.contains_key(&contender)
    }

    /// Why etcd has refused to delete this contender, if it has.
    pub fn refusal(&self, contender: ContenderId) -> Option<Refused> {
        self.releasing.get(&contender)?.1.clone()
    }

    /// The call whose caller waits for this contender, once.
    pub fn released(&mut self, contender: ContenderId) -> Option<CallId> {
        Some(self.releasing.remove(&contender)?.0)
    }

    /// All that hold their names.
    pub fn all_holding(&self) -> Vec<CallId> {
        let holding = self.all.iter().filter(|(_, call)| call.holding().is_some());
        holding.map(|(id, _)| *id).collect()
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty() && self.releasing.is_empty()
    }
}
