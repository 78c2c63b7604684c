//! Cycles: how deadlocks are looked for, and cut (rule P38). `None`: what it was about is gone.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::{Core, Exchange};
use crate::calls::Call;
use crate::contender::Contender;
use crate::deadlock::edges::Write;
use crate::deadlock::{Cycle, Edge, STEP};
use crate::ids::{CallId, ContenderId, Incarnation, Name, SessionId, contends};
use crate::mistakes::{Mistake, mistake};
use crate::output::{Blocker, Refused};
use crate::ownership::Ownership;
use crate::request::{Failure, Op, Request, TxnAnswer};
use crate::seat::Mode;
use crate::session::Session;
use crate::steps;
use crate::timers::Timer;
use crate::transactions::{self, Outcome};
use crate::wait_queue::WaitQueue;

impl Core {
    /// Sends the writes of edges that are due.
    pub(super) fn flush_edges(&mut self) -> Option<()> {
        while self.may_send() {
            let sessions = &self.sessions;
            let takes = |id| sessions.get(id).is_some_and(Session::takes_edges);
            let (edge, id, write) = self.edges.next_write(takes)?;
            let session = self.sessions.get(id)?;
            let (fence, key) = (session.fence(), edge.key(&self.root));
            let txn = match write {
                Write::Put => {
                    let ends = [&edge.held, &edge.waits];
                    let lease = session.lease()?;
                    transactions::publish(fence.as_ref(), lease, ends, (key, edge.value()))
                }
                Write::Delete => transactions::abort(fence.as_ref(), Vec::new(), vec![key]),
            };
            self.send(Request::Txn(txn), Exchange::Edges(id, vec![edge], None));
        }
        Some(())
    }

    /// A nested call, or a group, has waited for a while: is it part of a cycle?
    pub(super) fn look_for_cycle(&mut self, call: CallId) -> Option<()> {
        self.calls.waiting(call)?;
        let nested = self.calls.is_nested(call);
        if nested && self.refuse_in_cycle_here(call) {
            return None;
        }
        let pause = self.jittered(if nested { STEP } else { 2 * STEP });
        self.timers.set(Timer::Cycle(call), self.now + pause);
        let stalled = match nested {
            true => self.claim_edges(call),
            // A group whose task holds nothing looks from its own key.
            false => {
                let name = self.calls.get(call)?.names().first()?;
                BTreeMap::from([self.stalled(self.queues.get(name)?)?])
            }
        };
        if !self.may_send() {
            return None;
        }
        for (id, start) in stalled {
            let prefix = &self.settings.prefix;
            let reads = self.searches.begin(self.now, id, prefix, start);
            self.search(id, reads);
        }
        Some(())
    }

    fn search(&mut self, id: ContenderId, reads: Vec<Op>) {
        if !reads.is_empty() {
            let txn = transactions::reads(reads);
            self.send(Request::Txn(txn), Exchange::Search(id));
        }
    }

    /// A read of a search was answered, or not.
    pub(super) fn searched(&mut self, id: ContenderId, result: Result<TxnAnswer, Failure>) {
        let (reads, cycle) = self.searches.answered(id, result.ok());
        self.search(id, reads);
        if let Some(cycle) = cycle {
            self.cut(id, cycle);
        }
    }

    /// Publishes what a nested call depends on, from the keys that its task holds; answers what that is.
    fn claim_edges(&mut self, call: CallId) -> BTreeMap<ContenderId, Incarnation> {
        let Ok(stalled) = self.walk(call) else {
            return BTreeMap::new();
        };
        let mut wanted = BTreeMap::new();
        for (_, id) in self.calls.outer(call) {
            let contender = self.contenders.get(id).into_iter();
            for (held, session) in contender.flat_map(Contender::held_keys) {
                for waits in stalled.values().cloned() {
                    let held = held.clone();
                    wanted.insert(Edge { held, waits }, (id, session));
                }
            }
        }
        self.edges.claim(call, wanted);
        stalled
    }

