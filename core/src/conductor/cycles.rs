//! Cycles: how deadlocks are looked for, and cut.

use std::collections::{BTreeMap, BTreeSet};

use super::{Abort, Core, Exchange};
use crate::deadlock::graph::{Waits, Walked, walk};
use crate::deadlock::{Cycle, Edge, STEP, edges};
use crate::ids::{CallId, ContenderId, Incarnation, Name, SessionId, contends};
use crate::mistakes::{Mistake, mistake};
use crate::output::{Blocker, Refused};
use crate::request::{Failure, OpAnswer, Refusal, Request, TxnAnswer};
use crate::seat::Mode;
use crate::timers::Timer;
use crate::transactions::{self};
use crate::wait_queue::{WaitQueue, Waiter};

/// Edges that one call publishes at most.
const MOST_EDGES: usize = 64;

impl Core {
    pub(super) fn flush_deadlock(&mut self) {
        while self.may_send() {
            let sessions = &self.sessions;
            let takes = |id: SessionId| {
                sessions
                    .get(id)
                    .is_some_and(|session| session.takes_edges())
            };
            let Some((edge, write, id)) = self.deadlock.edges.next_write(takes) else {
                break;
            };
            let session = self.sessions.get(id);
            let Some(lease) = session.and_then(|session| session.lease()) else {
                break;
            };
            let fence = session.and_then(|session| session.fence());
            let key = edge.key(&self.root);
            let txn = match write {
                edges::Write::Put => {
                    let ends = [&edge.held, &edge.waits];
                    transactions::publish(fence.as_ref(), lease, ends, (key, edge.value()))
                }
                edges::Write::Delete => transactions::abort(fence.as_ref(), Vec::new(), vec![key]),
            };
            self.send(Request::Txn(txn), Exchange::Edge(id, edge, write));
        }
        while self.may_send()
            && let Some((contender, ops)) = self.deadlock.next_read()
        {
            self.send(
                Request::Txn(transactions::reads(ops)),
                Exchange::Search(contender),
            );
        }
    }

    /// A nested call, or a group, has waited for a while: is it part of a cycle?
    pub(super) fn look_for_cycle(&mut self, call: CallId) {
        let Some(waiting) = self.calls.get(call) else {
            return;
        };
        let (nested, first) = (self.calls.is_nested(call), waiting.names().first().cloned());
        if waiting.waiting().is_none() || (nested && self.find_cycle_here(call)) {
            return;
        }
        let step = self.deadlock.step(call);
        let next = self.jittered(STEP);
        self.timers.set(Timer::Cycle(call), self.now + next);
        let stalled = match nested {
            true => self.claim_edges(call),
            // A group whose task holds nothing looks from its own key.
            false if step % 2 == 1 => first
                .and_then(|name| self.stalled_part(self.queues.get(&name)?.in_line()?))
                .into_iter()
                .collect(),
            false => BTreeMap::new(),
        };
        for (contender, start) in stalled {
            self.deadlock.begin_search(
                self.now,
                contender,
                &self.root,
                &self.settings.prefix,
                start,
            );
        }
    }

    /// The first part of a contender that is not admitted.
    pub(super) fn stalled_part(&self, id: ContenderId) -> Option<(ContenderId, Incarnation)> {
        let contender = self.contenders.get(id)?;
        let mut parts = contender.parts().iter();
        let part = parts.find(|part| part.admitted().is_none())?;
        Some((id, (part.key.clone(), contender.created()?)))
    }

    /// Publishes what a nested call depends on, from the keys that its task holds.
    pub(super) fn claim_edges(&mut self, call: CallId) -> BTreeMap<ContenderId, Incarnation> {
        let held: Vec<CallId> = self.calls.outer(call).map(|(of, _)| of).collect();
        let Walked::Depends(targets) = walk(&Process(self), call, &held) else {
            return BTreeMap::new();
        };
        let mut wanted = BTreeMap::new();
        for (_, id) in self.calls.outer(call) {
            let Some(contender) = self
                .contenders
                .get(id)
                .filter(|it| it.ownership().is_some_and(|own| !own.is_lost()))
            else {
                continue;
            };
            for (key, created) in contender
                .keys()
                .filter_map(|key| Some((key.clone(), contender.created()?)))
            {
                for waits in targets.values() {
                    let edge = Edge {
                        held: (key.clone(), created),
                        waits: waits.clone(),
                    };
                    if wanted.len() < MOST_EDGES {
                        wanted.insert(edge, (id, contender.session()));
                    }
                }
            }
        }
        self.deadlock.edges.claim(call, wanted);
        targets
    }

