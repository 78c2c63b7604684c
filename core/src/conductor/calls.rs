//! Calls: the way of a call, from its arrival through its names to its grant, and back through its release.

use std::sync::Arc;
use std::time::Duration;

use super::{Core, Timer};
use crate::call::{Call, Stage};
use crate::contender::{Contender, Standing, State, Wish};
use crate::deadlock;
use crate::ids::{CallId, ContenderId, HELD, NameId, Unit};
use crate::input::{Acquire, Release, Wait};
use crate::loss::LossCause;
use crate::name::{Name, Step};
use crate::output::{Grant, Output, OwnedKey, Owner, Refused};
use crate::ownership::{Ownership, SETTLED};
use crate::seat::{Mode, Seat};
use crate::session::Session;
use crate::shutdown::Shutdown;
use crate::steps::step;
use crate::transactions::Deletion;
use crate::view::WARM;

/// How long a release waits for its confirmation (rule P25).
const CONFIRM: Duration = Duration::from_secs(2);

/// How long at least a released key lingers for the next call of this process. Other processes wait that much longer, and up to two
/// milliseconds more.
const LINGER: Duration = Duration::from_millis(1);

/// What has lingered goes together, once in this time, or with the next puts: a delete that goes alone is one commit more at etcd.
const TOGETHER: Duration = Duration::from_millis(2);

/// When to see again whether etcd works on a single try that has waited for long.
const AGAIN: Duration = Duration::from_millis(500);

/// From arrival to grant, or refusal.
impl Core {
    /// A call has come.
    pub(super) fn acquire(&mut self, acquire: Acquire) {
        let id = acquire.call;
        let nested = self.calls.hold(&acquire.holds);
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
        let names = acquire.names.iter().map(|name| self.names.intern(name));
        let names: Arc<[NameId]> = names.collect();
        let what = (Wish { mode: acquire.mode, ttl_secs: acquire.ttl_secs }, acquire.record);
        let ticket = self.names.ticket();
        let stage = Stage::Waiting { ticket, tries };
        let mut call = Call::new(self.now, names.clone(), what, stage, until, acquire.holds);
        // A wait for permits is not followed (rule P38).
        call.is_shown = nested && !tries && !matches!(acquire.mode, Mode::Permits(_));
        call.search_at = call.is_shown.then(|| deadlock::next_search(self.now));
        let mut taken = false;
        for name in &*names {
            if let Some(name) = self.names.get_mut(*name) {
                taken |= tries && name.is_taken_for(&call);
                name.enter(ticket, id, &call);
            }
        }
        self.calls.add(id, call);
        if taken {
            return self.refuse_try(id);
        }
        self.set_call_timer(id);
        for name in &*names {
            self.end_lingering(*name);
            self.names.touch(*name);
        }
        let machines = (&self.calls, &self.names, &self.sessions);
        if nested && let Some(cycle) = deadlock::cycle_here(id, self.now, machines) {
            self.refuse_deadlocked(id, cycle);
        }
    }

    /// Sets the one timer of a call.
    pub(super) fn set_call_timer(&mut self, id: CallId) {
        if let Some(due) = self.calls.get(id).and_then(Call::due) {
            self.timers.set(Timer::Call(id), due);
        }
    }

    pub(super) fn turn_down(&mut self, call: CallId, why: Refused) {
        self.outputs.push_back(Output::Refused { call, why });
    }

    /// Refuses a waiting call.
    pub(super) fn refuse(&mut self, call: CallId, why: Refused) {
        if self.calls.waiting(call).is_some() {
            self.withdraw(call);
            self.turn_down(call, why);
        }
    }

    /// Takes a waiting call out of its queues.
    pub(super) fn withdraw(&mut self, id: CallId) {
        let Some(ticket) = self.calls.get(id).and_then(Call::ticket) else { return };
        let Some(call) = self.calls.remove(id) else { return };
        for name in &*call.names {
            if let Some(name) = self.names.get_mut(*name) {
                name.leave(ticket, &call);
            }
            self.names.touch(*name);
        }
        self.stop_waiting(id, &call.own);
    }