    /// If a nested call closes a cycle inside the process, a group in it whose task holds nothing steps back; if there is none, the
    /// call is refused: then true.
    pub(super) fn refuse_in_cycle_here(&mut self, call: CallId) -> bool {
        while let Err(path) = self.walk(call) {
            if let Some(group) = path.iter().find(|of| self.calls.may_step_back(**of)) {
                self.step_back(*group);
                continue;
            }
            let path = path.iter().filter_map(|of| self.calls.get(*of));
            let blocker = |of: &Call| {
                let key = of.names().first().map_or("", Name::as_str).into();
                let record = of.record().clone();
                Blocker { key, record }
            };
            let cycle = path.map(blocker).collect();
            self.refuse_deadlocked(call, cycle);
            return true;
        }
        false
    }

    /// Walks from a waiting call over the queues and holders of this process: which waiting keys it depends on. `Err`: the calls of a
    /// cycle, in order; the last one's lock is held by the task of the call itself.
    fn walk(&self, call: CallId) -> Result<BTreeMap<ContenderId, Incarnation>, Vec<CallId>> {
        let held: BTreeSet<CallId> = self.calls.outer(call).map(|(of, _)| of).collect();
        let mut stalled = BTreeMap::new();
        let mut seen = BTreeSet::new();
        // Calls, each with the one that waits for it.
        let mut from = BTreeMap::new();
        let mut next = VecDeque::from([call]);
        while let Some(of) = next.pop_front() {
            steps::step();
            if held.contains(&of) {
                let before = |of: &CallId| from.get(of).copied();
                let path = std::iter::successors(Some(of), before);
                let mut path: Vec<CallId> = path.take_while(|of| *of != call).collect();
                path.reverse();
                return Err(path);
            }
            let mut ahead: Vec<CallId> = self.calls.inner(of).collect();
            for (name, mode) in self.waits_for(of) {
                if let Some(queue) = self.queues.get(name)
                    && seen.insert((name, mode))
                {
                    stalled.extend(self.stalled(queue));
                    let held = queue.excluding(mode);
                    let held = held.filter_map(|id| self.contenders.get(id)?.held());
                    ahead.extend(held.flat_map(Ownership::holders));
                    ahead.extend(queue.ahead_of(of, mode));
                }
            }
            for to in ahead {
                steps::step();
                from.entry(to).or_insert_with(|| {
                    next.push_back(to);
                    of
                });
            }
        }
        Ok(stalled)
    }

    /// The names a waiting call wants, and as what.
    fn waits_for(&self, id: CallId) -> impl Iterator<Item = (&Name, Mode)> {
        let call = self.calls.get(id).filter(|it| it.waiting().is_some());
        let call = call.filter(|_| !self.edges.is_leaving(id)).into_iter();
        call.flat_map(|it| it.names().iter().map(|name| (name, it.mode())))
    }

    /// The key of this process that waits in line, and has done so for a while.
    fn stalled(&self, queue: &WaitQueue) -> Option<(ContenderId, Incarnation)> {
        let (head, id) = (queue.head()?, queue.in_line()?);
        let key = self.contenders.get(id)?.stalled(self.now)?;
        (!self.edges.is_leaving(head.call)).then_some((id, key))
    }

    /// Sends a group to the end of its queues, and takes its keys back.
    fn step_back(&mut self, call: CallId) -> Option<()> {
        let group = self.calls.get(call)?;
        let (names, ticket) = (group.names().clone(), group.waiting()?.ticket);
        let own = self.queues.get(names.first()?)?.in_line();
        let own = own.filter(|id| self.served_by(*id) == Some(call));
        let ticket = self.queues.requeue(&names, ticket)?;
        self.calls.requeue(call, ticket);
        names.iter().for_each(|name| self.work.push(name));
        self.give_up(own?);
        Some(())
    }