    /// Looks for a cycle inside the process that a nested call closes. A group in it whose task holds nothing steps back, else
    /// the call is refused; true if it is.
    pub(super) fn find_cycle_here(&mut self, call: CallId) -> bool {
        let held: Vec<CallId> = self.calls.outer(call).map(|(of, _)| of).collect();
        while let Walked::Cycle(path) = walk(&Process(self), call, &held) {
            let group = path.iter().copied().find(|of| self.may_step_back(*of));
            if let Some(group) = group {
                self.step_back(group);
                continue;
            }
            let Some(waiting) = self.calls.get(call) else {
                return false;
            };
            let first = path.first().and_then(|of| self.calls.get(*of));
            let blocked = |name: &Name| first.is_some_and(|first| first.names().contains(name));
            let name = waiting.names().iter().position(blocked).unwrap_or(0);
            let blockers = path.iter().filter_map(|of| {
                let of = self.calls.get(*of)?;
                Some(Blocker {
                    key: of.names().first()?.as_str().into(),
                    record: of.record().clone(),
                })
            });
            let cycle = blockers.collect();
            self.refuse(call, Refused::Deadlock { name, cycle });
            return true;
        }
        false
    }

    /// Whether a call is a group whose task holds nothing: it may go to the end of its queues without being refused.
    pub(super) fn may_step_back(&self, call: CallId) -> bool {
        let waits = self
            .calls
            .get(call)
            .is_some_and(|it| it.is_group() && it.waiting().is_some() && !it.is_try());
        waits && !self.calls.is_nested(call) && !mistake(Mistake::GroupsNeverStepBack)
    }

    /// Sends a group to the end of its queues, and takes its keys back.
    pub(super) fn step_back(&mut self, call: CallId) {
        let Some((names, waiting, mode)) = self
            .calls
            .get(call)
            .and_then(|it| Some((it.names().clone(), it.waiting()?, it.mode())))
        else {
            return;
        };
        let own = names
            .first()
            .and_then(|name| self.queues.get(name)?.in_line());
        let own = own.filter(|id| self.served_by(*id) == Some(call));
        self.queues.leave(&names, waiting.ticket);
        let ticket = self.queues.enqueue(
            &names,
            Waiter {
                call,
                mode,
                group: true,
                tries: false,
            },
        );
        self.calls.requeue(call, ticket);
        if let Some(own) = own {
            self.give_up(own);
        }
        names.iter().for_each(|name| self.work.push(name));
    }

    /// Withdraws the edges that rest on the wait of a call: its own, and those of calls that wait for its task. True if some have
    /// to be deleted at etcd.
    pub(super) fn unpublish(&mut self, call: CallId) -> bool {
        // Where calls of other modes wait, those behind it may depend on what only it must not share.
        let own = self
            .calls
            .get(call)
            .map(|it| (it.names().clone(), it.mode()));
        let names = own.iter().flat_map(|(names, _)| names.iter());
        let mixed = |queue: &&WaitQueue| {
            own.as_ref()
                .is_some_and(|(_, mode)| !queue.is_uniform(*mode))
        };
        let queues = names.filter_map(|name| self.queues.get(name)).filter(mixed);
        let waiters = queues.flat_map(|queue| queue.waiters().map(|waiter| waiter.call));
        // A group hands on what it waits for to all that wait behind it, a nested call to all that wait for its task.
        let group = |of: CallId| self.calls.get(of).filter(|it| it.is_group());
        let hands_on = |of: &CallId| self.calls.is_nested(*of) || group(*of).is_some();
        let mut next: Vec<CallId> = waiters.filter(hands_on).collect();
        next.push(call);
        let mut resting: BTreeSet<CallId> = next.iter().copied().collect();
        while let Some(of) = next.pop() {
            crate::steps::step();
            let held = self.calls.outer(of);
            let held = held.filter_map(|(_, id)| self.contenders.get(id));
            let held = held.flat_map(|contender| contender.names().iter());
            let own = group(of).into_iter().flat_map(|of| of.names().iter());
            let queues = held.chain(own).filter_map(|name| self.queues.get(name));
            let waiters = queues.flat_map(|queue| queue.waiters().map(|waiter| waiter.call));
            let waiters = waiters.filter(hands_on);
            next.extend(waiters.filter(|of| resting.insert(*of)));
        }
        let before = self.deadlock.edges.wanted_by(resting.iter().copied());
        if before.is_empty() {
            return false;
        }
        self.deadlock.edges.begin_leaving(call);
        for of in resting {
            self.claim_edges(of);
        }
        self.deadlock.edges.leave(call, before)
    }