    /// A call does not wait any more: what was put for it alone goes.
    fn stop_waiting(&mut self, id: CallId, own: &[ContenderId]) {
        self.timers.cancel(&Timer::Call(id));
        self.searches.all.remove(&id);
        own.iter().for_each(|of| self.give_up(*of));
    }

    /// Refuses a call that would have to wait, if it is a single try.
    pub(super) fn refuse_try(&mut self, call: CallId) {
        if self.calls.get(call).is_some_and(Call::is_try) {
            let (name, owner) = self.obstacle(call, |_| true).unwrap_or_default();
            self.refuse(call, Refused::Held { name, owner });
        }
    }

    /// The wait of a call, or for its release, is over; or a nested call is to look for a cycle.
    pub(super) fn call_due(&mut self, id: CallId) {
        let Some(call) = self.calls.get(id) else { return };
        if call.until.is_none_or(|until| until > self.now) {
            self.look_for_cycle(id);
            return self.set_call_timer(id);
        }
        if let Stage::Releasing { refused, .. } = &call.stage {
            let why = refused.clone().unwrap_or_else(|| self.silence());
            self.calls.remove(id);
            return self.outputs.push_back(Output::Released { call: id, result: Err(why) });
        }
        // That of a single try is over only if etcd does nothing for it.
        if call.is_try() && self.is_worked_on(id) {
            let again = Some(self.now + AGAIN);
            self.calls.get_mut(id).into_iter().for_each(|call| call.until = again);
            return self.set_call_timer(id);
        }
        let why = self.why_not(id);
        self.refuse(id, why);
    }

    /// Whether etcd works on a name of a waiting call. It does if it is not silent, and a put for the name is under way, in
    /// line, or behind a recent barrier. It does too if it lately answered about the name.
    fn is_worked_on(&self, id: CallId) -> bool {
        let lately = self.now - self.settings.connect_timeout;
        let silent = self.is_silent();
        let mut names = self.names_of(id);
        names.any(|(_, name)| {
            let mut unanswered = name.in_line().filter(|(_, it)| it.created.is_none());
            let goes_on = unanswered.any(|(_, it)| {
                let session = self.sessions.get(it.session);
                session.is_some_and(|it| it.opens_since(lately))
            });
            (goes_on && !silent) || name.heard >= Some(lately)
        })
    }

    /// The names of a call, with the place of each.
    pub(super) fn names_of(&self, id: CallId) -> impl Iterator<Item = (usize, &Name)> {
        let names = self.calls.get(id).into_iter().flat_map(|call| call.names.iter());
        names.enumerate().filter_map(|(at, name)| Some((at, self.names.get(*name)?)))
    }

    /// What a call is refused with whose wait is over: which of its names is taken, or that etcd has said nothing of any. Silence
    /// is never taken for held.
    fn why_not(&self, id: CallId) -> Refused {
        let Some(call) = self.calls.get(id).filter(|call| !call.is_try()) else {
            return self.silence();
        };
        let heard = |name: &Name| {
            name.heard >= Some(call.since) || name.in_line().all(|(_, it)| it.created.is_some())
        };
        let obstacle = self.obstacle(id, heard);
        // A group waited for another name, and its put has no response yet: etcd is not silent.
        let heard = || Some((self.names_of(id).find(|(_, name)| heard(name))?.0, None));
        match obstacle.or_else(heard) {
            Some((name, owner)) => Refused::Timeout { name, owner, waited: self.now - call.since },
            None => self.silence(),
        }
    }

