//! Serving: the way of a call, from its arrival through its queues to its grant, and back through its release; or out of a cycle.
//!
//! `None` says that what a method is about is gone, or that nothing is to be done.

use super::{Core, Exchange, SLOWLY};
use crate::calls::{Call, Waiting};
use crate::contender::{Contender, Purpose, State};
use crate::deadlock::edges::Write;
use crate::deadlock::{Cycle, Edge, STEP};
use crate::ids::{CallId, ContenderId, Incarnation, Key, LeaseId, Name, SessionId};
use crate::input::{Acquire, Release, Wait};
use crate::loss::LossCause;
use crate::observe::{GUARD_AFTER, WARM};
use crate::output::{Blocker, Grant, Output, Owner, Refused};
use crate::ownership::{Gate, Ownership};
use crate::request::{Failure, Op, Refusal, Request, Response, TxnAnswer};
use crate::retention::Step;
use crate::seat::Mode;
use crate::session::Session;
use crate::steps::step;
use crate::timers::Timer;
use crate::transactions::{self, Deletion, Outcome};
use crate::wait_queue::{Place, WaitQueue};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// How long a release waits for its confirmation (rule P25).
const CONFIRM: Duration = Duration::from_secs(2);

/// What has lingered goes together, once in so long, or with the next puts: a delete that goes alone is one commit more at etcd.
const TOGETHER: Duration = Duration::from_millis(2);

/// How long a call that gives up waits for its edges to be deleted.
const CLEARING: Duration = Duration::from_secs(2);

/// When to see again whether etcd works on a single try that has waited for long.
const AGAIN: Duration = Duration::from_millis(500);

/// How a call comes into its queues, and out of them without its locks.
impl Core {
    /// A call has come.
    pub(super) fn acquire(&mut self, acquire: Acquire) {
        let (call, mode) = (acquire.call, acquire.mode);
        let mut holds = acquire.holds.iter();
        let nested = holds.any(|of| self.calls.holding(*of).is_some());
        if self.shutdown.refuses(nested) {
            return self.turn_down(call, Refused::ShuttingDown);
        }
        let waits = acquire.wait != Wait::Once;
        // A nested call is let in, though it counts: other calls wait for its task, whose work would be in vain.
        let most = self.settings.max_waiters.filter(|_| waits && !nested);
        if most.is_some_and(|most| self.calls.waiters() >= most) {
            return self.turn_down(call, Refused::Overloaded);
        }
        let names = self.queues.intern(acquire.names);
        let group = names.len() > 1;
        let taken = !waits && self.queues.are_taken(&names, mode);
        let ticket = self.queues.enqueue(&names, call, mode, !waits);
        let until = match acquire.wait {
            Wait::For(wait) => Some(self.now + wait),
            // It waits for no holder, only for etcd.
            Wait::Once => Some(self.now + self.exchanges.patience()),
            Wait::Forever => None,
        };
        let waiting = Waiting { ticket, tries: !waits, requeued: 0 };
        let purpose = Purpose { names: names.clone(), mode, ttl_secs: acquire.ttl_secs };
        let new = Call::new(self.now, purpose, acquire.record, waiting);
        self.calls.add(call, new, acquire.holds);
        if taken {
            return self.refuse_try(call);
        }
        if let Some(until) = until {
            self.timers.set(Timer::Wait(call), until);
        }
        for name in &*names {
            self.end_lingering(name);
            // Behind another it changes nothing; but a single try is not to wait.
            if !waits || self.queues.head(name) == Some(call) {
                self.work.push(name);
            }
        }
        if waits && (nested || group) {
            let step = self.jittered(STEP);
            self.timers.set(Timer::Cycle(call), self.now + step);
        }
        if nested {
            self.refuse_in_cycle_here(call);
        }
    }

    pub(super) fn turn_down(&mut self, call: CallId, why: Refused) {
        self.outputs.push_back(Output::Refused { call, why });
    }

    /// Refuses a waiting call.
    pub(super) fn refuse(&mut self, call: CallId, why: Refused) {
        if self.withdraw(call).is_some() {
            self.turn_down(call, why);
        }
    }

    /// Takes a waiting call out of its queues.
    pub(super) fn withdraw(&mut self, call: CallId) -> Option<()> {
        let ticket = self.calls.waiting(call)?.ticket;
        let gone = self.calls.remove(call)?;
        self.queues.leave(gone.names(), ticket);
        self.stops_waiting(call);
        gone.names().iter().for_each(|name| self.work.push(name));
        Some(())
    }