    /// Calls whose edges are gone are refused.
    pub(super) fn refuse_cleared(&mut self) {
        for call in self.deadlock.edges.take_cleared() {
            let why = self.why_not(call);
            self.refuse(call, why);
        }
    }

    /// A cycle was found from a contender of ours: a group steps back, else the victim is taken out of it by one transaction.
    pub(super) fn cut(&mut self, id: ContenderId, cycle: Cycle) {
        let group = self.served_by(id).filter(|call| self.may_step_back(*call));
        if let Some(group) = group {
            return self.step_back(group);
        }
        let Some((call, edges)) = cycle
            .closing_edge()
            .and_then(|edge| self.deadlock.edges.victim(edge))
        else {
            return;
        };
        if self.calls.waiting(call).is_none() || !self.deadlock.is_ours_to_cut(call, &cycle) {
            return;
        }
        if mistake(Mistake::CycleUnconfirmed) {
            return self.refuse_deadlocked(call, &cycle);
        }
        let held = edges
            .first()
            .and_then(|edge| self.contenders.by_key(edge.held.0.as_bytes()));
        let Some(id) = held.and_then(|held| Some(self.contenders.get(held)?.session())) else {
            return;
        };
        let session = self.sessions.get(id);
        let fence = session.filter(|it| it.takes_edges()).map(|it| it.fence());
        let (Some(fence), Some(when)) = (fence, cycle.conditions()) else {
            return;
        };
        self.deadlock.edges.aborting(&edges);
        let keys = edges
            .iter()
            .map(|edge: &Edge| edge.key(&self.root))
            .collect();
        let txn = transactions::abort(fence.as_ref(), when, keys);
        self.send(
            Request::Txn(txn),
            Exchange::Abort(Box::new(Abort {
                session: id,
                call,
                edges,
                cycle,
            })),
        );
    }

    /// How a write of edges ended. If the session key is not as it was known, the session is barred, which tells how it is.
    pub(super) fn outcome(
        &mut self,
        id: SessionId,
        result: Result<TxnAnswer, Failure>,
    ) -> edges::Outcome {
        match result {
            Ok(answer) if answer.succeeded => edges::Outcome::Applied,
            Ok(answer) => {
                let fence = self.sessions.get(id).and_then(|session| session.fence());
                let found = answer.answers.into_iter().next().and_then(OpAnswer::first);
                if fence
                    .is_some_and(|fence| Some(fence.modified) != found.map(|kv| kv.mod_revision))
                {
                    self.bar(Some(id));
                }
                edges::Outcome::Refused
            }
            Err(Failure::Unavailable(_)) => edges::Outcome::Refused,
            Err(Failure::Refused(kind, _)) if kind != Refusal::NoSpace => edges::Outcome::Refused,
            Err(_) => edges::Outcome::Unknown,
        }
    }

