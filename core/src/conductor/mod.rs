//! Conductor: routes each input to the machine it is about, and what follows to the next, from one work list.
//!
//! It is the only one that knows several machines. Here are the loop, the timers, and what is sent; [`serving`] has the way of a
//! call, [`answers`] what etcd's answers and events lead to. Nothing recurses: a name whose head may have a next step goes on the
//! work list.

mod cycles;
mod reads;
mod retaining;
mod serving;
mod sessions;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::batch::{Batch, Deletion};
use crate::calls::Calls;
use crate::contender::Contenders;
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
use crate::request::{Failure, Op, Request, Response, TxnAnswer};
use crate::session::Session;
use crate::sessions::Sessions;
use crate::shutdown::Shutdown;
use crate::steps;
use crate::timers::{Timer, Timers};
use crate::transactions::{self, Removal};
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
            Input::Cancel(call) => self.cancel(call),
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
            self.send(Request::Revoke(lease), Exchange::Revocation(lease));
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
            let txn = transactions::reads(vec![Op::Get(key)]);
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

    /// etcd answered a request, or did not.
    fn answer(&mut self, request: RequestId, result: Result<Response, Failure>) {
        let Some(UnderWay {
            exchange,
            sent,
            floor,
            epoch,
        }) = self.under_way.remove(&request)
        else {
            return;
        };
        match &result {
            Ok(_) | Err(Failure::Refused(..)) => self.unreachable.answered(self.now),
            Err(Failure::Unavailable(cause) | Failure::Unknown(cause)) => {
                self.unreachable.failed(cause.clone());
                let pause = self.pause(self.unreachable.failures());
                self.unreachable.hold_off(self.now + pause);
                self.timers.set(Timer::Flush, self.now + pause);
            }
        }
        let current = epoch == self.epoch;
        let proof = match &result {
            Ok(Response::Txn(answer)) if current => self.check_history(&exchange, answer, floor),
            _ => false,
        };
        // What a delete confirms stays confirmed.
        let confirms = matches!(exchange, Exchange::Delete(_));
        if proof && !confirms {
            self.lose_history();
        }
        let stale =
            |answer: &TxnAnswer| current && floor.is_some_and(|floor| answer.revision < floor);
        match exchange {
            Exchange::Grant(id) => self.granted(id, sent, result.and_then(Response::granted)),
            Exchange::Renewal(id) => self.renewed(id, sent, floor.filter(|_| current), result),
            Exchange::Revocation(lease) => self.revoked(lease, &result),
            Exchange::Barrier(id, witness) => {
                self.barred(id, witness, result.and_then(Response::transaction))
            }
            Exchange::Settle(ids) => match result.and_then(Response::transaction) {
                Ok(answer) if !stale(&answer) => self.settle(ids, answer),
                // What may not even be read goes with its lease.
                Err(Failure::Refused(..)) => ids.into_iter().for_each(|id| self.remove(id)),
                _ => self.unsettled.extend(ids),
            },
            Exchange::Put(session, ids) => {
                self.put(session, ids, result.and_then(Response::transaction))
            }
            Exchange::Try(session, id) => {
                self.tried(session, id, result.and_then(Response::transaction))
            }
            Exchange::Delete(deletions) => {
                self.deleted(deletions, result.and_then(Response::transaction))
            }
            Exchange::Read(items) => match result.and_then(Response::transaction) {
                Ok(answer) if stale(&answer) => self.read_stale(items),
                result => self.read(items, sent, result),
            },
            Exchange::Reserve(id) => self.reserved(id, result.and_then(Response::granted)),
            Exchange::Retain(id, lease) => {
                self.retained(id, lease, result.and_then(Response::transaction))
            }
            Exchange::Edge(session, edge, write) => {
                let outcome = self.outcome(session, result.and_then(Response::transaction));
                let barred = self.deadlock.edges.written(&edge, write, outcome);
                self.bar(barred);
            }
            Exchange::Search(id) => match result.and_then(Response::transaction) {
                Ok(answer) => {
                    if let Some(cycle) = self.deadlock.found(id, answer) {
                        self.cut(id, cycle);
                    }
                }
                Err(_) => self.deadlock.search_failed(id),
            },
            Exchange::Abort(abort) => {
                let outcome = self.outcome(abort.session, result.and_then(Response::transaction));
                self.aborted(*abort, outcome);
            }
            Exchange::Probe => {}
        }
        if proof && confirms {
            self.lose_history();
        }
        self.refuse_cleared();
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