    fn stops_waiting(&mut self, call: CallId) {
        self.timers.cancel(&Timer::Wait(call));
        self.timers.cancel(&Timer::Cycle(call));
        self.edges.release(call);
    }

    /// Single tries for these names would have to wait: they are refused.
    fn refuse_tries(&mut self, names: &[Name]) {
        for call in self.queues.tries(names) {
            self.refuse_try(call);
        }
    }

    /// Refuses a call that would have to wait, if it is a single try.
    fn refuse_try(&mut self, call: CallId) {
        if self.calls.get(call).is_some_and(Call::is_try) {
            let (name, owner) = self.obstacle(call, |_| true).unwrap_or_default();
            self.refuse(call, Refused::Held { name, owner });
        }
    }

    /// The wait of a call is over; that of a single try only if etcd does nothing for it.
    pub(super) fn wait_over(&mut self, call: CallId) {
        if self.calls.get(call).is_some_and(Call::is_try) && self.is_worked_on(call) {
            return self.timers.set(Timer::Wait(call), self.now + AGAIN);
        }
        // Edges that rest on its wait must be gone before its caller goes on: another process might follow them to a cycle that
        // is none.
        let waits = self.calls.waiting(call).is_some();
        if waits && !self.edges.is_leaving(call) && self.unpublish(call) {
            self.timers.cancel(&Timer::Cycle(call));
            return self.timers.set(Timer::Wait(call), self.now + CLEARING);
        }
        let why = self.why_not(call);
        self.refuse(call, why);
    }

    /// Whether etcd works on a name of a waiting call. It does if it is not silent, and a put for the name is under way, in
    /// line, or behind a recent barrier. It does too if it lately answered about the name.
    fn is_worked_on(&self, id: CallId) -> bool {
        let lately = self.now - self.exchanges.patience();
        let silent = self.exchanges.gives_up(self.now).is_some();
        let Some(call) = self.calls.get(id) else {
            return false;
        };
        let mut queues = call.names().iter().filter_map(|name| self.queues.get(name));
        queues.any(|queue| {
            let in_line = queue.in_line().and_then(|id| self.contenders.get(id));
            let unanswered = in_line.filter(|it| it.created().is_none());
            let session = unanswered.and_then(|it| self.sessions.get(it.session()));
            let goes_on = session.is_some_and(|it| it.is_open() || it.is_barred_since(lately));
            (goes_on && !silent) || queue.was_heard_since(lately)
        })
    }

    /// What a call learns whose wait is over: which of its names is taken, or that etcd has said nothing of any. Silence is never
    /// taken for held.
    pub(super) fn why_not(&self, id: CallId) -> Refused {
        let Some(call) = self.calls.get(id) else {
            return Refused::ShuttingDown;
        };
        if call.is_try() {
            return Refused::Backend(self.exchanges.cause());
        }
        let unanswered = |queue: &WaitQueue| {
            let in_line = queue.in_line().and_then(|id| self.contenders.get(id));
            in_line.is_some_and(|it| it.created().is_none()) && !queue.was_heard_since(call.since())
        };
        let heard = |name: &Name| !self.queues.get(name).is_some_and(unanswered);
        let obstacle = self.obstacle(id, heard);
        // A group waited for another name, and its put has no answer yet: etcd is not silent.
        let heard = || Some((call.names().iter().position(heard)?, None));
        match obstacle.or_else(heard) {
            Some((name, owner)) => {
                Refused::Timeout { name, owner, waited: self.now - call.since() }
            }
            None => Refused::Backend(self.exchanges.cause()),
        }
    }

    /// The first name that a call cannot have, of those that `counts` admits, and its owner. One with a known owner goes
    /// first.
    fn obstacle(
        &self,
        id: CallId,
        counts: impl Fn(&Name) -> bool,
    ) -> Option<(usize, Option<Owner>)> {
        let names = self.calls.get(id)?.names();
        let mut held = names.iter().enumerate().filter(|(_, name)| counts(name));
        let held = held.find_map(|(at, name)| Some((at, Some(self.owner(name)?))));
        let queued = |name: &Name| counts(name) && self.queues.head(name) != Some(id);
        held.or_else(|| Some((names.iter().position(queued)?, None)))
    }