    /// The abort of a cycle was answered, or not.
    pub(super) fn aborted(&mut self, abort: Abort, outcome: edges::Outcome) {
        let Abort {
            call, edges, cycle, ..
        } = abort;
        let barred = self.deadlock.edges.aborted(&edges, outcome);
        self.bar(barred);
        if outcome == edges::Outcome::Applied {
            self.refuse_deadlocked(call, &cycle);
        }
    }

    pub(super) fn refuse_deadlocked(&mut self, call: crate::ids::CallId, cycle: &Cycle) {
        let Some(names) = self.calls.get(call).map(|it| it.names().clone()) else {
            return;
        };
        let (first, blockers) = cycle.blockers();
        let blocked = |name: &Name| {
            first
                .as_ref()
                .is_some_and(|key| contends(&name.family(), key.as_bytes()))
        };
        let name = names.iter().position(blocked).unwrap_or(0);
        self.refuse(
            call,
            Refused::Deadlock {
                name,
                cycle: blockers,
            },
        );
    }
}

/// What a walk over the calls of this process asks.
struct Process<'a>(&'a Core);

impl Waits for Process<'_> {
    fn names(&self, call: CallId) -> Vec<Name> {
        let Some(waiting) = self
            .0
            .calls
            .get(call)
            .filter(|it| it.waiting().is_some() && !self.0.deadlock.edges.is_leaving(call))
        else {
            return Vec::new();
        };
        match waiting.mode() {
            Mode::Permits(_) => Vec::new(),
            Mode::Exclusive | Mode::Shared => waiting.names().to_vec(),
        }
    }

    fn holders(&self, name: &Name, waiter: CallId) -> Vec<(CallId, CallId)> {
        let (Some(queue), Some(call)) = (self.0.queues.get(name), self.0.calls.get(waiter)) else {
            return Vec::new();
        };
        // Of the calls ahead, those of other modes: one that cannot step back before one that can.
        let mut blocked = vec![(waiter, call.mode())];
        if !queue.is_uniform(call.mode()) {
            let ahead = queue.waiters().take_while(|ahead| ahead.call != waiter);
            let waits = ahead.filter(|ahead| !self.0.deadlock.edges.is_leaving(ahead.call));
            let (groups, others): (Vec<_>, Vec<_>) = waits.partition(|ahead| ahead.group);
            for ahead in others.iter().chain(&groups) {
                if blocked.iter().all(|(_, mode)| *mode != ahead.mode) {
                    blocked.push((ahead.call, ahead.mode));
                }
            }
        }
        let mut found = Vec::new();
        for contender in queue.held().filter_map(|id| self.0.contenders.get(id)) {
            let seat = contender.seats().find(|(of, _)| *of == name);
            let excludes = |mode: Mode| seat.is_some_and(|(_, seat)| mode.is_excluded_by(seat));
            let by = blocked.iter().find(|(_, mode)| excludes(*mode));
            let held = contender
                .ownership()
                .filter(|ownership| !ownership.is_lost());
            if let (Some((by, _)), Some(ownership)) = (by, held) {
                found.extend(ownership.holders().map(|holder| (*by, holder)));
            }
        }
        found
    }

    fn inner(&self, holder: CallId) -> Vec<CallId> {
        self.0.calls.inner(holder).collect()
    }

    fn groups_ahead(&self, name: &Name, waiter: CallId) -> Vec<CallId> {
        let ticket = self.0.calls.waiting(waiter).map(|waiting| waiting.ticket);
        let queue = ticket.and_then(|ticket| Some((self.0.queues.get(name)?, ticket)));
        queue.map_or(Vec::new(), |(queue, ticket)| {
            queue.groups_ahead(ticket).collect()
        })
    }

    fn stalled(&self, name: &Name) -> Option<(ContenderId, Incarnation)> {
        let queue = self.0.queues.get(name)?;
        let head = queue
            .head()
            .filter(|head| !self.0.deadlock.edges.is_leaving(head.call));
        let id = queue.in_line().filter(|_| head.is_some())?;
        let contender = self.0.contenders.get(id)?;
        let stalled =
            contender.has_stalled(self.0.now) && !matches!(contender.mode(), Mode::Permits(_));
        stalled.then(|| self.0.stalled_part(id))?
    }
}
