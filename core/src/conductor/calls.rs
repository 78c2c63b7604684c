//! Calls: the way of a call, from its arrival through its names to its grant, and back through its release.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::{Core, Timer};
use crate::call::{Call, Stage};
use crate::contender::{Contender, Standing, State, Wish};
use crate::deadlock;
use crate::ids::{CallId, ContenderId, HELD, NameId, Unit};
use crate::input::{Acquire, Release, Wait};
use crate::loss::LossCause;
use crate::moment::Moment;
use crate::name::{Name, Step};
use crate::output::{Grant, Output, Owner, Refused};
use crate::ownership::{Ownership, SETTLED};
use crate::seat::{Mode, Seat};
use crate::session::Session;
use crate::shutdown::Shutdown;
use crate::transactions::Deletion;
use crate::view::WARM;

/// How long a release waits for its confirmation (rule P25).
const CONFIRM: Duration = Duration::from_secs(2);

/// How long at least a released key lingers for the next call of this process. Other processes wait for that.
const LINGER: Duration = Duration::from_millis(1);

/// From arrival to grant, or refusal.
impl Core {
    /// A call has come.
    pub(super) fn acquire(&mut self, acquire: Acquire) {
        let id = acquire.call;
        let holds = |id: &CallId| self.calls.get(*id).is_some_and(|it| !it.holding().is_empty());
        let nested = acquire.holds.iter().any(holds);
        if self.shutdown.refuses(nested) {
            return self.turn_down(id, Refused::ShuttingDown);
        }
        let tries = acquire.wait == Wait::Once;
        // A nested call is let in, though it counts: other calls wait for its task, whose work would be in vain.
        let most = self.settings.max_waiters.filter(|_| !tries && !nested);
        if most.is_some_and(|most| self.calls.waiters >= most) {
            return self.turn_down(id, Refused::Overloaded);
        }
        let until = match acquire.wait {
            Wait::For(wait) => Some(self.now + wait),
            // It waits for no holder, only for etcd.
            Wait::Once => Some(self.now + self.settings.connect_timeout),
            Wait::Forever => None,
        };
        let names: Arc<[NameId]> =
            acquire.names.iter().map(|name| self.names.intern(name)).collect();
        let ticket = self.names.ticket();
        // A wait for permits is not followed (rule P38).
        let is_shown = nested && !tries && !matches!(acquire.mode, Mode::Permits(_));
        let call = Call {
            names: names.clone(),
            wish: Wish { mode: acquire.mode, ttl_secs: acquire.ttl_secs },
            record: acquire.record,
            since: self.now,
            stage: Stage::Waiting { ticket, tries },
            until,
            own: Arc::default(),
            is_shown,
            outer: acquire.holds,
            inner: BTreeSet::new(),
            search_at: is_shown.then(|| deadlock::next_search(self.now)),
        };
        let mut taken = false;
        for name in &*names {
            if let Some(name) = self.names.get_mut(*name) {
                taken |= tries && name.is_taken_for(&call);
                name.enter(id, &call);
            }
        }
        self.calls.add(id, call);
        if names.is_empty() {
            self.sessions.warming.push((acquire.ttl_secs, id));
        }
        if taken {
            return self.refuse_try(id);
        }
        self.set_call_timer(id);
        names.iter().for_each(|name| self.names.touch(*name));
        let machines = (&self.calls, &self.names, &self.sessions);
        if nested && let Some(cycle) = deadlock::cycle_here(id, self.now, machines) {
            self.refuse_deadlocked(id, cycle);
        }
    }

    /// Sets the one timer of a call.
    pub(super) fn set_call_timer(&mut self, id: CallId) {
        let due = |call: &Call| call.until.into_iter().chain(call.search_at).min();
        self.timers.set(Timer::Call(id), self.calls.get(id).and_then(due));
    }

    pub(super) fn turn_down(&mut self, call: CallId, why: Refused) {
        self.outputs.push_back(Output::Refused { call, why });
    }

    /// Refuses a waiting call.
    pub(super) fn refuse(&mut self, call: CallId, why: Refused) {
        if self.calls.waiting(call).is_some() {
            self.stop_waiting(call, None);
            self.turn_down(call, why);
        }
    }

    /// A waiting call goes on to a stage, or is over: it leaves its queues, and what was put for it alone goes unless it holds that.
    pub(super) fn stop_waiting(&mut self, id: CallId, next: Option<Stage>) {
        let Some(call) = self.calls.waiting(id) else { return };
        let (names, own) = (call.names.clone(), call.own.clone());
        for of in &*names {
            self.names.get_mut(*of).into_iter().for_each(|name| name.leave(call));
            self.names.touch(*of);
        }
        self.calls.go_on(id, next, None);
        self.set_call_timer(id);
        self.searches.all.remove(&id);
        own.iter().for_each(|of| self.give_up(*of));
    }