    /// Who has a name: a call of this process that has not lost it, or another process.
    fn owner(&self, name: &Name) -> Option<Owner> {
        let queue = self.queues.get(name)?;
        let own = |id: ContenderId| {
            let contender = self.contenders.get(id)?;
            let session = self.sessions.get(contender.session());
            let lost = contender.ownership().is_some_and(Ownership::is_lost);
            if lost || session.is_some_and(Session::is_lost) {
                return None;
            }
            let record = contender.ownership().and_then(|it| self.record_of(it));
            Some(Owner {
                record: record.unwrap_or_else(|| contender.record().clone()),
                unleased: None,
            })
        };
        let held = queue.held().find_map(own);
        held.or_else(|| queue.owner().cloned())
    }

    /// The record of the first holder; once that call has held its lock for a second, it says since when.
    pub(super) fn record_of(&self, ownership: &Ownership) -> Option<Arc<[u8]>> {
        let call = self.calls.get(ownership.holders().next()?)?;
        let waited = ownership.got() - call.since();
        Some(match self.now - ownership.got() < GUARD_AFTER {
            true => call.record().clone(),
            false => (self.settings.describe)(call.record(), waited),
        })
    }
}

/// How the head of a queue comes to its locks.
impl Core {
    /// Takes the next step for the head of a name's queue.
    pub(super) fn serve(&mut self, name: &Name) -> Option<()> {
        let queue = self.queues.get(name)?;
        let in_line = queue.in_line();
        let Some(head) = queue.head() else {
            if let Some(idle) = in_line {
                self.give_up(idle);
            }
            return self.retire_name(name);
        };
        let names = self.calls.get(head)?.names().clone();
        if !self.queues.is_head(&names, head) {
            // The head is a group that waits for its other names: the contender of an earlier call must not stand in the way.
            return in_line.map(|id| self.give_up(id));
        }
        let in_line = self.queues.in_line(&names);
        let Some(first) = in_line.first() else {
            return self.claim(head);
        };
        if self.served_by(*first) == Some(head) {
            return self.serve_by(*first, head);
        }
        for id in in_line {
            self.give_up(id);
        }
        match self.queues.in_line(&names).is_empty() {
            true => self.work.push(name),
            false => self.refuse_try(head),
        }
        Some(())
    }

    /// The call that a contender in line would serve.
    pub(super) fn served_by(&self, id: ContenderId) -> Option<CallId> {
        let contender = self.contenders.get(id).filter(|it| !it.is_detached())?;
        self.fitting_head(contender)
    }

    /// The call at the head of all names of a contender, if it wants just what that was put for.
    fn fitting_head(&self, contender: &Contender) -> Option<CallId> {
        let head = self.queues.head(contender.names().first()?)?;
        let fits = contender.purpose().serves(self.calls.get(head)?.purpose());
        (fits && self.queues.is_head(contender.names(), head)).then_some(head)
    }

    /// The head of the queue has a contender in line.
    fn serve_by(&mut self, id: ContenderId, call: CallId) -> Option<()> {
        let contender = self.contenders.get(id)?;
        if !matches!(contender.state(), State::Waiting { .. }) {
            return None;
        }
        if contender.is_admitted() {
            return self.grant_if_fresh(id, call);
        }
        let names = contender.names().clone();
        if contender.must_wait() && self.queues.have_tries(&names) {
            match names.iter().any(|name| self.owner(name).is_some()) {
                true => self.refuse_tries(&names),
                false => self.observe.read(id, true), // tells who it is
            }
        }
        Some(())
    }

    /// The head of the queue has no contender in line: it joins one that is held, or gets its own.
    fn claim(&mut self, call: CallId) -> Option<()> {
        let wanted = self.calls.get(call)?;
        let (purpose, record) = (wanted.purpose().clone(), wanted.record().clone());
        let tries = wanted.is_try();
        match self.joinable(&purpose) {
            Some((id, Gate::Open)) => return self.grant_if_fresh(id, call),
            Some((id, Gate::Unknown)) => {
                self.ask_behind(id);
                return None;
            }
            Some((_, Gate::Closed)) | None => {}
        }
        let names = purpose.names.clone();
        let Some(seats) = self.queues.free_seats(&names, purpose.mode) else {
            // A key of ours that is on its way out is no holder: its answer decides.
            if self.queues.are_held(&names) {
                self.refuse_tries(&names);
            }
            return None;
        };
        let session = self.sessions.choose(self.now, purpose.ttl_secs);
        let contender = Contender::new(session, purpose, seats.clone(), record, tries);
        let id = self.contenders.add(contender);
        self.queues.claim(&names, id, &seats);
        self.sessions.attach(self.now, session, id, seats.len());
        Some(())
    }

