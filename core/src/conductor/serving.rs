//! Serving: the way of a call, from its arrival through its queues to its grant, and back through its release.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::Core;
use crate::calls::{Arrival, Call, Stage, Tries, Waiting};
use crate::contender::{Contender, Purpose, State};
use crate::deadlock::STEP;
use crate::ids::{CallId, ContenderId, Name};
use crate::input::{Acquire, Release, Wait};
use crate::mistakes::{Mistake, mistake};
use crate::moment::Moment;
use crate::observe::{GUARD_AFTER, WARM};
use crate::output::{Grant, LossCause, Output, OwnedKey, Refused};
use crate::ownership::Gate;
use crate::seat::{Mode, Seat};
use crate::timers::Timer;
use crate::transactions::Deletion;
use crate::wait_queue::{WaitQueue, Waiter};

/// How long a release waits for its confirmation (rule P25).
pub(super) const CONFIRM: Duration = Duration::from_secs(2);

/// How long at least the keys of a call linger here for the next; other processes wait that much longer, and up to [`TOGETHER`].
const LINGER: Duration = Duration::from_millis(1);

/// What has lingered goes together, once in so long: a delete that goes alone is one commit more at etcd.
const TOGETHER: Duration = Duration::from_millis(2);

/// How long a call that gives up waits for its edges to be deleted.
const CLEARING: Duration = Duration::from_secs(2);

impl Core {
    /// A call has come.
    pub(super) fn acquire(&mut self, acquire: Acquire) {
        let Acquire {
            call,
            names,
            ttl_secs,
            mode,
            wait,
            record,
            holds,
        } = acquire;
        let nested = holds
            .iter()
            .any(|of| self.calls.get(*of).is_some_and(|of| of.holding().is_some()));
        let refuse = |core: &mut Self, why| core.outputs.push_back(Output::Refused { call, why });
        if self.shutdown.refuses(nested) {
            return refuse(self, Refused::ShuttingDown);
        }
        let tries = wait == Wait::Once;
        // A nested call is let in, though it counts: other calls wait for its task, whose work would be in vain.
        let full = self
            .settings
            .max_waiters
            .is_some_and(|max| self.calls.waiters() >= max);
        if full && !tries && !nested {
            return refuse(self, Refused::Overloaded);
        }
        let names: Arc<[Name]> = names
            .into_iter()
            .map(|name| self.queues.intern(name))
            .collect();
        let group = names.len() > 1;
        if tries
            && let Some(name) = names
                .iter()
                .position(|name| self.is_queued_for(name, mode, group))
        {
            let holder = names.get(name).and_then(|name| self.holder(name));
            return refuse(self, Refused::Held { name, holder });
        }
        let until = match wait {
            Wait::For(wait) => Some(self.now + wait),
            Wait::Once | Wait::Forever => None,
        };
        let ticket = self.queues.enqueue(
            &names,
            Waiter {
                call,
                mode,
                group,
                tries,
            },
        );
        let tries = match (tries, mode) {
            (false, _) => Tries::Not,
            (true, Mode::Exclusive) => Tries::IfNone,
            // Other contenders of its kind may be there: a put shows which.
            (true, Mode::Shared | Mode::Permits(_)) => Tries::Plain,
        };
        let waiting = Waiting {
            ticket,
            until,
            tries,
        };
        self.calls.add(
            self.now,
            Arrival {
                call,
                names: names.clone(),
                mode,
                ttl_secs,
                record,
                holds,
                waiting,
            },
        );
        if let Some(until) = until {
            self.timers.set(Timer::Wait(call), until);
        }
        for name in &*names {
            self.end_lingering(name);
            self.work.push(name);
        }
        if tries == Tries::Not && (nested || group) {
            let step = self.jittered(STEP);
            self.timers.set(Timer::Cycle(call), self.now + step);
        }
        if nested {
            self.find_cycle_here(call);
        }
    }

    /// Whether a single try would have to queue behind calls that want something else.
    pub(super) fn is_queued_for(&self, name: &Name, mode: Mode, group: bool) -> bool {
        let may_follow = |queue: &WaitQueue| {
            queue.is_empty() || (mode != Mode::Exclusive && !group && queue.is_uniform(mode))
        };
        self.queues
            .get(name)
            .is_some_and(|queue| !may_follow(queue))
    }