    /// The first name that a call cannot have, of those that `counts` admits, and its owner. One with a known owner goes first.
    fn obstacle(
        &self,
        id: CallId,
        counts: impl Fn(&Name) -> bool,
    ) -> Option<(usize, Option<Owner>)> {
        let mut held = self.names_of(id).filter(|(_, name)| counts(name));
        let held = held.find_map(|(at, name)| Some((at, Some(self.owner(name)?))));
        let behind = |name: &Name| name.head(&self.calls).is_some_and(|(head, _)| head != id);
        let queued = |name: &Name| counts(name) && behind(name);
        held.or_else(|| Some((self.names_of(id).find(|(_, name)| queued(name))?.0, None)))
    }

    /// Who has a name: a call of this process that has not lost it, or another process.
    fn owner(&self, name: &Name) -> Option<Owner> {
        let own = |(_, contender): (u64, &Contender)| {
            let ownership = contender.held()?;
            self.sessions.get(contender.session).filter(|it| !it.is_lost())?;
            let record = self.record_of(ownership).map(|(_, record)| record);
            let record = record.unwrap_or_else(|| contender.record.clone());
            Some(Owner { record, unleased: None })
        };
        name.held().find_map(own).or_else(|| name.owner.clone())
    }

    /// The first holder, and its record; once that call has held its lock for a second, it says since when.
    pub(super) fn record_of(&self, ownership: &Ownership) -> Option<(CallId, Arc<[u8]>)> {
        let id = ownership.first()?;
        let call = self.calls.get(id)?;
        let waited = ownership.since - call.since;
        Some(match self.now - ownership.since < SETTLED {
            true => (id, call.record.clone()),
            false => (id, (self.settings.describe)(&call.record, waited)),
        })
    }

    /// Carries out the steps of a name until it waits for something.
    pub(super) fn serve(&mut self, id: NameId) {
        loop {
            step();
            let Some(name) = self.names.get(id) else { return };
            let at = |number| ContenderId { name: id, number };
            match name.step(self.now, &self.names, &self.calls, &self.sessions) {
                Step::Put(call) => {
                    if !self.claim(call) {
                        return;
                    }
                }
                Step::Grant(number, call) => {
                    if !self.grant_if_fresh(at(number), call) {
                        return;
                    }
                }
                Step::GiveUp(number) => self.give_up(at(number)),
                Step::Read(number) => {
                    let contender = self.names.contender_mut(at(number));
                    let ownership = contender.and_then(Contender::ownership_mut);
                    if ownership.is_none_or(|it| it.ask(self.now)) {
                        self.want_read(at(number), true);
                    }
                    return;
                }
                Step::RefuseTries => {
                    let tries: Vec<CallId> = name.tries.values().copied().collect();
                    tries.into_iter().for_each(|call| self.refuse_try(call));
                }
                Step::Retire => return self.retire_name(id),
                Step::Wait => return,
            }
        }
    }

    /// Gives the call at the head contenders, all at once. Returns false if it has to wait for one of its names, or waits by others
    /// already.
    fn claim(&mut self, id: CallId) -> bool {
        let Some(call) = self.calls.get(id) else { return false };
        let seat_of = |name: &NameId| self.names.get(*name)?.seat_for(id, call.wish.mode);
        let waits = |id: &ContenderId| self.names.contender(*id).is_some_and(Contender::is_in_line);
        let seats = call.names.iter().map(seat_of).collect::<Option<Vec<Seat>>>();
        let seats = seats.filter(|_| !call.own.iter().any(waits));
        seats.is_some_and(|seats| self.put_for(id, seats))
    }

