//! Conductor: routes each input to the machine it is about, and what follows to the next, from one work list.
//!
//! It is the only one that knows several machines. This file has the state, the loop, the dispatch of answers, and the stages of a
//! shutdown; its siblings have the rest: [`serving`] the way of a call, retention and deadlocks, [`answers`] what is sent for
//! sessions and contenders, and what answers and events lead to. Nothing recurses: a name whose head may have a next step goes on
//! the work list.
//!
//! Where a method returns an `Option`, `None` says that what it was about is gone.

mod answers;
mod serving;

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use crate::batch::Batch;
use crate::calls::Calls;
#[cfg(feature = "simulation")]
use crate::contender::Contender;
use crate::contender::Contenders;
use crate::deadlock::{Cycle, Edge, Edges, Searches};
use crate::exchanges::Exchanges;
use crate::ids::{
    CallId, ContenderId, Incarnation, Key, LeaseId, Name, RequestId, Revision, SessionId,
    session_root,
};
use crate::input::{Input, Settings};
use crate::loss::LossCause;
use crate::moment::Moment;
use crate::observe::{Observe, Read};
use crate::output::{Output, Refused};
use crate::request::{Failure, Request, Response};
use crate::session::{Session, Sessions};
use crate::shutdown::Shutdown;
use crate::steps::step;
use crate::timers::{Timer, Timers};
use crate::transactions::{self, Deletion, Description};
use crate::wait_queue::{WaitQueue, WaitQueues};

/// A refused exchange is sent again after the pause of this many failures (rule P34).
const SLOWLY: u32 = 4;

/// What a request is for.
#[derive(Debug)]
enum Exchange {
    Grant(SessionId),
    Renewal(SessionId),
    Revocation(LeaseId),
    List(SessionId),
    /// With a key that must be there unless etcd has lost its history.
    Barrier(SessionId, Option<Incarnation>),
    /// Puts of contenders, and deletions of others in the same transaction (rule P7).
    Put(SessionId, Vec<ContenderId>, Vec<Deletion>),
    Delete(Vec<Deletion>),
    Read(Vec<Read>),
    Describe(Vec<Description>),
    /// A lease for keys that stay after their call; then the keys under it (rule P39).
    Retain(ContenderId, Option<LeaseId>),
    /// A write of edges; if it is to cut a cycle, with the victim.
    Edges(SessionId, Vec<Edge>, Option<(CallId, Cycle)>),
    Search(ContenderId),
    /// Whether etcd is there.
    Probe,
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

/// A caller that waits until a session is open.
#[derive(Debug)]
struct Warming {
    call: CallId,
    ttl_secs: i64,
    since: Moment,
}

/// The state of all locks of one process.
#[derive(Debug)]
pub struct Core {
    settings: Settings,
    /// What session keys and edges begin with.
    root: String,
    /// The moment of the input that is being handled.
    now: Moment,
    /// What that makes ready is to wait for more, until the next tick; and something does.
    deferring: bool,
    deferred: bool,
    random: u64,
    calls: Calls,
    queues: WaitQueues,
    contenders: Contenders,
    sessions: Sessions,
    warming: Vec<Warming>,
    batch: Batch,
    observe: Observe,
    edges: Edges,
    searches: Searches,
    timers: Timers,
    exchanges: Exchanges<Exchange>,
    shutdown: Shutdown,
    work: Work,
    outputs: VecDeque<Output>,
}

impl Core {
    /// A core that has no locks.
    pub fn new(settings: Settings) -> Self {
        Self {
            root: session_root(&settings.prefix),
            now: Moment::after_boot(Duration::ZERO),
            deferring: false,
            deferred: false,
            random: settings.seed | 1,
            exchanges: Exchanges::new(settings.connect_timeout, settings.silence.clone()),
            sessions: Sessions::new(settings.contenders_per_session),
            warming: Vec::new(),
            settings,
            calls: Calls::default(),
            queues: WaitQueues::default(),
            contenders: Contenders::default(),
            batch: Batch::default(),
            observe: Observe::default(),
            edges: Edges::default(),
            searches: Searches::default(),
            timers: Timers::default(),
            shutdown: Shutdown::default(),
            work: Work::default(),
            outputs: VecDeque::new(),
        }
    }