    /// The record of the call or process that has a name, as far as this process knows.
    pub(super) fn holder(&self, name: &Name) -> Option<Arc<[u8]>> {
        let queue = self.queues.get(name)?;
        let record = |id: ContenderId| {
            let contender = self.contenders.get(id)?;
            let holder = contender
                .ownership()
                .and_then(|ownership| ownership.first_holder());
            let holder = holder.and_then(|call| self.calls.get(call));
            Some(holder.map_or(contender.record(), Call::record).clone())
        };
        let held = queue.held().find_map(record);
        held.or_else(|| queue.owner().cloned())
            .or_else(|| queue.closing().find_map(record))
    }

    /// The caller of a call has gone away.
    pub(super) fn cancel(&mut self, call: CallId) {
        self.withdraw(call);
    }

    /// Refuses a waiting call.
    pub(super) fn refuse(&mut self, call: CallId, why: Refused) {
        if self.withdraw(call) || self.calls.remove_warming(call) {
            self.outputs.push_back(Output::Refused { call, why });
        }
    }

    /// Takes a waiting call out of its queues; false if it does not wait.
    pub(super) fn withdraw(&mut self, call: CallId) -> bool {
        let Some(waiting) = self.calls.waiting(call) else {
            return false;
        };
        let Some(gone) = self.calls.remove(call) else {
            return false;
        };
        self.queues.leave(gone.names(), waiting.ticket);
        self.stops_waiting(call);
        gone.names().iter().for_each(|name| self.work.push(name));
        true
    }

    pub(super) fn stops_waiting(&mut self, call: CallId) {
        self.timers.cancel(&Timer::Wait(call));
        self.timers.cancel(&Timer::Cycle(call));
        self.deadlock.forget_call(call);
    }

    /// Takes the next step for the head of a name's queue.
    pub(super) fn serve(&mut self, name: &Name) {
        let Some(queue) = self.queues.get(name) else {
            return;
        };
        let Some(head) = queue.head() else {
            let idle = queue.in_line();
            idle.into_iter().for_each(|id| self.give_up(id));
            return self.retire_name(name);
        };
        let Some(call) = self.calls.get(head.call) else {
            return;
        };
        let names = call.names().clone();
        if !self.queues.is_head(&names, head.call) {
            // The head is a group that waits for its other names: the contender of an earlier call must not stand in the way.
            return queue.in_line().into_iter().for_each(|id| self.give_up(id));
        }
        let purpose = purpose_of(head.call, call);
        let in_line: BTreeSet<ContenderId> = names
            .iter()
            .filter_map(|name| self.queues.get(name)?.in_line())
            .collect();
        let fits = |id: &ContenderId| {
            self.contenders
                .get(*id)
                .is_some_and(|it| fits(it.purpose(), &purpose))
        };
        match in_line.first() {
            Some(id) if in_line.len() == 1 && fits(id) => self.serve_by(*id, head.call),
            Some(_) => {
                in_line.into_iter().for_each(|id| self.give_up(id));
                let still = names.iter().any(|name| {
                    self.queues
                        .get(name)
                        .is_some_and(|queue| queue.in_line().is_some())
                });
                match still {
                    true => self.refuse_try(head.call),
                    false => self.work.push(name),
                }
            }
            None => self.claim(head.call, purpose),
        }
    }

    /// The call that a contender in line would serve: the head of its names, if that wants just this.
    pub(super) fn served_by(&self, id: ContenderId) -> Option<CallId> {
        let contender = self.contenders.get(id).filter(|it| !it.is_detached())?;
        let head = self.queues.get(contender.names().first()?)?.head()?;
        let wanted = purpose_of(head.call, self.calls.get(head.call)?);
        fits(contender.purpose(), &wanted).then_some(head.call)
    }

