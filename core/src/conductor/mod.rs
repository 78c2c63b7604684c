//! Conductor: routes each input to the machine it is about, and what follows to the next, from one work list.
//!
//! It is the only one that knows several machines. Here are the loop, the timers, and what is sent; [`serving`] has the way of a
//! call, [`answers`] what etcd's answers and events lead to. Nothing recurses: a name whose head may have a next step goes on the
//! work list.

mod answers;
mod serving;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::batch::{Batch, Deletion};
use crate::calls::{Calls, Tries};
use crate::contender::{Contenders, State};
use crate::deadlock::{Cycle, Deadlock, Edge, edges};
use crate::ids::{
    CallId, ContenderId, Incarnation, Key, LeaseId, Name, RequestId, Revision, SessionId,
    session_root,
};
use crate::input::{Input, Settings};
use crate::mistakes::{Mistake, mistake};
use crate::moment::Moment;
use crate::observe::Observe;
use crate::output::{LossCause, Output, Refused};
use crate::record;
use crate::request::{Op, Request};
use crate::session::{Need, Session};
use crate::sessions::Sessions;
use crate::shutdown::Shutdown;
use crate::steps;
use crate::timers::{Timer, Timers};
use crate::transactions::{self, Placement, Removal};
use crate::unreachable::Unreachable;
use crate::wait_queue::WaitQueues;

/// After a refusal an exchange is sent again as rarely as after so many failures (rule P34).
const SLOWLY: u32 = 4;

/// Ids of reads of sessions, of names at large: an exchange is one of these.
#[derive(Debug)]
enum Exchange {
    Grant(SessionId),
    Renewal(SessionId),
    Revocation(LeaseId),
    /// With a key that must be there unless etcd has lost its history.
    Barrier(SessionId, Option<Incarnation>),
    /// Contenders whose put was refused although it may have been applied (rule P34).
    Settle(Vec<ContenderId>),
    Put(SessionId, Vec<ContenderId>),
    Try(SessionId, ContenderId),
    Delete(Vec<Deletion>),
    /// Contenders, each with its parts as they were read.
    Read(Vec<ReadItem>),
    /// A lease for keys that stay after their call; then the keys under it (rule P39).
    Reserve(ContenderId),
    Retain(ContenderId, LeaseId),
    Edge(SessionId, Edge, edges::Write),
    Search(ContenderId),
    Abort(Box<Abort>),
    /// Whether etcd is there.
    Probe,
}

/// A victim's edges, deleted if the cycle still stands.
#[derive(Debug)]
struct Abort {
    session: SessionId,
    call: CallId,
    edges: Vec<Edge>,
    cycle: Cycle,
}

/// One part of a contender that is read.
#[derive(Debug)]
struct ReadItem {
    contender: ContenderId,
    part: usize,
    created: Revision,
    held: bool,
    deep: bool,
    owner: bool,
}

#[derive(Debug)]
struct UnderWay {
    exchange: Exchange,
    sent: Moment,
    /// The highest revision known when it was sent (rules P20, P35).
    floor: Option<Revision>,
    epoch: u64,
}

/// Names whose head may have a next step, each once.
#[derive(Debug, Default)]
struct Work {
    order: VecDeque<Name>,
    names: BTreeSet<Name>,
}

impl Work {
    fn push(&mut self, name: &Name) {
        if self.names.insert(name.clone()) {
            self.order.push_back(name.clone());
        }
    }

    fn pop(&mut self) -> Option<Name> {
        let name = self.order.pop_front()?;
        self.names.remove(&name);
        Some(name)
    }
}

/// What a call has left locked (rule P39).
#[derive(Debug)]
struct Retention {
    until: Moment,
    call: CallId,
    record: Arc<[u8]>,
    /// The lease its keys are to have; and whether they hang on it.
    lease: Option<LeaseId>,
    moved: bool,
    under_way: bool,
    failures: u32,
}

