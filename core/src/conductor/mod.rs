//! Conductor: routes each input to the machine that it concerns, then gives every changed machine its next step.
//!
//! Only the conductor changes several machines. This file contains the state, the loop, and the dispatch of responses. [`calls`]
//! contains the path of a call through its names, [`answers`] the effects of responses and events, [`sessions`] the requests of
//! sessions. Nothing recurses: changed names wait in one list.

mod answers;
mod calls;
mod checks;
mod cycles;
mod sessions;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::call::Calls;
use crate::deadlock::{Cycle, Searches};
use crate::ids::{CallId, ContenderId, Key, LeaseId, RequestId, SessionId, Unit, session_root};
use crate::input::{Acquire, Input, Settings};
use crate::loss::LossCause;
use crate::moment::Moment;
use crate::name::{Name, Names};
use crate::outbox::Outbox;
use crate::output::{Output, Refused};
use crate::pool::Sessions;
use crate::request::{Cause, Failure, Request, Response};
use crate::session::{Asked, Need};
use crate::shutdown::Shutdown;
use crate::steps::step;
use crate::timers::{Jitter, Timer, Timers};
use crate::transactions::{self, Deletion, Description, LOCKS};
use crate::view::{Read, View};

/// The most timers that one input fires, so that it takes a few milliseconds at most. The others stay due.
const BUDGET: usize = 256;

/// What a request was sent for.
#[derive(Debug)]
enum Exchange {
    /// The request of a session, and when it was sent.
    Session(SessionId, (Moment, Asked)),
    Revocation(LeaseId),
    /// Puts, and deletions of other keys in the same transaction (rule P7).
    Put(Vec<Unit>, Vec<Deletion>),
    Delete(Vec<Deletion>),
    Read(Vec<Read>),
    Describe(usize, Vec<Description>),
    /// Ranges for the searches for cycles.
    Search(Vec<(CallId, Key)>),
    /// The call that aborts to break a cycle, and the contenders by which it waits.
    Abort(CallId, Unit, Cycle),
}

/// The state of all locks of one process.
#[derive(Debug)]
pub struct Core {
    settings: Settings,
    /// The time of the present input.
    now: Moment,
    /// True for a command. It runs on a caller's thread, and must not do work for other calls.
    is_command: bool,
    /// The number of timers that the present input may still fire.
    budget: usize,
    jitter: Jitter,
    /// True once a crowded name was reported.
    has_met_crowd: bool,
    calls: Calls,
    names: Names,
    sessions: Sessions,
    outbox: Outbox,
    view: View,
    searches: Searches,
    timers: Timers,
    /// Requests without a response.
    under_way: BTreeMap<RequestId, Exchange>,
    last_request: u64,
    /// Until this moment, only requests of sessions are sent, because etcd could not accept a transaction (rule P34).
    rests_until: Option<Moment>,
    /// The number of transactions in a row that etcd could not accept, each followed by a pause.
    refusals: u32,
    /// Since when etcd is lost, and why.
    lost: Option<(Moment, Option<Cause>)>,
    shutdown: Shutdown,
    outputs: VecDeque<Output>,
}

impl Core {
    /// Makes a core without locks.
    pub fn new(settings: Settings) -> Self {
        Self {
            now: Moment::after_boot(Duration::ZERO),
            is_command: false,
            budget: 0,
            jitter: Jitter::new(settings.seed),
            has_met_crowd: false,
            sessions: Sessions::new(session_root(&settings.prefix), settings.keys_per_session),
            settings,
            calls: Calls::default(),
            names: Names::default(),
            outbox: Outbox::default(),
            view: View::default(),
            searches: Searches::default(),
            timers: Timers::default(),
            under_way: BTreeMap::new(),
            last_request: 0,
            rests_until: None,
            refusals: 0,
            lost: None,
            shutdown: Shutdown::default(),
            outputs: VecDeque::new(),
        }
    }