    /// The wait of a call is over: withdraws the edges that rest on it, its own, and those of calls that wait for its task. True if
    /// some have to be deleted at etcd first.
    pub(super) fn unpublish(&mut self, call: CallId) -> bool {
        let mut resting = BTreeSet::from([call]);
        let mut names: Vec<&Name> = self.hands_on(call).collect();
        let mut seen = BTreeSet::new();
        while let Some(name) = names.pop() {
            let queue = self
                .queues
                .get(name)
                .filter(|_| seen.insert(name))
                .into_iter();
            for of in queue.flat_map(WaitQueue::waiters) {
                steps::step();
                let hands_on = of.group || self.calls.is_nested(of.call);
                if hands_on && resting.insert(of.call) {
                    names.extend(self.hands_on(of.call));
                }
            }
        }
        let leaves = self.edges.leave(call, &resting);
        for of in resting.into_iter().filter(|_| leaves) {
            self.claim_edges(of);
        }
        leaves && !self.edges.cleared().contains(&call)
    }

    /// The names whose waiters may depend on what a call waits for: those its task holds; and its own, where a group hands it on to
    /// all behind it, or one of another mode depends on what only this call must not share.
    fn hands_on(&self, call: CallId) -> impl Iterator<Item = &Name> {
        let held = self.calls.outer(call).map(|(_, id)| id);
        let held = held.filter_map(|id| self.contenders.get(id));
        let mixed = self.waits_for(call).filter(|(name, mode)| {
            let queue = self.queues.get(name);
            queue.is_some_and(|queue| !queue.is_uniform(*mode))
        });
        let own = mixed.map(|(name, _)| name);
        own.chain(held.flat_map(|held| held.names().iter()))
    }

    /// Calls whose edges are gone are refused.
    pub(super) fn refuse_cleared(&mut self) {
        for call in self.edges.cleared() {
            let why = self.why_not(call);
            self.refuse(call, why);
        }
    }

    /// A cycle was found from a contender of ours: a group steps back, else the victim is taken out of it by one transaction.
    fn cut(&mut self, id: ContenderId, cycle: Cycle) -> Option<()> {
        let group = self.served_by(id);
        if let Some(group) = group.filter(|call| self.calls.may_step_back(*call)) {
            return self.step_back(group);
        }
        let (call, id, edges) = self.edges.victim(cycle.closing_edge()?)?;
        self.calls.waiting(call)?;
        let waited = self.now - self.calls.get(call)?.since();
        if !cycle.is_to_be_cut_after(waited) {
            return None;
        }
        if mistake(Mistake::CycleUnconfirmed) {
            return self.refuse_deadlocked(call, cycle.blockers());
        }
        let session = self.sessions.get(id).filter(|it| it.takes_edges())?;
        let keys = edges.iter().map(|edge| edge.key(&self.root)).collect();
        let when = cycle.conditions(&self.root);
        let txn = transactions::abort(session.fence().as_ref(), when, keys);
        self.edges.begin(&edges, Write::Delete);
        let exchange = Exchange::Edges(id, edges, Some((call, cycle)));
        self.send(Request::Txn(txn), exchange);
        Some(())
    }

    /// A write of edges ended. One that had no answer is settled by a barrier. One that cuts a cycle is the proof that it stood.
    pub(super) fn edges_written(
        &mut self,
        id: SessionId,
        edges: &[Edge],
        cut: Option<(CallId, Cycle)>,
        result: Result<TxnAnswer, Failure>,
    ) -> Option<()> {
        let fence = self.sessions.get(id).and_then(Session::fence);
        let outcome = transactions::written(fence.as_ref(), result);
        self.edges.written(edges, outcome);
        match outcome {
            Outcome::Applied => {
                let (call, cycle) = cut?;
                self.refuse_deadlocked(call, cycle.blockers())?;
            }
            Outcome::Refused => {}
            Outcome::Unknown => {
                self.sessions.wake(id)?.bar();
            }
        }
        Some(())
    }

    fn refuse_deadlocked(&mut self, call: CallId, cycle: Arc<[Blocker]>) -> Option<()> {
        let first = cycle.first()?.key.clone();
        let is_first =
            |name: &Name| name.as_str() == &*first || contends(&name.family(), first.as_bytes());
        let mut names = self.calls.get(call)?.names().iter();
        let name = names.position(is_first).unwrap_or(0);
        self.refuse(call, Refused::Deadlock { name, cycle });
        Some(())
    }
}