/// The state of all locks of one process.
#[derive(Debug)]
pub struct Core {
    settings: Settings,
    /// What session keys and edges begin with.
    root: String,
    /// The moment of the input that is being handled.
    now: Moment,
    calls: Calls,
    queues: WaitQueues,
    contenders: Contenders,
    sessions: Sessions,
    batch: Batch,
    observe: Observe,
    deadlock: Deadlock,
    timers: Timers,
    unreachable: Unreachable,
    shutdown: Shutdown,
    retentions: BTreeMap<ContenderId, Retention>,
    /// Those whose keys are still under a session that may keep them.
    retaining: BTreeSet<ContenderId>,
    /// Calls whose release waits for these contenders to be gone.
    confirming: BTreeMap<ContenderId, CallId>,
    /// Contenders whose put was refused although it may have been applied.
    unsettled: BTreeSet<ContenderId>,
    /// Sessions that may have something to send.
    dirty: BTreeSet<SessionId>,
    /// Leases to be revoked, and how many revocations are under way.
    revocations: Vec<LeaseId>,
    revoking: usize,
    under_way: BTreeMap<RequestId, UnderWay>,
    work: Work,
    outputs: VecDeque<Output>,
    /// The highest revision any transaction answered, since history was last lost (rule P35).
    highest: Option<Revision>,
    epoch: u64,
    last_id: u64,
    random: u64,
}