    /// Takes one input in; `now` never goes back.
    pub fn handle(&mut self, now: Moment, input: Input) {
        self.now = now;
        let brought = matches!(input, Input::Acquire(_) | Input::Release { .. } | Input::Cancel(_));
        self.deferring = self.settings.defers && brought;
        // A thread that was held up handles a call after the timers that were due: expired waits form no cycles.
        if matches!(input, Input::Acquire(_)) {
            self.take_steps();
            self.flush_sessions();
        }
        match input {
            Input::Acquire(acquire) => self.acquire(acquire),
            Input::Cancel(call) => drop(self.withdraw(call)),
            Input::Release { call, how, fenced } => drop(self.release(call, how, fenced)),
            Input::Keep { call, until } => self.calls.keep_until(call, until),
            Input::Warm { call, .. } if self.shutdown.has_begun() => {
                self.turn_down(call, Refused::ShuttingDown)
            }
            Input::Warm { call, ttl_secs } => {
                self.warming.push(Warming { call, ttl_secs, since: now });
            }
            Input::Answer { request, result } => drop(self.answer(request, result)),
            Input::Watch { watch, event } => drop(self.watch_event(watch, event)),
            Input::Shutdown { until } => {
                if let Some(until) = self.shutdown.begin(until) {
                    self.timers.set(Timer::Shutdown, until);
                }
                self.turn_away(false);
            }
            Input::Inspect => {
                let held = self.contenders.iter();
                for (id, _) in held.filter(|(_, it)| it.ownership().is_some()) {
                    self.timers.set(Timer::Read(id), now);
                }
            }
            Input::Tick => {}
        }
        self.take_steps();
        self.flush();
        self.finish_shutdown();
        if std::mem::take(&mut self.deferred) {
            self.timers.set_by(Timer::Flush, now);
        }
    }

    /// What to do next, if anything.
    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When to call `handle` again at the latest.
    pub fn next_timeout(&self) -> Option<Moment> {
        self.timers.next()
    }

    /// Takes the steps of all names on the work list, and of all timers that are due.
    fn take_steps(&mut self) {
        loop {
            step();
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
            Timer::Confirm(contender) => {
                let refused = self.calls.refusal(contender);
                let why = refused.unwrap_or_else(|| Refused::Backend(self.exchanges.cause()));
                self.confirm(contender, Err(why));
            }
            Timer::Linger => self.delete_lingered(),
            Timer::Cycle(call) => drop(self.look_for_cycle(call)),
            Timer::Retention(contender) => drop(self.retain_on(contender)),
            Timer::Session(session) => drop(self.sessions.wake(session)),
            Timer::Read(contender) => drop(self.read_due(contender)),
            Timer::Describe(contender) => drop(self.describe_due(contender)),
            Timer::Rest(name) => self.rest(&name),
            Timer::Flush => {}
            Timer::Deletes => {
                self.batch.retry_refused();
                self.edges.retry_refused();
            }
            Timer::Silence => {
                if let Some(came) = self.exchanges.gives_up(self.now) {
                    let why = Refused::Backend(self.exchanges.cause());
                    for call in self.calls.waiting_since(came) {
                        self.refuse(call, why.clone());
                    }
                    self.refuse_warming(&why, |it| it.since <= came);
                }
            }
            Timer::Shutdown => {
                if self.shutdown.stop() {
                    for call in self.calls.all_holding() {
                        self.lose_call(call, LossCause::Shutdown);
                    }
                    self.turn_away(true);
                }
            }
        }
    }