    /// Refuses a single try that would have to wait.
    fn refuse_try(&mut self, call: CallId) {
        let (name, owner) = self.obstacle(call, None).unwrap_or_default();
        self.refuse(call, Refused::Held { name, owner });
    }

    /// The wait of a call, or for its release, is over; or a nested call is to look for a cycle.
    pub(super) fn call_due(&mut self, id: CallId) {
        let Some(call) = self.calls.get_mut(id) else { return };
        if call.until.is_none_or(|until| until > self.now) {
            self.look_for_cycle(id);
            return self.set_call_timer(id);
        }
        if let Stage::Releasing { refused, .. } = &mut call.stage {
            let why = refused.take().unwrap_or_else(|| self.silence());
            return self.released(id, Err(why));
        }
        let (since, tries) = (call.since, call.is_try());
        // A single try waits for no holder, so etcd was too slow.
        let why = match self.obstacle(id, Some(since)).filter(|_| !tries) {
            Some((name, owner)) => Refused::Timeout { name, owner, waited: self.now - since },
            None => self.silence(),
        };
        self.refuse(id, why);
    }

    /// The names of a call, with the place of each.
    pub(super) fn names_of(&self, id: CallId) -> impl Iterator<Item = (usize, &Name)> {
        let names = self.calls.get(id).into_iter().flat_map(|call| call.names.iter());
        names.enumerate().filter_map(|(at, name)| Some((at, self.names.get(*name)?)))
    }

    /// The name that keeps a call waiting, of those that etcd has answered about: the first with a known owner, or any.
    fn obstacle(&self, id: CallId, since: Option<Moment>) -> Option<(usize, Option<Owner>)> {
        // A name of which etcd has said nothing is not reported as held. The response to a put counts, though lately nothing came.
        let answered = |name: &Name| {
            name.answered >= since || name.in_line().all(|(_, it)| it.created.is_some())
        };
        let names = || self.names_of(id).filter(|(_, name)| answered(name));
        // A call of this process that has not lost it, or another process.
        let owner = |name: &Name| {
            let own = name.held().find_map(|(_, it)| self.record_of(it.held()?));
            let own = own.map(|record| Owner { record, unleased: None });
            own.or_else(|| name.owner.clone())
        };
        let owned = names().find_map(|(at, name)| Some((at, Some(owner(name)?))));
        owned.or_else(|| Some((names().next()?.0, None)))
    }

    /// The record of the first holder; once that call has held its lock for a second, it says since when.
    pub(super) fn record_of(&self, ownership: &Ownership) -> Option<Arc<[u8]>> {
        let call = self.calls.get(ownership.first()?)?;
        Some(match self.now - ownership.since < SETTLED {
            true => call.record.clone(),
            false => (self.settings.describe)(&call.record, ownership.since - call.since),
        })
    }

    /// Carries out the next step of a name. What that changes is looked at again.
    pub(super) fn serve(&mut self, id: NameId) {
        let Some(name) = self.names.get(id) else { return };
        let at = |number| ContenderId { name: id, number };
        match name.step(self.now, &self.names, &self.calls, &self.sessions) {
            Step::Put(call) => self.claim(call, false),
            Step::Grant(number, call) => self.grant(at(number), call),
            Step::GiveUp(number) => self.give_up(at(number)),
            Step::Read(number) => {
                let Some(contender) = self.names.contender_mut(at(number)) else { return };
                let unread = contender.is_unread();
                if contender.ownership_mut().is_none_or(|it| it.ask(self.now)) {
                    self.want_read(at(number));
                    // Others may have come to the front with it, and go in the same transaction.
                    self.names.dirty.extend(unread.then_some(id));
                }
            }
            Step::RefuseTries => {
                let tries: Vec<CallId> = name.tries.values().copied().collect();
                tries.into_iter().for_each(|call| self.refuse_try(call));
            }
            // It is forgotten a little later, with its watch.
            Step::Retire if self.view.is_watched(id) => {
                self.timers.set(Timer::Rest(id), Some(self.now + WARM));
            }
            Step::Retire => self.names.forget(id),
            Step::Wait => {}
        }
    }