    /// The youngest key of readers that hold just these names, and whether another may join them.
    fn joinable(&self, purpose: &Purpose) -> Option<(ContenderId, Gate)> {
        if purpose.mode != Mode::Shared {
            return None;
        }
        let queue = self.queues.get(purpose.names.first()?)?;
        queue.held().rev().find_map(|id| {
            crate::steps::step();
            let contender = self.contenders.get(id)?;
            let accepts = self.sessions.get(contender.session())?.accepts();
            let gate = contender.ownership()?.gate(self.now);
            (accepts && contender.purpose().serves(purpose)).then_some((id, gate))
        })
    }

    /// The contender may serve the call: all its keys are admitted, or readers hold it. Grants it, or renews the session first
    /// (rule P12).
    fn grant_if_fresh(&mut self, id: ContenderId, call: CallId) -> Option<()> {
        let contender = self.contenders.get(id)?;
        let session_id = contender.session();
        if self.sessions.get(session_id)?.is_fresh(self.now) {
            return self.grant(id, call);
        }
        let name = contender.names().first()?.clone();
        self.sessions.wake(session_id)?.wants_fresh(name);
        Some(())
    }

    /// The call has its locks: by a contender of its own, together with readers, or from a call before it.
    fn grant(&mut self, id: ContenderId, call: CallId) -> Option<()> {
        let waiting = self.calls.waiting(call)?;
        let names = self.calls.get(call)?.names().clone();
        let contender = self.contenders.get_mut(id)?;
        let session = self.sessions.get_mut(contender.session())?;
        let deadline = session.deadline()?.clone();
        if contender.is_in_line() {
            session.add_body();
            self.queues.place(&names, id, Place::Held);
            self.searches.forget(id);
            self.timers.set(Timer::Read(id), self.now + GUARD_AFTER);
        }
        let ownership = contender.ownership_mut();
        if ownership.is_some_and(|it| it.lingers() && it.set_described(false)) {
            let due = self.now + GUARD_AFTER;
            self.timers.set(Timer::Describe(id), due);
        }
        if contender.grant(self.now, call) {
            self.observe.read(id, true);
        }
        let owned = names.iter().filter_map(|name| contender.owned(name));
        let grant = Grant { call, mode: contender.mode(), owned: owned.collect(), deadline };
        self.queues.leave(&names, waiting.ticket);
        self.calls.hold(call, id);
        self.stops_waiting(call);
        names.iter().for_each(|name| self.work.push(name));
        self.outputs.push_back(Output::Granted(grant));
        Some(())
    }
}

/// How what a call held goes on without it.
impl Core {
    /// The body of a call is gone: now its keys may go, to the next call in this process or for good (rules P23, P26).
    pub(super) fn release(&mut self, call: CallId, how: Release, fenced: bool) -> Option<()> {
        let id = self.calls.holding(call)?;
        let gone = self.calls.remove(call)?;
        if how == Release::Confirmed {
            self.calls.release(call, id);
        }
        self.leave(id, (call, &gone), how, fenced);
        if self.calls.is_releasing(id) {
            self.timers.set(Timer::Confirm(id), self.now + CONFIRM);
        }
        Some(())
    }

    /// A call does not hold a contender any more: its keys stay with others, or for a while, or go.
    fn leave(
        &mut self,
        id: ContenderId,
        (call, gone): (CallId, &Call),
        how: Release,
        fenced: bool,
    ) -> Option<()> {
        let contender = self.contenders.get_mut(id)?;
        let session = contender.session();
        let ownership = contender.ownership_mut();
        let last = ownership.is_none_or(|ownership| ownership.leave(call));
        let lingers = how == Release::Lingering && !fenced && self.may_linger(id);
        if !last {
            let loss = self.sessions.get(session).and_then(Session::loss);
            let lost = loss.map(|cause| Refused::Lost { cause });
            self.confirm(id, lost.map_or(Ok(()), Err))
        } else if self.retain(id, gone).is_some() {
            Some(())
        } else if lingers {
            self.contenders.linger(self.now, id);
            self.set_linger_timer()
        } else {
            self.pass_on(id, fenced)
        }
    }