    /// The head of the queue has a contender in line.
    pub(super) fn serve_by(&mut self, id: ContenderId, call: CallId) {
        let Some(contender) = self.contenders.get(id) else {
            return;
        };
        let admitted = contender.is_admitted();
        match contender.state() {
            State::Waiting { .. } if admitted => self.grant_if_fresh(id, call),
            State::Waiting { .. } if contender.must_wait() => {
                let names = contender.names().clone();
                let queued = |name: &Name| {
                    self.queues
                        .get(name)
                        .is_some_and(|it| it.tries().next().is_some())
                };
                match names.iter().any(|name| self.holder(name).is_some()) {
                    true => self.refuse_tries(&names),
                    // The read tells who it is.
                    false if names.iter().any(queued) => self.observe.read(id, true),
                    false => {}
                }
            }
            _ => {}
        }
    }

    /// The head of the queue has no contender in line: it joins one that is held, or gets its own.
    pub(super) fn claim(&mut self, call: CallId, purpose: Purpose) {
        if purpose.mode == Mode::Shared
            && let Some(joined) = self.joinable(&purpose)
        {
            match joined {
                (id, Gate::Open) => return self.grant_if_fresh(id, call),
                (id, Gate::Unknown) => return self.ask_behind(id),
                (_, Gate::Closed) => {}
            }
        }
        let seat = |name: &Name| self.queues.get(name)?.free_seat(purpose.mode);
        let seats: Option<Vec<Seat>> = purpose.names.iter().map(seat).collect();
        let Some(seats) = seats else {
            // A key of ours that is on its way out is no holder: its answer decides.
            let closing = |name: &Name| self.queues.get(name).is_some_and(WaitQueue::only_closes);
            if !purpose.names.iter().any(closing) {
                self.refuse_tries(&purpose.names);
            }
            return;
        };
        let Some(record) = self.calls.get(call).map(|call| call.record().clone()) else {
            return;
        };
        let session = self.choose_session(purpose.ttl_secs);
        let names = purpose.names.clone();
        let id = self
            .contenders
            .add(Contender::new(session, purpose, seats.clone(), record));
        for (name, seat) in names.iter().zip(seats) {
            if let Some(queue) = self.queues.get_mut(name) {
                queue.claim(id, seat);
            }
        }
        if let Some(session) = self.sessions.get_mut(session) {
            session.attach(self.now, id);
        }
        self.batch.put(session, id);
        if mistake(Mistake::TwoAcquisitionsInABundle) {
            self.batch.put(session, id);
        }
        self.dirty.insert(session);
    }

    /// The youngest key of readers that hold just these names, and whether another may join them.
    pub(super) fn joinable(&self, purpose: &Purpose) -> Option<(ContenderId, Gate)> {
        let queue = self.queues.get(purpose.names.first()?)?;
        queue.held().rev().find_map(|id| {
            crate::steps::step();
            let contender = self.contenders.get(id)?;
            let session = self.sessions.get(contender.session())?;
            let usable = session.accepts()
                && fits(
                    contender.purpose(),
                    &Purpose {
                        group: contender.purpose().group,
                        ..purpose.clone()
                    },
                );
            let gate = contender.ownership()?.gate(self.now);
            usable.then_some((id, gate))
        })
    }

    /// The head of the queue has to wait: single tries are refused, be it the head or behind it.
    pub(super) fn refuse_tries(&mut self, names: &[Name]) {
        let queues = names.iter().filter_map(|name| self.queues.get(name));
        for call in queues.flat_map(WaitQueue::tries).collect::<BTreeSet<_>>() {
            self.refuse_try(call);
        }
    }

    /// A single try would have to wait: it is refused.
    pub(super) fn refuse_try(&mut self, call: CallId) {
        let Some(tried) = self.calls.get(call).filter(|call| call.is_try()) else {
            return;
        };
        let held = |name: &Name| self.holder(name).is_some();
        let queued = |name: &Name| {
            let head = self.queues.get(name).and_then(WaitQueue::head);
            head.is_none_or(|head| head.call != call)
        };
        let mut names = tried.names().iter();
        let name = names.position(held);
        let name = name
            .or_else(|| tried.names().iter().position(queued))
            .unwrap_or(0);
        let holder = tried.names().get(name).and_then(|name| self.holder(name));
        self.refuse(call, Refused::Held { name, holder });
    }