impl Core {
    /// A core that has no locks.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            root: session_root(&settings.prefix),
            random: settings.seed | 1,
            unreachable: Unreachable::new(settings.connect_timeout, settings.silence.clone()),
            settings,
            now: Moment::after_boot(Duration::ZERO),
            calls: Calls::default(),
            queues: WaitQueues::default(),
            contenders: Contenders::default(),
            sessions: Sessions::default(),
            batch: Batch::default(),
            observe: Observe::default(),
            deadlock: Deadlock::default(),
            timers: Timers::default(),
            shutdown: Shutdown::default(),
            retentions: BTreeMap::new(),
            retaining: BTreeSet::new(),
            confirming: BTreeMap::new(),
            unsettled: BTreeSet::new(),
            dirty: BTreeSet::new(),
            revocations: Vec::new(),
            revoking: 0,
            under_way: BTreeMap::new(),
            work: Work::default(),
            outputs: VecDeque::new(),
            highest: None,
            epoch: 0,
            last_id: 0,
        }
    }

    /// Takes one input in; `now` never goes back.
    pub fn handle(&mut self, now: Moment, input: Input) {
        self.now = now;
        // A thread that was held up handles a call after the timers that were due: expired waits form no cycles.
        if matches!(input, Input::Acquire(_)) {
            self.take_steps();
            self.flush_sessions();
        }
        match input {
            Input::Acquire(acquire) => self.acquire(acquire),
            Input::Cancel { call } => self.cancel(call),
            Input::Release { call, how, fenced } => self.release(call, how, fenced),
            Input::Keep { call, until } => self.calls.keep_until(call, until),
            Input::Warm { call, ttl_secs } => self.warm(call, ttl_secs),
            Input::Answer { request, result } => self.answer(request, result),
            Input::Watch { watch, event } => self.watch_event(watch, event),
            Input::Shutdown { until } => {
                self.shutdown.begin(until);
                self.turn_away(false);
                self.arm_shutdown();
            }
            Input::Inspect => {
                for call in self.calls.all_holding() {
                    let held = self.calls.get(call).and_then(|call| call.holding());
                    held.into_iter()
                        .for_each(|id| self.timers.set(Timer::Read(id), now));
                }
            }
            Input::Tick => {}
        }
        self.take_steps();
        self.flush();
        self.finish_shutdown();
    }

    /// What to do next, if anything.
    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When to call `handle` again at the latest.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Moment> {
        self.timers.next()
    }

    /// Takes the steps of all names on the work list, and of all timers that are due.
    fn take_steps(&mut self) {
        loop {
            steps::step();
            if let Some(name) = self.work.pop() {
                self.serve(&name);
            } else if let Some(timer) = self.timers.pop(self.now) {
                self.fire(timer);
            } else {
                return;
            }
        }
    }

    fn fire(&mut self, timer: Timer) {
        match timer {
            Timer::Wait(call) => self.wait_over(call),
            Timer::Confirm(call) => {
                let cause = self.unreachable.is_so().then(|| self.unreachable.cause());
                let cause = cause.unwrap_or_else(|| {
                    Arc::from(Box::from("etcd did not confirm the release in time"))
                });
                self.confirm(call, Err(Refused::Backend(cause)));
            }
            Timer::Linger(call) => self.linger_over(call),
            Timer::Cycle(call) => self.look_for_cycle(call),
            Timer::Retention(contender) => self.retain_on(contender),
            Timer::Session(session) => drop(self.dirty.insert(session)),
            Timer::Read(contender) => self.read_due(contender),
            Timer::Rest(name) => self.rest(&name),
            Timer::Flush => {}
            Timer::Deletes => self.batch.retry_refused(),
            Timer::Silence => self.check_silence(),
            Timer::Shutdown => {
                if self.shutdown.due().is_some_and(|due| due <= self.now)
                    && !self.shutdown.has_stopped()
                {
                    self.shutdown.stop();
                    for call in self.calls.all_holding() {
                        self.lose_call(call, LossCause::Shutdown);
                    }
                    self.turn_away(true);
                }
            }
        }
    }

    /// Sends what is ready, as much in one transaction as fits, and as many as the windows allow: first what others wait for.
    fn flush(&mut self) {
        self.flush_sessions();
        while self.may_send()
            && let Some(deletions) = self.batch.next_delete()
        {
            let root = &self.root;
            let removals = deletions.iter().flat_map(|deletion| {
                deletion.keys.iter().map(|key| Removal {
                    key: key.clone(),
                    created: deletion.created,
                    edges: deletion.edges.then(|| edges::prefix_of(root, key)),
                })
            });
            let txn = transactions::delete(&removals.collect::<Vec<_>>());
            self.send(Request::Txn(txn), Exchange::Delete(deletions));
        }
        while self.may_send()
            && let Some(lease) = self.revocations.pop()
        {
            self.revoking += 1;
            self.send(Request::Revoke { lease }, Exchange::Revocation(lease));
        }
        self.flush_unsettled();
        self.flush_reads();
        self.flush_deadlock();
        self.probe();
        self.arm_silence();
    }

    fn may_send(&self) -> bool {
        self.unreachable.may_send(self.now)
    }

    /// Sends what sessions need: renewals even while etcd is not reached.
    fn flush_sessions(&mut self) {
        let mut waiting = BTreeSet::new();
        while let Some(id) = self.dirty.pop_first() {
            steps::step();
            let may_send = self.may_send();
            let Some(session) = self.sessions.get_mut(id) else {
                continue;
            };
            match session.need(self.now) {
                Some(Need::Grant) if may_send => {
                    session.asked();
                    let ttl_secs = session.ttl_secs();
                    self.send(Request::Grant { ttl_secs }, Exchange::Grant(id));
                }
                Some(Need::Grant) => drop(waiting.insert(id)),
                Some(Need::Stop(cause)) => self.lose_session(id, cause),
                Some(Need::Retire) => self.retire(id),
                Some(Need::Renew) if self.sessions.is_spare(id) => self.retire(id),
                Some(Need::Renew) if !self.shutdown.has_stopped() => self.renew(id),
                Some(Need::Renew) | None => {}
            }
            self.take_steps();
            if may_send {
                self.flush_puts(id);
                self.flush_barrier(id);
            } else {
                waiting.insert(id);
            }
            let session = self.sessions.get(id);
            let due = session.into_iter().flat_map(|session| {
                let barrier = session.barrier().due();
                session.due().into_iter().chain([barrier])
            });
            match due.flatten().filter(|due| *due > self.now).min() {
                Some(due) => self.timers.set(Timer::Session(id), due),
                None => self.timers.cancel(&Timer::Session(id)),
            }
        }
        self.dirty = waiting;
    }

    /// Renews a session now, unless that is under way.
    fn renew(&mut self, id: SessionId) {
        let stopped = self.shutdown.has_stopped();
        let Some(session) = self.sessions.get_mut(id).filter(|_| !stopped) else {
            return;
        };
        if let (true, Some(lease)) = (session.renew(), session.lease()) {
            let timeout = session.renewal_timeout();
            self.send(Request::KeepAlive { lease, timeout }, Exchange::Renewal(id));
        }
    }

    /// Sends the puts of a session that are ready.
    fn flush_puts(&mut self, id: SessionId) {
        while self.may_send() {
            let Some(session) = self.sessions.get(id).filter(|session| session.is_open()) else {
                return;
            };
            let (Some(fence), Some(lease)) = (session.fence(), session.lease()) else {
                return;
            };
            let (contenders, queues, calls) = (&self.contenders, &self.queues, &self.calls);
            let pending = |contender: ContenderId| {
                let found = contenders
                    .get(contender)
                    .filter(|it| matches!(it.state(), State::Pending));
                found.map_or(0, |it| it.names().len())
            };
            // A single try's contender, which is put only if no other key is there.
            let tries = |contender: ContenderId| {
                let first = contenders.get(contender).and_then(|it| it.names().first());
                let head = first.and_then(|name| queues.get(name)?.head());
                let waiting = head.and_then(|head| calls.waiting(head.call));
                waiting.is_some_and(|waiting| waiting.tries == Tries::IfNone)
            };
            let Some(next) = self.batch.next_put(id, pending, tries) else {
                return;
            };
            let alone = next.len() == 1 && next.iter().all(|contender| tries(*contender));
            let mut placements = Vec::new();
            for contender in &next {
                self.contenders.sent(*contender, lease);
                placements.extend(self.placements(*contender));
            }
            match (alone, next.first()) {
                (true, Some(contender)) => {
                    let txn = transactions::put_if_none(&fence, lease, &placements);
                    self.send(Request::Txn(txn), Exchange::Try(id, *contender));
                }
                _ => {
                    let txn = transactions::put(&fence, lease, &placements);
                    self.send(Request::Txn(txn), Exchange::Put(id, next));
                }
            }
        }
    }

    /// What is put for a contender.
    fn placements(&self, id: ContenderId) -> Vec<Placement> {
        let Some(contender) = self.contenders.get(id) else {
            return Vec::new();
        };
        let keys: Vec<Key> = contender.keys().cloned().collect();
        let placement = |part: &crate::contender::Part| {
            let watched = self.observe.watch(&part.name).is_some();
            Placement {
                record: record::of_group(contender.record(), &part.key, &keys),
                key: part.key.clone(),
                family: part.family.clone(),
                all: watched || part.seat != crate::seat::Seat::Exclusive,
            }
        };
        contender.parts().iter().map(placement).collect()
    }

    /// Sends the barrier of a session, if one is wanted.
    fn flush_barrier(&mut self, id: SessionId) {
        let (now, contenders) = (self.now, &self.contenders);
        let may_send = self.unreachable.may_send(now);
        let Some(session) = self
            .sessions
            .get_mut(id)
            .filter(|session| may_send && session.is_alive())
        else {
            return;
        };
        let (Some((key, modified)), Some(lease)) = (session.session_key(), session.lease()) else {
            return;
        };
        let count =
            |contender: ContenderId| contenders.get(contender).map_or(0, |it| it.parts().len());
        let Some(ids) = session
            .barrier_mut()
            .send(now, transactions::AMBIGUOUS, count)
        else {
            return;
        };
        let keys = ids.iter().filter_map(|id| contenders.get(*id));
        let keys: Vec<Key> = keys.flat_map(|it| it.keys().cloned()).collect();
        // The youngest key that is held: if history went back to before any of them, it is not there.
        let suspicious = session.barrier().is_suspicious();
        let witness = suspicious.then(|| self.witness(id)).flatten();
        let read = keys
            .into_iter()
            .chain(witness.iter().map(|(key, _)| key.clone()));
        let txn = transactions::barrier(&key, modified, lease, read);
        self.send(Request::Txn(txn), Exchange::Barrier(id, witness));
    }

    /// The youngest key that calls hold under a session.
    fn witness(&self, id: SessionId) -> Option<Incarnation> {
        let contenders = self.sessions.get(id)?.contenders();
        let owned = |id: ContenderId| {
            self.contenders
                .get(id)
                .filter(|it| it.ownership().is_some())
        };
        let contender = contenders.rev().find_map(owned)?;
        Some((contender.keys().next()?.clone(), contender.created()?))
    }

    /// Reads contenders whose put was refused although it may have been applied: nothing comes later. A delete that finds nothing
    /// makes the read a write, which no member that lags can answer (rule P20).
    fn flush_unsettled(&mut self) {
        while self.may_send() && !self.unsettled.is_empty() {
            let mut ids = Vec::new();
            let mut ops = Vec::new();
            while let Some(id) = self.unsettled.pop_first() {
                let keys = self.contenders.get(id).into_iter().flat_map(|it| it.keys());
                ops.extend(keys.map(|key| Op::Get { key: key.clone() }));
                ids.push(id);
                if ops.len() >= transactions::READS {
                    break;
                }
            }
            if let Some(Op::Get { key }) = ops.first() {
                let prefix = edges::prefix_of(&self.root, key);
                ops.insert(0, Op::DeleteUnder { prefix });
                let txn = transactions::reads(ops);
                self.send(Request::Txn(txn), Exchange::Settle(ids));
            }
        }
    }

    fn flush_reads(&mut self) {
        while self.may_send() {
            let contenders = &self.contenders;
            let count = |id: ContenderId| {
                let found = contenders
                    .get(id)
                    .filter(|contender| !contender.is_detached());
                found
                    .filter(|contender| contender.created().is_some())
                    .map_or(0, |contender| contender.parts().len())
            };
            let Some(next) = self.observe.next_read(count) else {
                return;
            };
            let mut items = Vec::new();
            let mut ops: Vec<Op> = Vec::new();
            for id in next {
                let Some(contender) = self.contenders.get(id) else {
                    continue;
                };
                let Some(created) = contender.created() else {
                    continue;
                };
                let held = !contender.is_in_line();
                for (at, part) in contender.parts().iter().enumerate() {
                    let deep = self
                        .queues
                        .get(&part.name)
                        .is_some_and(|queue| queue.is_deep());
                    // A watch of the last predecessor alone has reported: most likely nothing is ahead any more, and each range goes
                    // through all keys of the family at etcd.
                    let last = self
                        .observe
                        .watch(&part.name)
                        .filter(|watch| watch.prefix != part.family);
                    let gone =
                        last.is_some_and(|watch| part.predecessors().has_lost(&watch.prefix));
                    let owner = !held && !gone;
                    match held {
                        true => ops.extend(transactions::read_behind(
                            &part.key,
                            &part.family,
                            deep || part.seat != crate::seat::Seat::Exclusive,
                        )),
                        false => ops.extend(transactions::read_before(
                            &part.family,
                            created,
                            deep,
                            owner,
                        )),
                    }
                    items.push(ReadItem {
                        contender: id,
                        part: at,
                        created,
                        held,
                        deep,
                        owner,
                    });
                }
            }
            self.send(
                Request::Txn(transactions::reads(ops)),
                Exchange::Read(items),
            );
        }
    }

    fn flush_deadlock(&mut self) {
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
                    let ends = [edge.held.clone(), edge.waits.clone()];
                    transactions::publish(fence.as_ref(), lease, &ends, &[(key, edge.value())])
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

    fn send(&mut self, request: Request, exchange: Exchange) {
        self.last_id += 1;
        let id = RequestId::from(self.last_id);
        self.unreachable.sent(self.now);
        let under_way = UnderWay {
            exchange,
            sent: self.now,
            floor: self.highest,
            epoch: self.epoch,
        };
        self.under_way.insert(id, under_way);
        self.outputs.push_back(Output::Send { id, request });
    }

    /// While calls wait: when to see next whether etcd is silent.
    fn arm_silence(&mut self) {
        match self.calls.first_waiting() {
            Some(first) => {
                let check = self.unreachable.next_check(self.now, first);
                self.timers.set_by(
                    Timer::Silence,
                    check.max(self.now + Duration::from_millis(50)),
                );
            }
            None => self.timers.cancel(&Timer::Silence),
        }
    }

    /// Refuses the calls that have waited too long for etcd.
    fn check_silence(&mut self) {
        if let Some(came) = self.unreachable.gives_up(self.now) {
            let why = Refused::Backend(self.unreachable.cause());
            for call in self.calls.waiting_since(came) {
                self.refuse(call, why.clone());
            }
        }
    }

    /// Asks etcd something if calls wait, it has been silent for a while, and nothing else is to be sent.
    fn probe(&mut self) {
        let wanted = self.calls.first_waiting().is_some() && self.unreachable.needs_probe(self.now);
        let mut sessions = self.sessions.iter().filter(|_| wanted);
        let key = sessions.find_map(|(_, session)| session.session_key());
        drop(sessions);
        if let Some((key, _)) = key {
            let txn = transactions::reads(vec![Op::Get { key }]);
            self.send(Request::Txn(txn), Exchange::Probe);
        }
    }

    /// Refuses the calls that wait, those of tasks that hold a lock only if `nested`.
    fn turn_away(&mut self, nested: bool) {
        for call in self.calls.all_waiting() {
            if nested || !self.calls.is_nested(call) {
                self.refuse(call, Refused::ShuttingDown);
            }
        }
    }

    fn arm_shutdown(&mut self) {
        if let Some(due) = self.shutdown.due() {
            self.timers.set(Timer::Shutdown, due);
        }
    }

    /// Once no body is left that can rely on a session, sends the sessions off; once that is done, reports it.
    fn finish_shutdown(&mut self) {
        if !self.shutdown.has_begun()
            || self.shutdown.is_finished()
            || self.calls.first_waiting().is_some()
        {
            return;
        }
        let keeps =
            |(_, session): (SessionId, &Session)| session.bodies() > 0 && !session.is_lost();
        let retaining = !self.retaining.is_empty() && !mistake(Mistake::ShutdownBeforeRetention);
        let bodies = self.sessions.iter().any(keeps) && !mistake(Mistake::ShutdownBeforeRetention);
        if retaining || (bodies && !self.shutdown.has_stopped()) {
            return;
        }
        let until = self.shutdown.bid_farewell(self.now);
        self.arm_shutdown();
        let over = self.now >= until;
        // A session whose body does not end is left to run out.
        if bodies && !over {
            return;
        }
        let deleting = self.batch.has_deletes();
        if !deleting || over {
            for id in self.sessions.ids() {
                if let Some(lease) = self
                    .sessions
                    .remove(id)
                    .filter(|session| session.bodies() == 0)
                    .and_then(|session| session.lease())
                {
                    self.revocations.push(lease);
                }
            }
            self.flush();
        }
        let revoking = self.revoking > 0 || !self.revocations.is_empty();
        if over || !(deleting || revoking) {
            self.shutdown.finish();
            self.outputs.push_back(Output::Finished);
        }
    }

    /// `base`, a tenth more or less, so that processes do not act in step.
    fn jittered(&mut self, base: Duration) -> Duration {
        // xorshift: any spread will do here
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        #[allow(clippy::cast_precision_loss)] // a spread needs no precision
        let share = (self.random % 1000) as f64 / 1000.0;
        base.mul_f64(0.9 + 0.2 * share)
    }

    /// How long to wait before what failed this often in a row is sent again (rule P34).
    fn pause(&mut self, failures: u32) -> Duration {
        self.jittered(Duration::from_millis(50 << failures.min(SLOWLY)))
    }
}