    /// No body has a contender any more: the next call of this process has it, or its keys are deleted.
    fn pass_on(&mut self, id: ContenderId, fenced: bool) -> Option<()> {
        if let Some(heir) = self.heir(id).filter(|_| !fenced) {
            self.grant(id, heir);
            return self.confirm(id, Ok(()));
        }
        let contender = self.contenders.get(id)?;
        let (session_id, names) = (contender.session(), contender.names().clone());
        let loss = self.sessions.get_mut(session_id).and_then(|session| {
            session.drop_body();
            session.loss()
        });
        self.delete(id);
        if let Some(cause) = loss {
            // Best effort will do: the next contender has another session, and so another key.
            self.detach(id);
            self.confirm(id, Err(Refused::Lost { cause }));
        }
        self.revoke_if_over(session_id);
        names.iter().for_each(|name| self.work.push(name));
        Some(())
    }

    /// The call that may take over what another call held: only one that receives all its names in that step (rule P23).
    fn heir(&self, id: ContenderId) -> Option<CallId> {
        let contender = self.staying(id)?;
        let heir = self.fitting_head(contender)?;
        let same = self.calls.get(heir)?.mode() == contender.mode();
        (same && contender.mode() != Mode::Shared).then_some(heir)
    }

    /// A contender whose keys may stay in this process after their body.
    fn staying(&self, id: ContenderId) -> Option<&Contender> {
        let contender = self.contenders.get(id)?;
        let session = self.sessions.get(contender.session())?;
        let sound = session.accepts() && session.is_fresh(self.now);
        let passes = contender.ownership()?.may_pass(self.now);
        (sound && passes && !self.edges.are_of(id)).then_some(contender)
    }

    /// Whether keys may stay a moment after their body: nobody waits for them, as far as this process knows.
    fn may_linger(&self, id: ContenderId) -> bool {
        let unwanted = |contender: &Contender| {
            let contended = contender.ownership().is_none_or(Ownership::is_contended);
            let alone = contender.mode() == Mode::Exclusive && !contended;
            alone && self.queues.are_unwanted(contender.names(), self.now)
        };
        !self.shutdown.has_begun() && self.staying(id).is_some_and(unwanted)
    }

    /// A call has come for a name that lingers: it takes it over, or it goes.
    fn end_lingering(&mut self, name: &Name) -> Option<()> {
        let id = self.queues.get(name)?.held().next()?;
        self.linger_over(id)
    }

    /// A contender does not linger any longer, if it does.
    pub(super) fn linger_over(&mut self, id: ContenderId) -> Option<()> {
        let ownership = self.contenders.get(id)?.ownership()?;
        ownership.lingers().then_some(())?;
        self.pass_on(id, false)
    }

    /// Deletes the keys that have lingered for as long as they may.
    pub(super) fn delete_lingered(&mut self) {
        while let Some(id) = self.contenders.next_lingered(self.now) {
            self.linger_over(id);
        }
        self.set_linger_timer();
    }

    /// Sets the timer of the keys that linger.
    fn set_linger_timer(&mut self) -> Option<()> {
        let until = self.contenders.lingers_until()?;
        self.timers.set_by(Timer::Linger, until.rounded_up(TOGETHER));
        Some(())
    }

    /// Reports to the caller whose release waits for a contender how that ended, once.
    pub(super) fn confirm(&mut self, id: ContenderId, result: Result<(), Refused>) -> Option<()> {
        let call = self.calls.released(id)?;
        self.timers.cancel(&Timer::Confirm(id));
        self.outputs.push_back(Output::Released { call, result });
        Some(())
    }

    /// A holding call has lost its locks: all of them, and its caller learns of it once (rule P13).
    pub(super) fn lose_call(&mut self, call: CallId, cause: LossCause) {
        if self.calls.lose(call) {
            self.outputs.push_back(Output::Lost { call, cause });
        }
    }
}

/// How contenders, and names, are given up.
impl Core {
    /// No call wants a contender that is in line: its keys go, once it is known which there are.
    pub(super) fn give_up(&mut self, id: ContenderId) {
        match self.contenders.get(id).map(Contender::state) {
            Some(State::Pending { .. }) => self.remove(id),
            Some(State::Waiting { .. }) => self.delete(id),
            _ => {}
        }
    }

    /// Sends the keys of a contender off.
    pub(super) fn delete(&mut self, id: ContenderId) {
        let contender = self.contenders.get_mut(id);
        let deleted = contender.map(|it| (it.created(), it.delete(), it));
        let Some((created, true, contender)) = deleted else {
            return;
        };
        self.queues.place(contender.names(), id, Place::Closing);
        self.batch.delete(Deletion {
            contender: id,
            session: contender.session(),
            keys: contender.keys().cloned().collect(),
            created,
            edges: self.edges.are_of(id),
        });
        self.stops_being_observed(id);
    }