    /// Puts contenders for a call unless it waits by others, or for a seat. `beside`: on seats of nested calls.
    pub(super) fn claim(&mut self, id: CallId, beside: bool) {
        let Some(call) = self.calls.get(id) else { return };
        let mode = call.wish.mode;
        let seat_of = |name: &NameId| self.names.get(*name)?.seat_for(id, mode, beside);
        let waits = |id: &ContenderId| self.names.contender(*id).is_some_and(Contender::is_in_line);
        let seats: Option<Vec<Seat>> = call.names.iter().map(seat_of).collect();
        let Some(seats) = seats.filter(|_| !call.own.iter().any(waits)) else { return };
        // Those of a nested call are for it alone, as their values list what its task holds.
        let bound = (call.is_group() || call.is_shown).then_some(id);
        let outer = self.calls.outer(id).filter(|_| call.is_shown);
        let lists = outer.flat_map(|(_, it)| it.holding().iter().copied()).take(HELD);
        let lists: Vec<ContenderId> = lists.collect();
        let first = call.names.first().and_then(|name| self.names.get(*name));
        let text = first.map_or("", |name| &name.text);
        let session = self.sessions.choose(self.now, call.wish.ttl_secs, text);
        let put = |(name, seat): (&NameId, Seat)| {
            let family = self.names.get(*name)?.family.clone();
            let mut contender = Contender::new(family, session, call.wish, seat);
            contender.record = call.record.clone();
            // Readers and permits may be beside others of their kind: the response to a plain put shows which (rule P11).
            contender.tries = call.is_try() && mode == Mode::Exclusive;
            (contender.bound, contender.is_group) = (bound, call.is_group());
            contender.lists.clone_from(&lists);
            Some(self.names.add(*name, contender))
        };
        let ids: Unit = call.names.iter().zip(seats).filter_map(put).collect();
        let ready = self.sessions.attach(self.now, session, ids.clone(), self.lost.is_none());
        self.outbox.puts.pending.extend(ready);
        if let Some(call) = self.calls.get_mut(id).filter(|_| bound.is_some()) {
            call.own = ids;
        }
    }

    /// A call gets its locks, by its own contenders or another call's; if the session is fresh, else later (rule P12).
    fn grant(&mut self, id: ContenderId, call_id: CallId) {
        let Some(call) = self.calls.waiting(call_id) else { return };
        let Some(contender) = self.names.contender(id) else { return };
        let Some(session) = self.sessions.all.get_mut(&contender.session) else { return };
        if !session.is_fresh(self.now) {
            session.unfresh.insert(id.name);
            self.sessions.awake.insert(contender.session);
            return;
        }
        let Some(lease) = &session.lease else { return };
        let (mode, deadline) = (call.wish.mode, lease.deadline.clone());
        let is_own = contender.bound == Some(call_id);
        let contenders = if is_own { call.own.clone() } else { [id].into() };
        if contender.ownership().is_none() {
            session.bodies += contenders.len();
        }
        let mut owned = Vec::with_capacity(contenders.len());
        for of in &*contenders {
            let name = self.names.get_mut(of.name);
            let granted =
                name.and_then(|name| name.change(of.number, |it| it.grant(self.now, call_id))?);
            let Some((key, asks)) = granted else { continue };
            owned.push(key);
            self.names.unlist(*of);
            let released = self.names.contender_mut(*of).and_then(|it| it.confirms.take());
            self.confirm(released, 1);
            if asks {
                self.want_read(*of);
            }
            self.attend(*of);
        }
        let handover = owned.last().map_or(0, |key| key.handover);
        let stage = Stage::Holding { contenders, handover, lost: false };
        self.stop_waiting(call_id, Some(stage));
        self.outputs.push_back(Output::Granted(Grant { call: call_id, mode, owned, deadline }));
    }
}

/// From release to the end.
impl Core {
    /// The body of a call is gone: now its keys may go, to the next call in this process or for good (rules P22, P23, P26).
    pub(super) fn release(&mut self, id: CallId, how: Release, fenced: bool) {
        let stage = self.calls.get(id).map(|call| &call.stage);
        let Some(Stage::Holding { contenders, handover, lost }) = stage else { return };
        let (contenders, holder, lost) = (contenders.clone(), (id, *handover), *lost);
        let lingers = how == Release::Lingering && self.shutdown == Shutdown::Not;
        let until = if lingers { self.now + LINGER } else { self.now };
        let stays = (!fenced && !lost).then_some(until);
        let mut left = 0;
        for of in &*contenders {
            let is_last = self.names.release(self.now, *of, holder, stays);
            left += usize::from(is_last);
            if !is_last {
                self.attend(*of); // its record names another reader from now on
            } else if how == Release::Moved {
                // No delete follows, and the name stays closed here: a new key of this process would replace the moved one.
                self.part(*of);
            }
        }
        let stage = Stage::Releasing { left, refused: None };
        let stage = (how == Release::Confirmed).then_some(stage);
        self.calls.go_on(id, stage, Some(self.now + CONFIRM));
        self.set_call_timer(id);
        self.confirm(Some(id), 0);
    }