    /// Puts contenders for a call on these seats, one for each of its names. Those of a nested call are for it alone, as their values
    /// list what its task holds.
    pub(super) fn put_for(&mut self, id: CallId, seats: Vec<Seat>) -> bool {
        let Some(call) = self.calls.get(id) else { return false };
        let (names, is_group, is_bound) =
            (call.names.clone(), call.is_group(), call.is_group() || call.is_shown);
        let held = self.calls.outer(id).filter(|_| call.is_shown);
        let held = held.flat_map(|(_, it)| it.holding().iter().copied());
        let lists: Vec<ContenderId> = held.take(HELD).collect();
        let session = self.sessions.choose(self.now, call.wish.ttl_secs);
        let mut ids = Vec::with_capacity(seats.len());
        for (name, seat) in names.iter().zip(seats) {
            let Some(family) = self.names.get(*name).map(|name| name.family.clone()) else {
                continue;
            };
            let mut contender = Contender::new(family, session, call.wish, seat);
            contender.record = call.record.clone();
            // Readers and permits may be beside others of their kind: the response to a plain put shows which (rule P11).
            contender.tries = call.is_try() && call.wish.mode == Mode::Exclusive;
            contender.bound = is_bound.then_some(id);
            contender.is_group = is_group;
            contender.lists.clone_from(&lists);
            ids.push(self.names.add(*name, contender));
        }
        for held in lists.iter().flat_map(|held| std::iter::repeat_n(held, ids.len())) {
            self.names.contender_mut(*held).into_iter().for_each(|it| it.listed += 1);
        }
        let ids: Unit = ids.into();
        self.sessions.attach(self.now, session, ids.clone());
        if is_bound && let Some(call) = self.calls.get_mut(id) {
            call.own = ids;
        }
        true
    }

    /// Grants the call its contender, which is admitted or held by readers. Returns false if its session is renewed first
    /// (rule P12).
    fn grant_if_fresh(&mut self, id: ContenderId, call: CallId) -> bool {
        let session_id = self.names.contender(id).map(|it| it.session);
        let session = session_id.and_then(|session| self.sessions.get(session));
        let waits = self.calls.waiting(call).is_some();
        let fresh = waits && session.is_some_and(|session| session.is_fresh(self.now));
        if fresh {
            self.grant(id, call);
        } else if waits && let Some(session) = session_id.and_then(|it| self.sessions.wake(it)) {
            session.unfresh.insert(id.name);
        }
        fresh
    }

    /// The call has its locks: by contenders that were put for it, together with readers, or from a call before it.
    fn grant(&mut self, id: ContenderId, call_id: CallId) {
        let Some(call) = self.calls.get(call_id) else { return };
        let Some(ticket) = call.ticket() else { return };
        let (mode, own) = (call.wish.mode, call.own.clone());
        let is_own = self.names.contender(id).is_some_and(|it| it.bound == Some(call_id));
        let contenders = if is_own { own.clone() } else { [id].into() };
        let (mut owned, mut number, mut deadline) = (Vec::with_capacity(contenders.len()), 0, None);
        for id in &*contenders {
            let Some(name) = self.names.get_mut(id.name) else { continue };
            let waited = name.get(id.number).is_some_and(Contender::is_in_line);
            if waited {
                name.hold(id.number);
            }
            self.calls.get(call_id).into_iter().for_each(|call| name.leave(ticket, call));
            self.names.touch(id.name);
            let Some(contender) = self.names.contender_mut(*id) else { continue };
            let (Some(created), Some(key)) = (contender.created, contender.key.clone()) else {
                continue;
            };
            let revision = contender.admitted.map_or(created, |at| at.max(created));
            if let Some(session) = self.sessions.get_mut(contender.session) {
                session.bodies += usize::from(waited);
                deadline = session.lease.as_ref().map(|lease| lease.deadline.clone());
            }
            if waited {
                // Then the response to its put has shown no younger contender.
                let alone = contender.admitted.filter(|at| *at == created);
                contender.state = State::Held(Ownership::begin(self.now, alone));
                (contender.read_at, contender.to_read) = (Some(self.now + SETTLED), None);
            }
            if let Some(ownership) = contender.ownership_mut() {
                let asks = ownership.add(self.now, call_id, waited);
                number = ownership.handover;
                if let Some(due) = contender.due() {
                    self.timers.set_by(Timer::Contender(*id), due);
                }
                if asks {
                    self.want_read(*id, true);
                }
            }
            owned.push(OwnedKey { key, created, revision, handover: number });
        }
        let others: Vec<ContenderId> =
            own.iter().filter(|of| !contenders.contains(of)).copied().collect();
        contenders.iter().for_each(|of| self.unlist(*of));
        self.calls.go_on(call_id, Stage::Holding { contenders, handover: number, lost: false });
        self.stop_waiting(call_id, &others);
        if let Some(deadline) = deadline {
            self.outputs.push_back(Output::Granted(Grant { call: call_id, mode, owned, deadline }));
        }
    }
}