    /// Takes in an input. `now` must not go back.
    pub fn handle(&mut self, now: Moment, input: Input) {
        self.now = now;
        self.rests_until.take_if(|until| *until <= now);
        self.is_command =
            matches!(input, Input::Acquire(_) | Input::Release { .. } | Input::Cancel(_));
        self.budget = if self.is_command { 0 } else { BUDGET };
        match input {
            Input::Acquire(acquire) => self.acquire(acquire),
            Input::Cancel(call) => self.stop_waiting(call, None),
            Input::Release { call, how, fenced } => self.release(call, how, fenced),
            Input::Warm { call, ttl_secs } => self.acquire(Acquire::of_session(call, ttl_secs)),
            Input::Answer { request, result } => self.answer(request, result),
            Input::Lost { since, cause } => self.lost = Some((since, cause)),
            Input::Back => self.back(),
            Input::Wiped => self.lose_history(),
            Input::Kick(call) => self.lose_call(call, LossCause::Kicked),
            Input::Watch { watch, event } => self.watch_event(watch, event),
            Input::Shutdown { until } => {
                self.shutdown.begin(until);
                self.turn_away(now, usize::MAX, false, &Refused::ShuttingDown);
            }
            Input::Inspect => {
                let held = self.names.iter().flat_map(|(name, it)| {
                    it.held().map(move |(number, _)| ContenderId { number, name })
                });
                held.collect::<Vec<_>>().into_iter().for_each(|id| self.read_at(id, now));
            }
            Input::Tick => {}
        }
        self.settle();
        if !self.is_command {
            self.tick();
        }
        self.flush();
        self.finish_shutdown();
    }

    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Returns when to call `handle` again at the latest. The moment has passed if the last input left timers that are due.
    pub fn next_timeout(&self) -> Option<Moment> {
        let ready = self.outbox.puts.is_ready() || self.outbox.deletions.is_ready();
        let ready = ready || !self.sessions.awake.is_empty();
        let of_all = [
            self.timers.next(),
            self.waits_for_more(ready && self.lost.is_none()).then_some(self.now),
            self.silence_due(),
            self.rests_until,
            self.names.lingering_until(),
            self.outbox.retry_at,
            self.shutdown.due(),
        ];
        of_all.into_iter().flatten().min()
    }

    /// Does what is due for many calls: silence of etcd, lingering keys, refused deletions, and the grace period of a shutdown.
    fn tick(&mut self) {
        let now = self.now;
        let is_due = |due: Option<Moment>| due.is_some_and(|due| due <= now);
        if is_due(self.silence_due()) {
            let (came, why) = (now - self.settings.connect_timeout, self.silence());
            self.turn_away(came, self.budget, true, &why);
        }
        if is_due(self.names.lingering_until()) {
            self.names.end_lingering(now, BUDGET);
        }
        if is_due(self.outbox.retry_at) {
            self.outbox.retry_refused();
        }
        if self.shutdown.stop(now) {
            let holding = self.calls.holding().into_iter();
            holding.for_each(|call| self.lose_call(call, LossCause::Shutdown));
            self.turn_away(now, usize::MAX, true, &Refused::ShuttingDown);
        }
    }

    /// Gives each changed name its next step, and fires due timers within the budget.
    fn settle(&mut self) {
        loop {
            step();
            if let Some(name) = self.names.dirty.pop_first() {
                self.serve(name);
            } else if self.budget > 0
                && let Some(timer) = self.timers.pop(self.now)
            {
                self.budget -= 1;
                self.fire(timer);
            } else {
                return;
            }
        }
    }

    fn fire(&mut self, timer: Timer) {
        match timer {
            Timer::Call(call) => self.call_due(call),
            Timer::Contender(id) => self.attend(id),
            Timer::Session(session) => drop(self.sessions.wake(session)),
            Timer::Rest(name) => {
                let is_idle = |it: &Name| it.waiters.is_empty() && it.contenders.is_empty();
                if self.names.get(name).is_some_and(is_idle) {
                    self.outputs.extend(self.view.close(name, |_| true));
                    self.names.touch(name);
                }
            }
        }
    }

    /// Takes in the result of a request.
    fn answer(&mut self, request: RequestId, result: Result<Response, Failure>) {
        let Some(exchange) = self.under_way.remove(&request) else { return };
        match &result {
            _ if matches!(exchange, Exchange::Session(..)) => {} // it has its own pauses
            Err(Failure::Unavailable(_)) if self.rests_until.is_none() => {
                self.rests_until = Some(self.now + self.jitter.pause(self.refusals));
                self.refusals += 1;
            }
            Ok(_) => self.refusals = 0,
            Err(_) => {}
        }
        let txn = Response::txn;
        match exchange {
            Exchange::Session(id, asked) => {
                for need in self.sessions.answered(self.now, id, asked, result, &mut self.jitter) {
                    self.meet(id, need);
                }
            }
            Exchange::Revocation(lease) => {
                let unanswered =
                    matches!(result, Err(Failure::Unavailable(_) | Failure::Unknown(_)));
                // It is sent again, because its keys would block their names for a TTL (rule P36).
                let again = unanswered && self.shutdown != Shutdown::Finished;
                self.sessions.revocations.extend(again.then_some(lease));
            }
            Exchange::Put(units, deletions) => self.put(units, deletions, result.and_then(txn)),
            Exchange::Delete(deletions) => self.deleted(deletions, result.and_then(txn)),
            Exchange::Read(reads) => self.read(reads, result.and_then(txn)),
            Exchange::Describe(count, keys) => self.described(count, &keys, result.and_then(txn)),
            Exchange::Search(reads) => self.searched(reads, result.and_then(txn)),
            Exchange::Abort(call, own, cycle) => {
                self.aborted(call, &own, &cycle, result.and_then(txn));
            }
        }
    }