    /// No call wants a contender that is in line: its keys go, once it is known which there are.
    pub(super) fn give_up(&mut self, id: ContenderId) {
        match self.contenders.get(id).map(Contender::state) {
            Some(State::Pending) => self.remove(id),
            Some(State::Waiting { .. }) => self.delete(id),
            _ => {}
        }
    }

    /// Sends the keys of a contender off.
    pub(super) fn delete(&mut self, id: ContenderId) {
        let Some(contender) = self.contenders.get_mut(id) else {
            return;
        };
        let session = contender.session();
        let Some(created) = contender.delete() else {
            return;
        };
        let keys = contender.keys().cloned().collect();
        let detached = contender.is_detached();
        let names = contender.names().clone();
        if !detached {
            for name in &*names {
                self.queues
                    .get_mut(name)
                    .into_iter()
                    .for_each(|queue| queue.close(id));
            }
        }
        let edges = self.deadlock.edges.are_of(id);
        self.stops_being_observed(id);
        self.batch.delete(Deletion {
            contender: id,
            session,
            keys,
            created,
            edges,
        });
    }

    pub(super) fn stops_being_observed(&mut self, id: ContenderId) {
        self.timers.cancel(&Timer::Read(id));
        self.observe.forget(id);
        self.deadlock.forget_contender(id);
    }

    /// A contender is gone for good.
    pub(super) fn remove(&mut self, id: ContenderId) {
        let Some(contender) = self.contenders.remove(id) else {
            return;
        };
        self.stops_being_observed(id);
        self.deadlock.edges.forget(id);
        if let Some(session) = self.sessions.get_mut(contender.session()) {
            session.detach(self.now, id);
        }
        if !contender.is_detached() {
            self.free_seats(
                id,
                contender
                    .seats()
                    .map(|(name, seat)| (name.clone(), seat))
                    .collect(),
            );
        }
        if let Some(call) = self.confirming.remove(&id) {
            self.confirm(call, Ok(()));
        }
    }

    /// Its session is gone: its names go on without a contender, whatever becomes of its keys.
    pub(super) fn detach(&mut self, id: ContenderId) {
        let Some(contender) = self
            .contenders
            .get_mut(id)
            .filter(|contender| !contender.is_detached())
        else {
            return;
        };
        contender.detach();
        let seats = contender
            .seats()
            .map(|(name, seat)| (name.clone(), seat))
            .collect();
        self.free_seats(id, seats);
        self.stops_being_observed(id);
    }

    /// The names of a contender go on without it.
    pub(super) fn free_seats(&mut self, id: ContenderId, seats: Vec<(Name, Seat)>) {
        for (name, seat) in seats {
            if let Some(queue) = self.queues.get_mut(&name) {
                queue.free(id, seat);
            }
            self.work.push(&name);
        }
    }

    /// Every contender of the call is admitted: grants it, or renews the session first (rule P12).
    pub(super) fn grant_if_fresh(&mut self, id: ContenderId, call: CallId) {
        let Some(contender) = self.contenders.get(id) else {
            return;
        };
        let (session_id, name) = (contender.session(), contender.names().first().cloned());
        let Some(session) = self.sessions.get_mut(session_id) else {
            return;
        };
        if session.is_fresh(self.now) {
            return self.grant(id, call);
        }
        name.into_iter().for_each(|name| session.wants_fresh(name));
        if session.renewal_failures() == 0 {
            self.renew(session_id);
        }
    }