/// From release to the end.
impl Core {
    /// The body of a call is gone: now its keys may go, to the next call in this process or for good (rules P23, P26).
    pub(super) fn release(&mut self, id: CallId, how: Release, fenced: bool) {
        let Some(Call { stage: Stage::Holding { contenders, handover, .. }, .. }) =
            self.calls.get(id)
        else {
            return;
        };
        let (contenders, handover) = (contenders.clone(), *handover);
        match how {
            Release::Confirmed => {
                let stage = Stage::Releasing { left: contenders.len(), refused: None };
                self.calls.go_on(id, stage);
            }
            Release::Unconfirmed | Release::Lingering => drop(self.calls.remove(id)),
        }
        for of in &*contenders {
            self.leave(*of, (id, handover), how, fenced);
        }
        if let Some(call) = self.calls.get_mut(id) {
            call.until = Some(self.now + CONFIRM);
            self.timers.set(Timer::Call(id), self.now + CONFIRM);
        }
    }

    /// A call does not hold a contender any more: its key stays with others, or for a moment, or goes.
    fn leave(
        &mut self,
        id: ContenderId,
        (call, handover): (CallId, u16),
        how: Release,
        fenced: bool,
    ) {
        let Some(contender) = self.names.contender_mut(id) else {
            return self.confirm(Some(call));
        };
        if contender.ownership_mut().is_some_and(|it| !it.leave(call, handover)) {
            return self.confirm(Some(call));
        }
        contender.confirms = Some(call);
        match how == Release::Lingering && !fenced && self.may_linger(id) {
            true => {
                let ownership = self.names.contender(id).and_then(Contender::ownership);
                let handover = ownership.map_or(0, |it| it.handover);
                self.outbox.lingering.push_back((self.now + LINGER, id, handover));
                self.set_linger_timer();
            }
            false => self.pass_on(id, fenced),
        }
    }

    /// No body has a contender any more: the next call of this process has it, or its key is deleted.
    fn pass_on(&mut self, id: ContenderId, fenced: bool) {
        if let Some(heir) = self.heir(id).filter(|_| !fenced) {
            self.grant(id, heir);
            let call = self.names.contender_mut(id).and_then(|it| it.confirms.take());
            return self.confirm(call);
        }
        let Some(session_id) = self.names.contender(id).map(|it| it.session) else { return };
        self.sessions.drop_body(session_id);
        self.delete(id);
        if self.sessions.get(session_id).is_some_and(Session::is_lost) {
            // Best effort will do: the next contender has another session, and so another key.
            self.detach(id);
        }
    }

    /// The keys of a call are on a lease of their own: its session has done its duty. They are not deleted, and its names stay closed
    /// here, because a new key of this process would replace a moved one (rule P39).
    pub(super) fn moved(&mut self, id: CallId) {
        let Some(call) = self.calls.remove(id) else { return };
        let Stage::Holding { contenders, handover, .. } = call.stage else { return };
        for of in &*contenders {
            let Some(name) = self.names.get_mut(of.name) else { continue };
            let Some(contender) = name.get_mut(of.number) else { continue };
            let session = contender.session;
            if contender.ownership_mut().is_some_and(|it| it.leave(id, handover)) {
                name.part(of.number); // no delete follows
                self.timers.cancel(&Timer::Contender(*of));
                self.sessions.drop_body(session);
            }
        }
    }

    /// The call that may take over what another call held.
    fn heir(&self, id: ContenderId) -> Option<CallId> {
        self.names.get(id.name)?.heir(self.staying(id)?, &self.calls)
    }

