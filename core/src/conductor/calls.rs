//! Calls: the path of a call from its arrival through its names to its grant, and through its release.

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

/// How long a released key lingers at least for the next call of this process. Other processes wait meanwhile.
const LINGER: Duration = Duration::from_millis(1);

/// From arrival to grant or refusal.
impl Core {
    pub(super) fn acquire(&mut self, acquire: Acquire) {
        let id = acquire.call;
        let holds = |id: &CallId| self.calls.get(*id).is_some_and(|it| !it.holding().is_empty());
        let nested = acquire.holds.iter().any(holds);
        if self.shutdown.refuses(nested) {
            return self.turn_down(id, Refused::ShuttingDown);
        }
        let tries = acquire.wait == Wait::Once;
        // A nested call may wait even then, though it counts: other calls wait for its task, whose work would be lost.
        let most = self.settings.max_waiters.filter(|_| !tries && !nested);
        if most.is_some_and(|most| self.calls.waiters >= most) {
            return self.turn_down(id, Refused::Overloaded);
        }
        let until = match acquire.wait {
            Wait::For(wait) => Some(self.now + wait),
            // A single try waits only for etcd.
            Wait::Once => Some(self.now + self.settings.connect_timeout),
            Wait::Forever => None,
        };
        let names: Arc<[NameId]> =
            acquire.names.iter().map(|name| self.names.intern(name)).collect();
        let ticket = self.names.ticket();
        // Waits for permits do not appear in searches for cycles (rule P38).
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
            search_at: is_shown.then(|| deadlock::next_search(self.now)),
        };
        let mut taken = false;
        for name in &*names {
            if let Some(name) = self.names.get_mut(*name) {
                taken |= name.enter(id, &call) && tries;
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

    /// Sets the only timer of a call.
    pub(super) fn set_call_timer(&mut self, id: CallId) {
        let due = |call: &Call| call.until.into_iter().chain(call.search_at).min();
        self.timers.set(Timer::Call(id), self.calls.get(id).and_then(due));
    }

    pub(super) fn turn_down(&mut self, call: CallId, why: Refused) {
        self.outputs.push_back(Output::Refused { call, why });
    }

    /// Refuses a call if it waits.
    pub(super) fn refuse(&mut self, call: CallId, why: Refused) {
        if self.calls.waiting(call).is_some() {
            self.stop_waiting(call, None);
            self.turn_down(call, why);
        }
    }

    /// Ends the wait of a call. It leaves its queues, and gives up the contenders put for it, unless it now holds them.
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

    /// Ends the wait of a call, or its wait for the release, if that is over. Otherwise continues its search for a cycle.
    pub(super) fn call_due(&mut self, id: CallId) {
        let Some(call) = self.calls.get_mut(id) else { return };
        if call.until.is_none_or(|until| until > self.now) {
            self.look_for_cycle(id);
            return self.set_call_timer(id);
        }
        if let Stage::Releasing { refused, .. } = &mut call.stage {
            let why = refused.take().map_or_else(|| self.silence(), |why| *why);
            return self.released(id, Err(why));
        }
        let (since, tries) = (call.since, call.is_try());
        // A single try does not wait for holders, so etcd was too slow.
        let why = match self.obstacle(id, Some(since)).filter(|_| !tries) {
            Some((name, owner)) => Refused::Timeout { name, owner, waited: self.now - since },
            None => self.silence(),
        };
        self.refuse(id, why);
    }

    /// Returns the names of a call with their indices.
    pub(super) fn names_of(&self, id: CallId) -> impl Iterator<Item = (usize, &Name)> {
        let names = self.calls.get(id).into_iter().flat_map(|call| call.names.iter());
        names.enumerate().filter_map(|(at, name)| Some((at, self.names.get(*name)?)))
    }

    /// Returns the name that blocks a call, among those about which etcd has responded. A name with a known owner comes first.
    fn obstacle(&self, id: CallId, since: Option<Moment>) -> Option<(usize, Option<Owner>)> {
        // Without a response about a name, it is not reported as held. The response to a put suffices, even if it is not recent.
        let answered = |name: &Name| {
            name.answered >= since || name.in_line().all(|(_, it)| it.created.is_some())
        };
        let names = || self.names_of(id).filter(|(_, name)| answered(name));
        // The owner is a call of this process that has not lost the name, or another process.
        let owner = |name: &Name| {
            let own = name.held().find_map(|(_, it)| self.record_of(it.held()?));
            let own = own.map(|record| Owner { record, unleased: None });
            own.or_else(|| name.owner.clone())
        };
        let owned = names().find_map(|(at, name)| Some((at, Some(owner(name)?))));
        owned.or_else(|| Some((names().next()?.0, None)))
    }

    /// Returns the record of the first holder. After a second of holding, it contains `held_since`.
    pub(super) fn record_of(&self, ownership: &Ownership) -> Option<Arc<[u8]>> {
        let call = self.calls.get(ownership.first()?)?;
        Some(match self.now - ownership.since < SETTLED {
            true => call.record.clone(),
            false => (self.settings.describe)(&call.record, ownership.since - call.since),
        })
    }

    /// Carries out the next step of a name. Whatever that changes gets its own next step.
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
                    // Others may have become fronts with it. They are read in the same transaction.
                    self.names.dirty.extend(unread.then_some(id));
                }
            }
            Step::RefuseTries => {
                let tries: Vec<CallId> = name.tries.values().copied().collect();
                tries.into_iter().for_each(|call| self.refuse_try(call));
            }
            // The name is forgotten a little later, when its watch closes.
            Step::Retire if self.view.is_watched(id) => {
                self.timers.set(Timer::Rest(id), Some(self.now + WARM));
            }
            Step::Retire => self.names.forget(id),
            Step::Wait => {}
        }
    }

    /// Adds contenders for a call, unless it already waits by others or must wait for a seat. `beside`: on seats of nested calls.
    pub(super) fn claim(&mut self, id: CallId, beside: bool) {
        let Some(call) = self.calls.get(id) else { return };
        let mode = call.wish.mode;
        let seat_of = |name: &NameId| self.names.get(*name)?.seat_for(id, mode, beside);
        let waits = |id: &ContenderId| self.names.contender(*id).is_some_and(Contender::is_in_line);
        let seats: Option<Vec<Seat>> = call.names.iter().map(seat_of).collect();
        let Some(seats) = seats.filter(|_| !call.own.iter().any(waits)) else { return };
        // Contenders of a nested call serve only that call, because their values list what its task holds.
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
            // Readers and permits may hold beside others. They use a plain put, whose response shows whether they do (rule P11).
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

    /// Grants a call its locks, by its own contenders or by another call's; later, if the session is not fresh (rule P12).
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
    /// Releases the keys of a call whose body is gone: to the next call in this process, or for good (rules P22, P23, P26).
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
                self.attend(*of); // its record will name another reader
            } else if how == Release::Moved {
                // No delete follows. The name stays closed here, because a new key of this process would replace the moved one.
                self.part(*of);
            }
        }
        let stage = Stage::Releasing { left, refused: None };
        let stage = (how == Release::Confirmed).then_some(stage);
        self.calls.go_on(id, stage, Some(self.now + CONFIRM));
        self.set_call_timer(id);
        self.confirm(Some(id), 0);
    }

    /// Notes that contenders of a released call are gone or were handed over. After the last one its caller is notified.
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

    /// Notifies a holder that it has lost its locks, or must stop. Does so once, and again if a shutdown ends its body.
    pub(super) fn lose_call(&mut self, id: CallId, cause: LossCause) {
        let stage = self.calls.get_mut(id).map(|call| &mut call.stage);
        if let Some(Stage::Holding { lost, .. }) = stage
            && (!std::mem::replace(lost, true) || cause == LossCause::Shutdown)
        {
            self.outputs.push_back(Output::Lost { call: id, cause });
        }
    }

    /// Ends the ownership of a contender. Its holders lose all their other contenders too (rule P13).
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

    /// Gives up a contender that no call wants, and with it all that were put for its call, if that waits.
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

    /// Returns true if the call that a contender serves exclusively no longer waits, or has lost another contender.
    pub(super) fn is_unwanted(&self, id: ContenderId) -> bool {
        let broken = |it: &Contender| self.names.standing(it, &self.calls) == Standing::Broken;
        self.names.contender(id).is_none_or(broken)
    }

    /// Marks the name of a contender as changed, and the other names of the call that it serves exclusively.
    pub(super) fn touch(&mut self, id: ContenderId) {
        self.names.touch(id.name);
        let call = self.names.contender(id).and_then(|it| self.calls.get(it.bound?));
        call.into_iter().for_each(|call| call.names.iter().for_each(|of| self.names.touch(*of)));
    }

    /// Deletes a contender's key, if it may exist.
    pub(super) fn delete(&mut self, id: ContenderId) {
        let deletion = self.part(id);
        self.outbox.deletions.pending.extend(deletion);
    }

    /// Ends the wait or the ownership of a contender. Returns the deletion of its key, if that may exist.
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
                // The deletion is best effort: the next contender has another session, and so another key.
                self.names.detach(id);
            }
        }
        Some(deletion)
    }

    /// Removes a contender whose key is gone.
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