    /// A contender is gone for good.
    pub(super) fn remove(&mut self, id: ContenderId) {
        self.detach(id);
        let Some(contender) = self.contenders.remove(id) else {
            return;
        };
        self.stops_being_observed(id);
        self.edges.forget(id);
        self.sessions.detach(self.now, contender.session(), id);
        self.confirm(id, Ok(()));
    }

    /// The names of a contender go on without it, whatever becomes of its keys.
    pub(super) fn detach(&mut self, id: ContenderId) {
        let contender = self.contenders.get_mut(id);
        if let Some(contender) = contender.filter(|it| !it.is_detached()) {
            contender.detach();
            self.queues.place(contender.names(), id, Place::Gone);
            let names = contender.names().iter();
            names.for_each(|name| self.work.push(name));
        }
    }

    fn stops_being_observed(&mut self, id: ContenderId) {
        self.timers.cancel(&Timer::Read(id));
        self.timers.cancel(&Timer::Describe(id));
        self.searches.forget(id);
    }

    /// No call wants a name: forgets it, at once if it is not watched, else a little later with its watch.
    fn retire_name(&mut self, name: &Name) -> Option<()> {
        self.queues.get(name).filter(|queue| queue.is_idle())?;
        match self.observe.is_watched(name) {
            true => self.timers.set(Timer::Rest(name.clone()), self.now + WARM),
            false => self.queues.forget(name),
        }
        Some(())
    }

    /// A name has not been wanted for a while: stops watching it.
    pub(super) fn rest(&mut self, name: &Name) {
        if self.queues.get(name).is_none_or(WaitQueue::is_idle) {
            self.outputs.extend(self.observe.close(name, |_| true));
            self.queues.forget(name);
        }
    }
}

/// What stays locked after its call (rule P39).
impl Core {
    /// The body of a call has ended before its time: keeps its names locked. `None` if there is nothing to keep.
    fn retain(&mut self, id: ContenderId, gone: &Call) -> Option<()> {
        let until = gone.keep().filter(|until| *until > self.now)?;
        let contender = self.contenders.get_mut(id)?;
        let alive = self.sessions.get(contender.session())?.is_alive();
        let lost = contender.ownership()?.is_lost() || contender.mode() == Mode::Shared;
        if !alive || lost {
            return None;
        }
        contender.retain(until, gone.record().clone());
        self.stops_being_observed(id);
        self.retain_on(id);
        Some(())
    }

    /// Takes the next step of a retention: asks for its lease, puts the keys under it, or ends it.
    pub(super) fn retain_on(&mut self, id: ContenderId) -> Option<()> {
        let until = self.contenders.get_mut(id)?.retention()?.until();
        if until <= self.now {
            return self.retention_over(id);
        }
        self.timers.set(Timer::Retention(id), until);
        if !self.may_send() {
            let pause = self.pause(self.exchanges.failures());
            let at = until.min(self.now + pause);
            self.timers.set(Timer::Retention(id), at);
            return None;
        }
        let contender = self.contenders.get_mut(id)?;
        let (request, lease) = match contender.retention()?.step(self.now)? {
            Step::Reserve(ttl_secs) => (Request::Reserve(ttl_secs), None),
            Step::Move(lease, record) => {
                let created = contender.created()?;
                let keys = contender.keys().map(|key| (key.clone(), created));
                let txn = transactions::retain(&keys.collect::<Vec<_>>(), lease, &record);
                (Request::Txn(txn), Some(lease))
            }
        };
        self.send(request, Exchange::Retain(id, lease));
        Some(())
    }