    /// etcd answered a request, or did not.
    fn answer(&mut self, request: RequestId, result: Result<Response, Failure>) -> Option<()> {
        let before = self.exchanges.failures();
        let sent = self.exchanges.answered(self.now, request, &result)?;
        let failures = self.exchanges.failures();
        if failures > before {
            let pause = self.pause(failures);
            self.exchanges.hold_off(self.now + pause);
            self.timers.set(Timer::Flush, self.now + pause);
        } else if failures < before {
            self.reopen_windows();
        }
        let revision = result.as_ref().ok().and_then(Response::revision);
        let stale = revision.is_some_and(|revision| sent.is_ahead_of(revision));
        if let Ok(Response::Txn(answer)) = &result
            && self.exchanges.loses_history(&sent, answer)
        {
            self.lose_history();
        }
        let at = sent.at;
        match sent.exchange {
            Exchange::Grant(id) => self.granted(id, at, result.and_then(Response::granted)),
            Exchange::Renewal(id) => self.renewed(id, at, stale, result),
            Exchange::Revocation(lease) => self.revoked(lease, &result),
            Exchange::List(id) => drop(self.listed(id, at, result)),
            Exchange::Barrier(id, witness) => {
                self.barrier_answered(id, witness, result.and_then(Response::txn));
            }
            Exchange::Put(session, ids, deletions) => {
                self.put(session, ids, deletions, result.and_then(Response::txn));
            }
            Exchange::Delete(deletions) => {
                self.batch.delete_done(deletions.len());
                self.deleted(deletions, result.and_then(Response::txn));
            }
            Exchange::Read(reads) => match result.and_then(Response::txn) {
                Ok(answer) if !stale => self.read(reads, answer),
                Err(Failure::Refused(..)) => self.read_again(&reads, stale, SLOWLY),
                _ => self.read_again(&reads, stale, self.exchanges.failures()),
            },
            Exchange::Describe(keys) => {
                self.described(&keys, result.and_then(Response::txn));
            }
            Exchange::Retain(id, lease) => drop(self.retained(id, lease, result)),
            Exchange::Edges(session, edges, cut) => {
                self.edges_written(session, &edges, cut, result.and_then(Response::txn));
            }
            Exchange::Search(id) => self.searched(id, result.and_then(Response::txn)),
            Exchange::Probe => {}
        }
        self.refuse_cleared();
        Some(())
    }

    /// Sends what is ready, as much in one transaction as fits, and as many as the windows allow: first what others wait for.
    fn flush(&mut self) {
        self.flush_sessions();
        while self.may_send()
            && !self.waits_for_more(self.batch.is_ready())
            && let Some(deletions) = self.batch.next_delete()
        {
            let txn = transactions::delete(&self.root, &deletions);
            self.send(Request::Txn(txn), Exchange::Delete(deletions));
        }
        while self.may_send()
            && let Some(lease) = self.sessions.next_revocation()
        {
            self.send(Request::Revoke(lease), Exchange::Revocation(lease));
        }
        self.flush_reads();
        self.flush_descriptions();
        self.flush_edges();
        self.mind_silence();
    }

    /// Whether what is ready waits for what other calls bring, until the next tick.
    pub(super) fn waits_for_more(&mut self, ready: bool) -> bool {
        let waits = self.deferring && ready;
        self.deferred |= waits;
        waits
    }

    /// etcd answers again: what it was sent before, and may never answer, holds nothing back any more.
    fn reopen_windows(&mut self) {
        self.sessions.reopen_windows();
        self.batch.reopen_window();
        self.observe.reopen_window();
    }

    fn may_send(&self) -> bool {
        self.exchanges.may_send(self.now)
    }

    fn send(&mut self, request: Request, exchange: Exchange) {
        let id = self.exchanges.send(self.now, &request, exchange);
        self.outputs.push_back(Output::Send { id, request });
    }

    /// While calls wait, sees to it that silence is noticed: asks etcd something if nothing else is to be sent (rule P32).
    fn mind_silence(&mut self) {
        let Some(first) = self.first_waiting() else {
            return self.timers.cancel(&Timer::Silence);
        };
        // What is deferred asks something too.
        if !self.deferring && self.exchanges.needs_probe(self.now) {
            // No key has this name.
            let key = Key::from(&*self.root);
            let txn = transactions::reads(vec![transactions::get(&key)]);
            self.send(Request::Txn(txn), Exchange::Probe);
        }
        let check = self.exchanges.next_check(self.now, first);
        self.timers.set_by(Timer::Silence, check);
    }

    /// Whether any key is to be deleted that etcd has not refused to delete.
    fn has_deletes(&self) -> bool {
        let is_delete = |it: &Exchange| match it {
            Exchange::Delete(_) => true,
            Exchange::Put(_, _, deletions) => !deletions.is_empty(),
            _ => false,
        };
        self.batch.has_deletions() || self.exchanges.iter().any(is_delete)
    }

    /// When the first caller came that waits for a lock, or for a session.
    fn first_waiting(&self) -> Option<Moment> {
        let warming = self.warming.first().map(|it| it.since);
        self.calls.first_waiting().into_iter().chain(warming).min()
    }