    /// This many contenders of a released call are gone, or go on with others. After the last one its caller is notified.
    fn confirm(&mut self, call: Option<CallId>, gone: usize) {
        let Some(id) = call else { return };
        let stage = self.calls.get_mut(id).map(|call| &mut call.stage);
        let Some(Stage::Releasing { left, .. }) = stage else { return };
        *left -= gone;
        if *left == 0 {
            self.released(id, Ok(()));
        }
    }

    fn released(&mut self, call: CallId, result: Result<(), Refused>) {
        self.calls.go_on(call, None, None);
        self.set_call_timer(call);
        self.outputs.push_back(Output::Released { call, result });
    }

    /// A holding call has lost its locks, or is to stop relying on them. Its caller is notified once, and again if a shutdown ends its body.
    pub(super) fn lose_call(&mut self, id: CallId, cause: LossCause) {
        let stage = self.calls.get_mut(id).map(|call| &mut call.stage);
        if let Some(Stage::Holding { lost, .. }) = stage
            && (!std::mem::replace(lost, true) || cause == LossCause::Shutdown)
        {
            self.outputs.push_back(Output::Lost { call: id, cause });
        }
    }

    /// The calls that hold a contender have lost it, and with it their others (rule P13).
    pub(super) fn lose_contender(&mut self, id: ContenderId, cause: LossCause) {
        let ownership = self.names.contender(id).and_then(Contender::ownership);
        let holders: Vec<CallId> = ownership.into_iter().flat_map(Ownership::holders).collect();
        let held = holders.iter().filter_map(|call| self.calls.get(*call)).flat_map(Call::holding);
        for of in held.chain([&id]) {
            let ownership = self.names.contender_mut(*of).and_then(Contender::ownership_mut);
            ownership.into_iter().for_each(|it| it.lost = true);
        }
        holders.into_iter().for_each(|call| self.lose_call(call, cause));
        self.names.touch(id.name);
    }

    /// No call wants a contender any more: its key goes, and so do all that were put for its call, if that waits.
    pub(super) fn give_up(&mut self, id: ContenderId) {
        let bound = self.names.contender(id).and_then(|it| self.calls.waiting(it.bound?));
        let own = bound.map_or_else(|| [id].into(), |call| call.own.clone());
        for id in &*own {
            match self.names.contender(*id).map(|it| &it.state) {
                Some(State::Pending) => self.remove(*id),
                Some(State::Waiting) => self.delete(*id),
                Some(State::Held(ownership)) if ownership.first().is_none() => self.delete(*id),
                _ => {}
            }
        }
    }

    /// Returns true if the call that a contender is for alone waits no more, or has lost another one.
    pub(super) fn is_unwanted(&self, id: ContenderId) -> bool {
        let broken = |it: &Contender| self.names.standing(it, &self.calls) == Standing::Broken;
        self.names.contender(id).is_none_or(broken)
    }

    /// Looks again at the name of a contender, and at the others of the call that it is for alone.
    pub(super) fn touch(&mut self, id: ContenderId) {
        self.names.touch(id.name);
        let call = self.names.contender(id).and_then(|it| self.calls.get(it.bound?));
        call.into_iter().for_each(|call| call.names.iter().for_each(|of| self.names.touch(*of)));
    }

    /// A contender's key is to be deleted, if it may be there.
    pub(super) fn delete(&mut self, id: ContenderId) {
        let deletion = self.part(id);
        self.outbox.deletions.pending.extend(deletion);
    }

    /// A contender neither waits any more nor is held. Returns how its key is deleted, if that may be there.
    fn part(&mut self, id: ContenderId) -> Option<Deletion> {
        self.touch(id);
        let name = self.names.get_mut(id.name)?;
        let contender = name.contenders.get(&id.number)?;
        use State::{Held, Unsettled, Waiting};
        let may_be_there = matches!(contender.state, Waiting | Held(_) | Unsettled);
        let key = contender.key.clone().filter(|_| may_be_there)?;
        let (session, is_held) = (contender.session, contender.ownership().is_some());
        let deletion = Deletion { contender: id, session, key, created: contender.created };
        name.change(id.number, Contender::part);
        if is_held {
            self.sessions.drop_body(session);
            if self.sessions.all.get(&session).is_some_and(Session::is_lost) {
                // Best effort will do: the next contender has another session, and so another key.
                self.names.detach(id);
            }
        }
        Some(deletion)
    }

    /// A contender is gone for good.
    pub(super) fn remove(&mut self, id: ContenderId) {
        self.touch(id);
        self.names.unlist(id);
        self.names.detach(id);
        let name = self.names.get_mut(id.name);
        let contender = name.and_then(|name| name.contenders.remove(&id.number));
        let Some(contender) = contender else { return };
        self.timers.set(Timer::Contender(id), None);
        self.sessions.detach(self.now, contender.session, id);
        self.confirm(contender.confirms, 1);
    }
}