    /// A step of a retention was answered, or not; `lease`: the one that its keys were put under.
    pub(super) fn retained(
        &mut self,
        id: ContenderId,
        lease: Option<LeaseId>,
        result: Result<Response, Failure>,
    ) -> Option<()> {
        let lease = match &result {
            Ok(Response::Granted { lease, .. }) => Some(*lease),
            Err(Failure::Refused(Refusal::LeaseNotFound, _)) => None,
            _ => lease,
        };
        let contender = self.contenders.get_mut(id);
        let Some(retention) = contender.and_then(Contender::retention) else {
            self.sessions.revoke(lease);
            return None;
        };
        retention.answered(lease);
        let answer = match result {
            Ok(Response::Txn(answer)) => answer,
            Ok(_) => return self.retain_on(id),
            // As long as there is time, it is sent again.
            Err(failure) => {
                let failures = match failure {
                    Failure::Unavailable(_) | Failure::Unknown(_) => self.exchanges.failures(),
                    Failure::Refused(..) => {
                        self.confirm(id, Err(Refused::by(failure)));
                        SLOWLY
                    }
                };
                let again = self.now + self.pause(failures);
                let until = self.contenders.get_mut(id)?.retention()?.until();
                self.timers.set(Timer::Retention(id), until.min(again));
                return None;
            }
        };
        if answer.succeeded {
            retention.moved();
            self.read_retained_later(id);
            self.confirm(id, Ok(()));
            return self.leave_lease(id);
        }
        let contender = self.contenders.get(id)?;
        let created = answer.firsts().map(|kv| kv.map(|kv| kv.create_revision));
        let gone = contender.keys().zip(created);
        let gone = gone.filter(|(_, created)| *created != contender.created());
        let gone: Vec<Key> = gone.map(|(key, _)| key.clone()).collect();
        self.retained_without(id, &gone)
    }

    /// Another client has taken keys away, or etcd has lost its history: the names of the keys that are left stay locked.
    pub(super) fn retained_without(&mut self, id: ContenderId, gone: &[Key]) -> Option<()> {
        match self.contenders.drop_parts(id, gone) {
            0 => self.retention_over(id),
            _ => self.retain_on(id),
        }
    }

    /// The time of a retention is over, or all its keys are gone: what is left goes.
    fn retention_over(&mut self, id: ContenderId) -> Option<()> {
        let (moved, lease) = self.contenders.get_mut(id)?.retention()?.rest();
        self.timers.cancel(&Timer::Retention(id));
        if !moved {
            self.leave_lease(id);
        }
        self.sessions.revoke(lease);
        match self.contenders.get(id)?.parts().is_empty() {
            true => self.remove(id),
            false => self.delete(id),
        }
        Some(())
    }

    /// The session that retained keys were under has done its duty.
    fn leave_lease(&mut self, id: ContenderId) -> Option<()> {
        let session_id = self.contenders.get(id)?.session();
        let session = self.sessions.get_mut(session_id)?;
        session.drop_body();
        self.sessions.detach(self.now, session_id, id);
        self.revoke_if_over(session_id);
        Some(())
    }
}