    /// Reports open sessions to the callers that wait for one; sees to it that there will be one for the others.
    fn serve_warming(&mut self) {
        for it in std::mem::take(&mut self.warming) {
            let id = self.sessions.choose(self.now, it.ttl_secs);
            match self.sessions.get(id).is_some_and(Session::is_open) {
                true => self.outputs.push_back(Output::Ready(it.call)),
                false => self.warming.push(it),
            }
        }
    }

    /// Refuses callers that wait for a session.
    fn refuse_warming(&mut self, why: &Refused, which: impl Fn(&Warming) -> bool) {
        let refused = self.warming.extract_if(.., |it| which(it));
        for Warming { call, .. } in refused.collect::<Vec<_>>() {
            self.turn_down(call, why.clone());
        }
    }

    /// Refuses the calls that wait, those of tasks that hold a lock only if `nested`.
    fn turn_away(&mut self, nested: bool) {
        for call in self.calls.waiting_since(self.now) {
            if nested || !self.calls.is_nested(call) {
                self.refuse(call, Refused::ShuttingDown);
            }
        }
        self.refuse_warming(&Refused::ShuttingDown, |_| true);
    }

    /// Once no body is left that can rely on a session, or the grace is over, sends the sessions off; once that is done, reports it.
    fn finish_shutdown(&mut self) {
        let waits = self.first_waiting().is_some();
        if !self.shutdown.has_begun() || self.shutdown.is_finished() || waits {
            return;
        }
        let has_body = |(_, it): (SessionId, &Session)| it.bodies() > 0 && !it.is_lost();
        // Retained keys count as a body until they have a lease of their own.
        let busy = self.sessions.iter().any(has_body);
        if busy && !self.shutdown.has_stopped() {
            return;
        }
        let until = self.shutdown.bid_farewell(self.now);
        self.timers.set(Timer::Shutdown, until);
        let over = self.now >= until;
        if over || !self.has_deletes() {
            self.sessions.end_idle();
            self.flush();
        }
        let of_leases = |it: &Exchange| matches!(it, Exchange::Grant(_) | Exchange::Revocation(_));
        let leases = self.exchanges.iter().any(of_leases) || self.sessions.has_revocations();
        if over || !(busy || self.has_deletes() || leases) {
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

    /// The same after an exchange that ended like this: a refusal is an answer, and yet sent again slowly.
    fn pause_after(&mut self, result: &Result<Response, Failure>) -> Duration {
        match result {
            Err(Failure::Refused(..)) => self.pause(SLOWLY),
            _ => self.pause(self.exchanges.failures()),
        }
    }
}

/// What a core has, for checkers. Nothing here decides anything.
impl Core {
    /// The contenders.
    #[cfg(feature = "simulation")]
    pub fn contenders(&self) -> impl Iterator<Item = &Contender> {
        self.contenders.iter().map(|(_, contender)| contender)
    }

    /// The sessions.
    #[cfg(feature = "simulation")]
    pub fn sessions(&self) -> impl Iterator<Item = &Session> {
        self.sessions.iter().map(|(_, session)| session)
    }

    /// The calls that wait for a name, in order.
    pub fn waiters(&self, name: &Name) -> Vec<CallId> {
        let queue = self.queues.get(name).into_iter();
        queue.flat_map(WaitQueue::waiters).collect()
    }

    /// How often a waiting call went to the end of its queues; `None`: it does not wait.
    pub fn requeued(&self, call: CallId) -> Option<u32> {
        Some(self.calls.waiting(call)?.requeued)
    }

    /// The victim and the keys of a cycle that this request is to cut, if it is to.
    pub fn abort_under_way(&self, request: RequestId) -> Option<(CallId, Vec<(Key, Revision)>)> {
        match self.exchanges.get(request)? {
            Exchange::Edges(_, _, Some((call, cycle))) => Some((*call, cycle.keys().collect())),
            _ => None,
        }
    }

    /// How many timers are set, and how many exchanges are under way.
    pub fn pending(&self) -> (usize, usize) {
        (self.timers.len(), self.exchanges.iter().count())
    }

    /// What is left although no call wants anything; `None`: nothing.
    pub fn leftovers(&self) -> Option<String> {
        let names: Vec<&Name> = self.queues.iter().map(|(name, _)| name).collect();
        let idle = self.observe.is_idle()
            && self.edges.is_empty()
            && !self.has_deletes()
            && self.contenders.is_empty()
            && self.calls.is_empty()
            && names.is_empty();
        (!idle).then(|| format!("{names:?} {:?} {:?}", self.contenders, self.calls))
    }
}