    /// A contender whose key may stay in this process after its body.
    fn staying(&self, id: ContenderId) -> Option<&Contender> {
        let contender = self.names.contender(id)?;
        let session = self.sessions.get(contender.session)?;
        let sound = session.accepts() && session.is_fresh(self.now);
        // One that a waiting key lists is deleted: another holder would not wait (rule P38).
        let passes = contender.listed == 0 && contender.ownership()?.may_pass(self.now);
        (sound && passes).then_some(contender)
    }

    /// Returns true if a key may stay a moment after its body: no call waits for it, as far as this process knows.
    fn may_linger(&self, id: ContenderId) -> bool {
        let alone = |it: &&Contender| it.wish.mode == Mode::Exclusive && !it.is_group;
        let ownership = self.staying(id).filter(alone).and_then(Contender::ownership);
        let unwanted = self.names.get(id.name).is_some_and(|name| name.is_unwanted(self.now));
        ownership.is_some_and(|it| !it.is_contended()) && unwanted && self.shutdown == Shutdown::Not
    }

    /// A call has come for a name that lingers: it takes it over, or the key goes.
    fn end_lingering(&mut self, name: NameId) {
        let held = self.names.get(name).and_then(|name| name.held().next());
        if let Some((number, _)) = held {
            self.linger_over(ContenderId { name, number });
        }
    }

    /// A contender does not linger any longer, if it does.
    pub(super) fn linger_over(&mut self, id: ContenderId) {
        let ownership = self.names.contender(id).and_then(Contender::ownership);
        if ownership.is_some_and(|it| it.first().is_none()) {
            self.pass_on(id, false);
        }
    }

    /// Deletes the keys that have lingered for as long as they may: at most this many.
    pub(super) fn delete_lingered(&mut self, most: usize) {
        for _ in 0..most {
            let first = self.outbox.lingering.front().filter(|(until, ..)| *until <= self.now);
            let Some((_, id, handover)) = first.copied() else { break };
            self.outbox.lingering.pop_front();
            let ownership = self.names.contender(id).and_then(Contender::ownership);
            if ownership.is_some_and(|it| it.handover == handover) {
                self.linger_over(id);
            }
        }
        self.set_linger_timer();
    }

    fn set_linger_timer(&mut self) {
        if let Some((until, ..)) = self.outbox.lingering.front() {
            self.timers.set_by(Timer::Linger, until.rounded_up(TOGETHER));
        }
    }

    /// One contender of a released call is gone. After the last one its caller is notified.
    pub(super) fn confirm(&mut self, call: Option<CallId>) {
        let Some(id) = call else { return };
        let stage = self.calls.get_mut(id).map(|call| &mut call.stage);
        let Some(Stage::Releasing { left, .. }) = stage else { return };
        *left -= 1;
        if *left == 0 {
            self.timers.cancel(&Timer::Call(id));
            self.calls.remove(id);
            self.outputs.push_back(Output::Released { call: id, result: Ok(()) });
        }
    }

    /// A holding call has lost its locks: all of them, and its caller is notified once (rule P13).
    pub(super) fn lose_call(&mut self, id: CallId, cause: LossCause) {
        let stage = self.calls.get_mut(id).map(|call| &mut call.stage);
        let Some(Stage::Holding { contenders, lost, .. }) = stage else { return };
        if std::mem::replace(lost, true) {
            return;
        }
        let contenders = contenders.clone();
        if cause != LossCause::Shutdown {
            for of in &*contenders {
                let ownership = self.names.contender_mut(*of).and_then(Contender::ownership_mut);
                ownership.into_iter().for_each(|it| it.lost = true);
            }
        }
        self.outputs.push_back(Output::Lost { call: id, cause });
    }

    /// The calls that hold a contender have lost it.
    pub(super) fn lose_contender(&mut self, id: ContenderId, cause: LossCause) {
        let Some(ownership) = self.names.contender_mut(id).and_then(Contender::ownership_mut)
        else {
            return;
        };
        ownership.lost = true;
        for call in ownership.holders().collect::<Vec<_>>() {
            self.lose_call(call, cause);
        }
        self.linger_over(id);
        self.names.touch(id.name);
    }