    /// The call has its locks: by a contender of its own, together with readers, or from a call before it.
    pub(super) fn grant(&mut self, id: ContenderId, call: CallId) {
        let now = self.now;
        let Some((names, waiting)) = self
            .calls
            .get(call)
            .and_then(|it| Some((it.names().clone(), it.waiting()?)))
        else {
            return;
        };
        let Some(contender) = self.contenders.get_mut(id) else {
            return;
        };
        let alone = contender
            .parts()
            .iter()
            .all(|part| part.admitted() == contender.created());
        let session_id = contender.session();
        let first = contender.is_in_line();
        match contender.ownership_mut() {
            Some(ownership) => {
                ownership.add(call);
                if ownership.is_spent(now) && !ownership.is_contended() && ownership.ask(now) {
                    self.observe.read(id, true);
                }
            }
            None => contender.own(now, call, alone),
        }
        let Some(deadline) = self
            .sessions
            .get(session_id)
            .and_then(|session| session.deadline())
            .cloned()
        else {
            return;
        };
        let owned = self.owned(id, &names);
        self.queues.leave(&names, waiting.ticket);
        self.calls.hold(call, id);
        self.stops_waiting(call);
        if first {
            let seats: Vec<(Name, Seat)> = self
                .contenders
                .get(id)
                .into_iter()
                .flat_map(|it| it.seats().map(|(name, seat)| (name.clone(), seat)))
                .collect();
            for (name, seat) in seats {
                self.queues
                    .get_mut(&name)
                    .into_iter()
                    .for_each(|queue| queue.hold(id, seat));
            }
            if let Some(session) = self.sessions.get_mut(session_id) {
                session.add_body();
            }
            self.deadlock.forget_contender(id);
            self.timers.set(Timer::Read(id), now + GUARD_AFTER);
        }
        names.iter().for_each(|name| self.work.push(name));
        self.outputs.push_back(Output::Granted(Grant {
            call,
            owned,
            deadline,
        }));
    }

    /// What a call owns, in the order of its names.
    pub(super) fn owned(&self, id: ContenderId, names: &[Name]) -> Vec<OwnedKey> {
        let Some(contender) = self.contenders.get(id) else {
            return Vec::new();
        };
        let Some(ownership) = contender.ownership() else {
            return Vec::new();
        };
        let parts = names
            .iter()
            .filter_map(|name| contender.parts().iter().find(|part| part.name == *name));
        let owned = parts.map(|part| OwnedKey {
            key: part.key.clone(),
            created: ownership.created(),
            revision: part
                .admitted()
                .unwrap_or(ownership.created())
                .max(ownership.created()),
            handover: ownership.handover(),
        });
        owned.collect()
    }

    /// The body of a call is gone: now its keys may go, to the next call in this process or for good (rules P23, P26).
    pub(super) fn release(&mut self, call: CallId, how: Release, fenced: bool) {
        let Some((id, lost)) = self.calls.get(call).and_then(|call| match call.stage() {
            Stage::Holding { contender, lost } => Some((contender, lost)),
            _ => None,
        }) else {
            return;
        };
        if self.retain(id, call, how) {
            return;
        }
        if how == Release::Lingering && !fenced && !lost && self.may_linger(id) {
            self.calls.linger(call, id);
            return self
                .timers
                .set(Timer::Linger(call), together(self.now + LINGER));
        }
        self.pass_on(id, call, how, fenced);
    }

    /// What a call holds goes to the next call, stays with its co-holders, or is deleted.
    pub(super) fn pass_on(&mut self, id: ContenderId, call: CallId, how: Release, fenced: bool) {
        let now = self.now;
        let heir = if fenced { None } else { self.heir(id) };
        let Some(contender) = self.contenders.get_mut(id) else {
            return;
        };
        let (session_id, names) = (contender.session(), contender.names().clone());
        let last = contender
            .ownership_mut()
            .is_none_or(|ownership| ownership.leave(call));
        let lost = self
            .sessions
            .get(session_id)
            .is_none_or(|session| session.is_lost());
        match how {
            Release::Confirmed => self.calls.release(call),
            Release::Unconfirmed | Release::Lingering => drop(self.calls.remove(call)),
        }
        match heir {
            _ if !last && lost => self.confirm(
                call,
                Err(Refused::Lost {
                    cause: LossCause::Expired,
                }),
            ),
            _ if !last => self.confirm(call, Ok(())),
            Some(heir) => {
                self.grant(id, heir);
                self.confirm(call, Ok(()));
            }
            None => {
                if let Some(session) = self.sessions.get_mut(session_id) {
                    session.drop_body();
                }
                self.delete(id);
                // Of a lost session best effort will do: the next contender has another session, and so another key.
                if lost {
                    self.detach(id);
                    let cause = LossCause::Expired;
                    self.confirm(call, Err(Refused::Lost { cause }));
                } else if how == Release::Confirmed {
                    self.confirming.insert(id, call);
                    self.timers.set(Timer::Confirm(call), now + CONFIRM);
                }
                self.revoke_if_over(session_id);
            }
        }
        names.iter().for_each(|name| self.work.push(name));
    }