/// What views are made of; nothing there decides anything.
impl Core {
    pub(crate) fn machines(&self) -> Machines<'_> {
        Machines {
            calls: &self.calls,
            queues: &self.queues,
            contenders: &self.contenders,
            sessions: &self.sessions,
            timers: self.timers.len(),
            under_way: &self.under_way,
            idle: self.observe.is_idle()
                && self.deadlock.is_idle()
                && self.retentions.is_empty()
                && !self.batch.has_deletes(),
        }
    }
}

/// The machines, to look at.
#[derive(Debug)]
pub struct Machines<'a> {
    pub calls: &'a Calls,
    pub queues: &'a WaitQueues,
    pub contenders: &'a Contenders,
    pub sessions: &'a Sessions,
    pub timers: usize,
    under_way: &'a BTreeMap<RequestId, UnderWay>,
    pub idle: bool,
}

impl Machines<'_> {
    /// How many exchanges are under way.
    pub fn exchanges(&self) -> usize {
        self.under_way.len()
    }

    /// The victim and the keys of a cycle that this request is to cut.
    pub fn abort(&self, request: RequestId) -> Option<(CallId, Vec<(Key, Revision)>)> {
        match &self.under_way.get(&request)?.exchange {
            Exchange::Abort(abort) => Some((abort.call, abort.cycle.keys().collect())),
            _ => None,
        }
    }

    /// The keys that requests under way delete.
    pub fn deletes(&self) -> Vec<Key> {
        let deletes = self
            .under_way
            .values()
            .filter_map(|under_way| match &under_way.exchange {
                Exchange::Delete(deletions) => Some(deletions),
                _ => None,
            });
        deletes
            .flatten()
            .flat_map(|deletion| deletion.keys.iter().cloned())
            .collect()
    }
}