    /// No call wants a contender that is in line: its key goes, once it is known whether there is one; and so do all that were put for
    /// its call.
    pub(super) fn give_up(&mut self, id: ContenderId) {
        let bound = self.names.contender(id).and_then(|it| self.calls.waiting(it.bound?));
        let own = bound.map_or_else(|| [id].into(), |call| call.own.clone());
        for id in &*own {
            match self.names.contender(*id).map(|it| &it.state) {
                Some(State::Pending) => self.remove(*id),
                Some(State::Waiting) => self.delete(*id),
                _ => {}
            }
        }
    }

    /// What a contender lists may pass on: it waits no more.
    fn unlist(&mut self, id: ContenderId) {
        let lists = self.names.contender_mut(id).map(|it| std::mem::take(&mut it.lists));
        for held in lists.into_iter().flatten() {
            self.names.contender_mut(held).into_iter().for_each(|it| it.listed -= 1);
        }
    }

    /// Returns true if the call that a contender is for alone waits no more, or has lost another one.
    pub(super) fn is_unwanted(&self, id: ContenderId) -> bool {
        let broken = |it: &Contender| self.names.standing(it, &self.calls) == Standing::Broken;
        self.names.contender(id).is_none_or(broken)
    }

    /// Looks again at the names of the call that a contender is for alone.
    pub(super) fn touch_bound(&mut self, contender: Option<CallId>) {
        let call = contender.and_then(|call| self.calls.get(call));
        call.into_iter().for_each(|call| call.names.iter().for_each(|of| self.names.touch(*of)));
    }

    /// A contender's key is to be deleted, if it may be there.
    pub(super) fn delete(&mut self, id: ContenderId) {
        let Some(name) = self.names.get_mut(id.name) else { return };
        let Some(contender) = name.get(id.number) else { return };
        use State::{Held, Unsettled, Waiting};
        let may_be_there = matches!(contender.state, Waiting | Held(_) | Unsettled);
        let Some(key) = contender.key.clone().filter(|_| may_be_there) else { return };
        let (session, created, bound) = (contender.session, contender.created, contender.bound);
        name.part(id.number);
        self.outbox.deletions.pending.push_back(Deletion { contender: id, session, key, created });
        self.timers.cancel(&Timer::Contender(id));
        self.names.touch(id.name);
        self.touch_bound(bound);
    }

    /// A contender is gone for good.
    pub(super) fn remove(&mut self, id: ContenderId) {
        self.unlist(id);
        self.detach(id);
        let contender = self.names.get_mut(id.name).and_then(|name| name.remove(id.number));
        let Some(contender) = contender else { return };
        self.timers.cancel(&Timer::Contender(id));
        self.sessions.detach(self.now, contender.session, id);
        self.confirm(contender.confirms);
        self.touch_bound(contender.bound);
    }

    /// The name of a contender goes on without it, whatever becomes of its key.
    pub(super) fn detach(&mut self, id: ContenderId) {
        if let Some(name) = self.names.get_mut(id.name) {
            name.detach(id.number);
        }
        self.names.touch(id.name);
    }

    /// No call wants a name: forgets it, at once if it is not watched, else a little later with its watch.
    fn retire_name(&mut self, id: NameId) {
        match self.view.is_watched(id) {
            true => self.timers.set(Timer::Rest(id), self.now + WARM),
            false => self.names.forget(id),
        }
    }

    /// A name has not been wanted for a while: stops watching it, and forgets it.
    pub(super) fn rest(&mut self, id: NameId) {
        let is_idle = |it: &Name| it.waiters.is_empty() && it.contenders.is_empty();
        if self.names.get(id).is_some_and(is_idle) {
            self.outputs.extend(self.view.close(id, |_| true));
            self.names.forget(id);
        }
    }
}