    /// The call that may take over what another call holds: only one that receives all its names in that step (rule P23).
    pub(super) fn heir(&self, id: ContenderId) -> Option<CallId> {
        let contender = self.contenders.get(id)?;
        let session = self.sessions.get(contender.session())?;
        let head = self.queues.get(contender.names().first()?)?.head()?;
        let heir = self.calls.get(head.call)?;
        let wanted = Purpose {
            group: contender.purpose().group,
            ..purpose_of(head.call, heir)
        };
        let fits = fits(contender.purpose(), &wanted)
            || (mistake(Mistake::HandOverToPartOfAGroup) && contender.mode() == heir.mode());
        let passes =
            contender.ownership()?.may_pass(self.now) && contender.ownership()?.holder_count() == 1;
        let sound =
            session.accepts() && session.is_fresh(self.now) && !self.deadlock.edges.are_of(id);
        let heads = self.queues.is_head(heir.names(), head.call)
            || mistake(Mistake::HandOverToPartOfAGroup);
        (fits && passes && sound && heads && contender.mode() != Mode::Shared).then_some(head.call)
    }

    /// Whether keys may stay a moment after their body: nobody waits for them, as far as this process knows.
    pub(super) fn may_linger(&self, id: ContenderId) -> bool {
        let Some(contender) = self.contenders.get(id) else {
            return false;
        };
        let Some(ownership) = contender.ownership() else {
            return false;
        };
        let session = self.sessions.get(contender.session());
        let fresh = session.is_some_and(|session| session.is_open() && session.is_fresh(self.now));
        let unwanted = |name: &Name| {
            let queue = self.queues.get(name);
            queue.is_some_and(|queue| queue.is_empty() && !queue.is_contended(self.now))
        };
        let passes = !ownership.is_contended()
            && ownership.may_pass(self.now)
            && !self.deadlock.edges.are_of(id);
        contender.mode() == Mode::Exclusive
            && fresh
            && passes
            && !self.shutdown.has_begun()
            && contender.names().iter().all(unwanted)
    }

    /// A call has come for a name that lingers: it takes it over, or it goes.
    pub(super) fn end_lingering(&mut self, name: &Name) {
        let held = self.queues.get(name).and_then(|queue| queue.held().next());
        let ownership = held.and_then(|id| self.contenders.get(id)?.ownership());
        if let Some(call) = ownership.and_then(|ownership| ownership.first_holder()) {
            self.linger_over(call);
        }
    }

    /// What lingers has done so for long enough.
    pub(super) fn linger_over(&mut self, call: CallId) {
        if let Some(Stage::Lingering { contender }) = self.calls.get(call).map(Call::stage) {
            self.timers.cancel(&Timer::Linger(call));
            self.pass_on(contender, call, Release::Unconfirmed, false);
        }
    }

    /// Reports to the caller of a released call how that ended, once.
    pub(super) fn confirm(&mut self, call: CallId, result: Result<(), Refused>) {
        if self
            .calls
            .get(call)
            .is_some_and(|call| call.stage() == Stage::Releasing)
        {
            self.timers.cancel(&Timer::Confirm(call));
            self.calls.remove(call);
            self.outputs.push_back(Output::Released { call, result });
        }
    }

    /// A holding call has lost its locks: all of them, and its caller learns of it once (rule P13).
    pub(super) fn lose_call(&mut self, call: CallId, cause: LossCause) {
        if self.calls.lose(call) {
            self.outputs.push_back(Output::Lost { call, cause });
        }
    }

    /// The wait of a call is over.
    pub(super) fn wait_over(&mut self, call: CallId) {
        if self.calls.waiting(call).is_none() {
            return;
        }
        // Edges that rest on its wait must be gone before its caller goes on: another process might follow them to a cycle that
        // is none.
        if !self.deadlock.edges.is_leaving(call) && self.unpublish(call) {
            self.timers.cancel(&Timer::Cycle(call));
            return self.timers.set(Timer::Wait(call), self.now + CLEARING);
        }
        let why = self.why_not(call);
        self.refuse(call, why);
    }