    /// Sends what is ready, in as few transactions as possible, within the windows. What other processes wait for goes first.
    fn flush(&mut self) {
        self.flush_sessions();
        if self.lost.is_some() || self.rests_until.is_some() {
            return;
        }
        if self.outbox.puts.is_ready() && !self.waits_for_more(true) {
            // Lingering keys join these puts. Deleted a moment later in a separate transaction, they would cost one more commit.
            self.names.end_lingering(self.now, LOCKS);
            self.settle();
            self.flush_sessions();
        }
        self.flush_puts();
        while !self.waits_for_more(self.outbox.deletions.is_ready())
            && let Some(deletions) = self.outbox.deletions.next(|_| Some(1))
        {
            let txn = transactions::delete(&deletions);
            self.send(Request::Txn(txn), Exchange::Delete(deletions));
        }
        while let Some(lease) = self.sessions.revocations.pop() {
            self.send(Request::Revoke(lease), Exchange::Revocation(lease));
        }
        self.flush_reads();
        self.flush_descriptions();
        while let Some((reads, txn)) = self.searches.next_reads() {
            self.send(Request::Txn(txn), Exchange::Search(reads));
        }
    }

    /// Returns true if what is ready waits until the next tick, so that other calls can add to it.
    fn waits_for_more(&self, ready: bool) -> bool {
        self.settings.defers && self.is_command && ready
    }

    /// Takes in that etcd responds again. Earlier requests no longer count. Renewals go first, to show whether it was wiped.
    fn back(&mut self) {
        (self.lost, self.rests_until) = (None, None);
        for (id, session) in &mut self.sessions.all {
            session.back(self.now);
            self.sessions.awake.insert(*id);
        }
        self.outbox.puts.reopen_window();
        self.outbox.deletions.reopen_window();
        self.outbox.records.reopen_window();
        self.view.reads.reopen_window();
        self.searches.reads.reopen_window();
    }

    /// Returns the refusal of a call that etcd does not serve.
    fn silence(&self) -> Refused {
        let cause = self.lost.as_ref().and_then(|(_, cause)| cause.as_ref());
        Refused::Backend(cause.unwrap_or(&self.settings.silence).clone())
    }

    fn send(&mut self, request: Request, exchange: Exchange) {
        self.last_request += 1;
        let id = RequestId(self.last_request);
        self.under_way.insert(id, exchange);
        self.outputs.push_back(Output::Send { id, request });
    }

    /// Returns when the call that has waited longest is refused because etcd is lost (rule P32).
    fn silence_due(&self) -> Option<Moment> {
        let (since, _) = self.lost.as_ref()?;
        Some(self.calls.first_waiting()?.max(*since) + self.settings.connect_timeout)
    }

    /// Returns true if calls wait. The transport then checks whether etcd is silent.
    pub fn has_waiters(&self) -> bool {
        self.calls.first_waiting().is_some()
    }

    /// Returns true if there is a session, so that calls hold locks or soon may.
    pub fn has_sessions(&self) -> bool {
        !self.sessions.all.is_empty()
    }

    /// Returns true if a deletion is pending or under way that etcd has not refused.
    fn has_deletes(&self) -> bool {
        let is_delete = |it: &Exchange| match it {
            Exchange::Delete(_) => true,
            Exchange::Put(.., deletions) => !deletions.is_empty(),
            _ => false,
        };
        !self.outbox.deletions.pending.is_empty() || self.under_way.values().any(is_delete)
    }

    /// Refuses up to `most` calls that have waited since `then`. Nested calls are refused only if `nested`.
    fn turn_away(&mut self, then: Moment, most: usize, nested: bool, why: &Refused) {
        for call in self.calls.waiting_since(then, most) {
            if nested || !self.calls.is_nested(call) {
                self.refuse(call, why.clone());
            }
        }
    }

    /// Ends the sessions once no body relies on one, or the grace period is over. Reports when that is done.
    fn finish_shutdown(&mut self) {
        if matches!(self.shutdown, Shutdown::Not | Shutdown::Finished) || self.has_waiters() {
            return;
        }
        let busy = self.sessions.all.values().any(|it| it.bodies > 0 && !it.is_lost());
        if busy && !self.shutdown.has_stopped() {
            return;
        }
        let over = self.now >= self.shutdown.bid_farewell(self.now);
        if over || !self.has_deletes() {
            // A session whose body does not end is left to expire.
            let idle = self.sessions.all.iter().filter(|(_, session)| session.bodies == 0);
            for id in idle.map(|(id, _)| *id).collect::<Vec<_>>() {
                self.meet(id, Need::End);
            }
            self.flush();
        }
        let of_leases = |it: &Exchange| {
            matches!(it, Exchange::Session(_, (_, Asked::Grant)) | Exchange::Revocation(_))
        };
        let leases =
            self.under_way.values().any(of_leases) || !self.sessions.revocations.is_empty();
        if over || !(busy || self.has_deletes() || leases) {
            self.shutdown = Shutdown::Finished;
            self.outputs.push_back(Output::Finished);
        }
    }
}