/// How deadlocks are looked for, and cut (rule P38).
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
            step();
            if held.contains(&of) {
                let before = |of: &CallId| from.get(of).copied();
                let path = std::iter::successors(Some(of), before);
                let mut path: Vec<CallId> = path.take_while(|of| *of != call).collect();
                path.reverse();
                return Err(path);
            }
            let mut ahead: Vec<CallId> = self.calls.inner(of).collect();
            let ticket = self.calls.waiting(of).map(|waiting| waiting.ticket);
            for (name, mode) in self.waits_for(of) {
                if let Some(queue) = self.queues.get(name)
                    && seen.insert((name, mode))
                {
                    stalled.extend(self.stalled(queue));
                    let held = queue.excluding(mode);
                    let held = held.filter_map(|id| self.contenders.get(id)?.held());
                    ahead.extend(held.flat_map(Ownership::holders));
                    ahead.extend(ticket.into_iter().flat_map(|it| queue.ahead_of(it)));
                }
            }
            for to in ahead {
                step();
                from.entry(to).or_insert_with(|| {
                    next.push_back(to);
                    of
                });
            }
        }
        Ok(stalled)
    }

    /// The names a waiting call wants, and as what, whatever its number of permits.
    fn waits_for(&self, id: CallId) -> impl Iterator<Item = (&Name, Mode)> {
        let call = self.calls.get(id).filter(|it| it.waiting().is_some());
        let call = call.filter(|_| !self.edges.is_leaving(id)).into_iter();
        call.flat_map(|it| it.names().iter().map(|name| (name, it.mode().alike())))
    }

    /// The key of this process that waits in line, and has done so for a while.
    fn stalled(&self, queue: &WaitQueue) -> Option<(ContenderId, Incarnation)> {
        let (head, id) = (queue.head()?, queue.in_line()?);
        let key = self.contenders.get(id)?.stalled(self.now)?;
        (!self.edges.is_leaving(head)).then_some((id, key))
    }

    /// Sends a group to the end of its queues, and takes its keys back.
    fn step_back(&mut self, call: CallId) -> Option<()> {
        let group = self.calls.get(call)?;
        let (names, mode, ticket) = (group.names().clone(), group.mode(), group.waiting()?.ticket);
        let own = self.queues.get(names.first()?)?.in_line();
        let own = own.filter(|id| self.served_by(*id) == Some(call));
        self.queues.leave(&names, ticket);
        let ticket = self.queues.enqueue(&names, call, mode, false);
        self.calls.requeue(call, ticket);
        names.iter().for_each(|name| self.work.push(name));
        self.give_up(own?);
        Some(())
    }

    /// The wait of a call is over: withdraws the edges that rest on it, its own, and those of calls that wait for its task. True if
    /// some have to be deleted at etcd first.
    pub(super) fn unpublish(&mut self, call: CallId) -> bool {
        if self.edges.is_empty() {
            return false;
        }
        let is_group = |of| self.calls.get(of).is_some_and(Call::is_group);
        let mut resting = BTreeSet::from([call]);
        let mut next = vec![call];
        let mut seen = BTreeSet::new();
        while let Some(of) = next.pop() {
            // All that stand where a group waits on may depend on it; and on what a task holds.
            let stays = of != call && is_group(of);
            let group = self.waits_for(of).filter(|_| stays).map(|(name, _)| name);
            let whole = self.held_names(of).chain(group);
            let whole = whole.filter(|name| seen.insert(*name));
            let whole = whole.filter_map(|name| self.queues.get(name));
            let relying = (!stays).then(|| self.relying_on(of));
            for other in whole.flat_map(WaitQueue::waiters).chain(relying.into_iter().flatten()) {
                step();
                let hands_on = is_group(other) || self.calls.is_nested(other);
                if hands_on && resting.insert(other) {
                    next.push(other);
                }
            }
        }
        let held = resting.iter().flat_map(|of| self.calls.outer(*of));
        let leaves = self.edges.leave(call, held.map(|(_, id)| id));
        if leaves && let Some(gone) = self.calls.get(call) {
            let ticket = gone.waiting().map(|it| it.ticket);
            self.queues.pass_over(gone.names(), ticket);
        }
        for of in resting.into_iter().filter(|_| leaves) {
            if !self.waits_by_itself(of) {
                self.claim_edges(of);
            }
        }
        leaves && self.edges.must_clear(call)
    }

    /// The names that the task of a call holds.
    fn held_names(&self, call: CallId) -> impl Iterator<Item = &Name> {
        let held = self.calls.outer(call).map(|(_, id)| id);
        let held = held.filter_map(|id| self.contenders.get(id));
        held.flat_map(|held| held.names().iter())
    }

    /// The waiters that depend on what a call waits for by it, and by no other call of its kind.
    fn relying_on(&self, call: CallId) -> impl Iterator<Item = CallId> {
        let ticket = self.calls.waiting(call).map(|waiting| waiting.ticket);
        let own = self.waits_for(call);
        let own = own.filter_map(move |(name, _)| Some(self.queues.get(name)?.relying_on(ticket?)));
        own.flatten()
    }

    /// Whether all edges of a call lead to what is in line for its own names.
    fn waits_by_itself(&self, call: CallId) -> bool {
        let own = self.waits_for(call);
        let own = own.filter_map(|(name, _)| Some(self.stalled(self.queues.get(name)?)?.1));
        let own: BTreeSet<Incarnation> = own.collect();
        let mut edges = self.edges.of(call);
        edges.all(|edge| own.contains(&edge.waits))
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
            Outcome::Refused => {
                let pause = self.pause(SLOWLY);
                self.timers.set_by(Timer::Deletes, self.now + pause);
            }
            Outcome::Unknown => {
                self.sessions.wake(id)?.bar(self.now, false);
            }
        }
        Some(())
    }

    fn refuse_deadlocked(&mut self, call: CallId, cycle: Arc<[Blocker]>) -> Option<()> {
        let first = cycle.first()?.key.clone();
        let parent = first.rsplit_once('/').map(|(name, _)| name);
        let is_first = |name: &Name| name.as_str() == &*first || parent == Some(name.as_str());
        let mut names = self.calls.get(call)?.names().iter();
        let name = names.position(is_first).unwrap_or(0);
        self.refuse(call, Refused::Deadlock { name, cycle });
        Some(())
    }
}