    /// What a call learns whose wait is over: which of its names is taken, or that etcd has said nothing of them. Silence is never
    /// taken for held.
    pub(super) fn why_not(&self, id: CallId) -> Refused {
        let Some(call) = self.calls.get(id) else {
            return Refused::ShuttingDown;
        };
        let queues = || {
            call.names()
                .iter()
                .enumerate()
                .filter_map(|(at, name)| Some((at, name, self.queues.get(name)?)))
        };
        let in_line = |queue: &WaitQueue| queue.in_line().and_then(|id| self.contenders.get(id));
        let unheard = |queue: &WaitQueue| {
            let sent = in_line(queue).is_some_and(|it| it.is_in_line() && it.created().is_none());
            sent && !queue.was_heard_since(call.since())
        };
        let taken = |queue: &WaitQueue| {
            let behind = queue.head().is_none_or(|head| head.call != id);
            let waits =
                in_line(queue).is_some_and(|it| it.created().is_some() && !it.is_admitted());
            behind
                || waits
                || queue.owner().is_some()
                || queue.held().next().is_some()
                || queue.closing().next().is_some()
        };
        let mut known = queues().filter(|(_, _, queue)| !unheard(queue) && taken(queue));
        let named = queues().find(|(_, name, queue)| {
            !unheard(queue) && taken(queue) && self.holder(name).is_some()
        });
        let waited = self.now - call.since();
        match named.or_else(|| known.next()) {
            Some((at, name, _)) => Refused::Timeout {
                name: at,
                holder: self.holder(name),
                waited,
            },
            None if queues().any(|(_, _, queue)| unheard(queue)) => {
                Refused::Backend(self.exchanges.cause())
            }
            None => Refused::Timeout {
                name: 0,
                holder: None,
                waited,
            },
        }
    }

    /// No call wants a name: forgets it, its watch a little later.
    pub(super) fn retire_name(&mut self, name: &Name) {
        let Some(queue) = self.queues.get(name) else {
            return;
        };
        if queue.has_contenders() || !queue.is_empty() {
            return;
        }
        match self.observe.watch(name) {
            Some(_) => self.timers.set(Timer::Rest(name.clone()), self.now + WARM),
            None => self.queues.forget(name),
        }
    }

    /// A name has not been wanted for a while: stops watching it.
    pub(super) fn rest(&mut self, name: &Name) {
        let idle = self
            .queues
            .get(name)
            .is_none_or(|queue| queue.is_empty() && !queue.has_contenders());
        if idle {
            if let Some(id) = self.observe.close(name) {
                self.outputs.push_back(Output::Unwatch(id));
            }
            self.queues.forget(name);
        }
    }

    /// Opens a session of a TTL before a lock needs it.
    pub(super) fn warm(&mut self, call: CallId, ttl_secs: i64) {
        if self.shutdown.has_begun() {
            return self.outputs.push_back(Output::Refused {
                call,
                why: Refused::ShuttingDown,
            });
        }
        let id = self.choose_session(ttl_secs);
        match self.sessions.get_mut(id) {
            Some(session) if !session.is_open() => {
                session.warm(call);
                self.calls.add_warming(self.now, call);
            }
            _ => self.outputs.push_back(Output::Ready(call)),
        }
    }
}

/// What a contender of a call is put for.
fn purpose_of(id: CallId, call: &Call) -> Purpose {
    Purpose {
        names: call.names().clone(),
        mode: call.mode(),
        ttl_secs: call.ttl_secs(),
        group: call.is_group().then_some(id),
    }
}

/// Whether a contender that was put for one purpose serves another.
fn fits(of: &Purpose, wanted: &Purpose) -> bool {
    let same = of.names.len() == wanted.names.len()
        && of.names.iter().all(|name| wanted.names.contains(name));
    same && of.mode == wanted.mode && of.ttl_secs == wanted.ttl_secs && of.group == wanted.group
}

/// The first moment not before this one at which what lingers goes.
fn together(at: Moment) -> Moment {
    let late = at.since_boot().as_nanos() % TOGETHER.as_nanos();
    match u64::try_from(late) {
        Ok(late @ 1..) => at + TOGETHER - Duration::from_nanos(late),
        _ => at,
    }
}
