//! Name: the wait queue of one lock name in this process, and the contenders that this process has for it.
//!
//! The head of the queue gets a contender (rules P3, P4). So does each nested call that has waited for a second (rule P38). Calls
//! of all modes wait in one queue; their seats decide which of them may hold the name together (rule P37). [`Name::step`] derives
//! the next step from the state alone. It runs after every change of the name, so nothing has to remember why.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::mem::{replace, take};
use std::time::Duration;

use crate::call::{Call, Calls, Ticket};
use crate::contender::{Contender, Standing, State};
use crate::ids::{CallId, ContenderId, Key, LeaseId, NameId, Revision, contends, lease_of};
use crate::moment::Moment;
use crate::output::Owner;
use crate::pool::Sessions;
use crate::request::Kv;
use crate::seat::{Mode, Seat};
use crate::session::Session;
use crate::steps::step;

/// The most waiting contenders of a name that are read and watched at a time.
const FRONTS: usize = 64;

/// A name with more keys of other names below it is crowded: it is read at most once in [`REST`].
const BELOW: usize = 64;
const REST: Duration = Duration::from_secs(1);

/// Lingering keys are deleted together once in this time, or with the next puts. Deleted alone, a key costs etcd one more commit.
const TOGETHER: Duration = Duration::from_millis(2);

/// How long a name counts as contended after another process was seen to want it.
const CONTENDED: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The call at the head gets a contender.
    Put(CallId),
    /// The contender serves this call: nothing excludes it any more, readers hold it, or the call before has released it.
    Grant(u64, CallId),
    /// No call wants the contender, so its key is deleted.
    GiveUp(u64),
    /// A read must show what is ahead of the contender, or behind it.
    Read(u64),
    /// Single tries are refused, because they would have to wait.
    RefuseTries,
    /// The name is forgotten, because no call and no contender is left.
    Retire,
    /// Nothing, until the name changes.
    Wait,
}

#[derive(Debug, Default)]
pub struct Name {
    pub text: Key,
    /// Its text and a `/`: the prefix of its contenders' keys.
    pub family: Key,
    pub waiters: BTreeMap<Ticket, CallId>,
    /// The single tries among the waiters.
    pub tries: BTreeMap<Ticket, CallId>,
    /// The number of waiters of each [`kind`].
    kinds: [usize; 3],
    pub contenders: BTreeMap<u64, Contender>,
    /// The contender that is being put, or waits, for the head of the queue.
    in_line: Option<u64>,
    /// The contenders that wait at etcd, those of nested calls included, the oldest first.
    waiting: BTreeSet<(Option<Revision>, u64)>,
    /// The contenders that calls hold, the oldest first. Permits are marked, and follow all others.
    held: BTreeSet<(bool, u64)>,
    /// The held contenders whose last body is gone.
    released: BTreeSet<u64>,
    /// The taken seats, each with its contender.
    seats: BTreeMap<Seat, u64>,
    /// Seat numbers that were given back, one series for all kinds. The smallest is used first (rule P4).
    given_back: BTreeSet<u16>,
    /// The record of another process that owned the name at the last read. Known only while a contender of this process waits.
    pub owner: Option<Owner>,
    /// When etcd last responded about the name.
    pub answered: Option<Moment>,
    /// When a contender of another process was last seen.
    foreign: Option<Moment>,
    /// The name is not read before this moment, because there are many keys of other names below it.
    pub rests_until: Option<Moment>,
}

impl Name {
    pub fn step(&self, now: Moment, names: &Names, calls: &Calls, sessions: &Sessions) -> Step {
        let step = |of: &u64| self.step_of_released(*of, now, calls, sessions);
        if let Some(step) = self.released.iter().find_map(step) {
            return step;
        }
        for (number, contender) in self.in_line() {
            let may_go = matches!(contender.state, State::Pending | State::Waiting);
            match (names.standing(contender, calls), self.serves(contender, calls)) {
                (Standing::Broken, _) | (_, None) if may_go => return Step::GiveUp(number),
                (Standing::Admitted, Some(call)) => return Step::Grant(number, call),
                // It serves no call, but its request has no response yet. Until then it blocks the name.
                _ => {}
            }
        }
        let unread = |it: &Contender| it.is_unread() && it.admitted.is_none();
        if let Some((number, _)) = self.fronts().find(|(_, it)| unread(it)) {
            return Step::Read(number);
        }
        let Some((number, contender)) = self.in_line.and_then(|of| self.numbered(of)) else {
            return match self.head(calls) {
                Some((id, head)) => self.step_of(id, head, now, sessions),
                None if self.contenders.is_empty() => Step::Retire,
                None => Step::Wait,
            };
        };
        let stays = |key: &[u8]| !self.is_going(key, None, sessions);
        if self.tries.is_empty() || !contender.is_excluded_by(stays) {
            return Step::Wait;
        }
        // The name is held here, by an owner elsewhere, or by a nested call that is ahead.
        let behind = !self.fronts().any(|(front, _)| front == number);
        match self.owner.is_some() || !self.held.is_empty() || behind {
            true => Step::RefuseTries,
            false => Step::Read(number), // shows who owns it
        }
    }

    /// Decides whether a contender without a body passes to the next call, lingers, or is deleted (rules P23, P26).
    fn step_of_released(
        &self,
        number: u64,
        now: Moment,
        calls: &Calls,
        sessions: &Sessions,
    ) -> Option<Step> {
        let contender = self.contenders.get(&number)?;
        let (mode, ownership) = (contender.wish.mode, contender.ownership()?);
        let sound = |session: &Session| session.accepts() && session.is_fresh(now);
        let sound = sessions.all.get(&contender.session).is_some_and(sound);
        // A key that a waiting key lists is deleted: its next holder would not wait (rule P38).
        let alone = !contender.is_group && contender.listed == 0;
        let stays = sound && alone && ownership.may_pass(now);
        let foreign = self.foreign.is_some_and(|at| now - at < CONTENDED);
        let lingers = mode == Mode::Exclusive && !foreign && ownership.stays > Some(now);
        // The heir must want only this name, in the same mode and with the same TTL.
        let inherits = |head: &Call| !head.is_group() && head.wish == contender.wish;
        match self.head(calls) {
            Some((heir, head)) if stays && mode != Mode::Shared && inherits(head) => {
                Some(Step::Grant(number, heir))
            }
            None if stays && lingers => None,
            _ => Some(Step::GiveUp(number)),
        }
    }

    /// Derives the step for the head, if no contender is in line for it: it joins readers, or gets a contender.
    fn step_of(&self, id: CallId, head: &Call, now: Moment, sessions: &Sessions) -> Step {
        let mode = head.wish.mode;
        if mode == Mode::Shared && !head.is_group() {
            // The youngest key of readers with the same TTL.
            let fits = |(_, it): &(u64, &Contender)| {
                step();
                let accepts = sessions.all.get(&it.session).is_some_and(Session::accepts);
                it.wish == head.wish && !it.is_group && accepts
            };
            if let Some((number, contender)) = self.held().rev().find(fits)
                && let Some(ownership) = contender.ownership()
            {
                match ownership.is_closed(now) {
                    Some(false) => return Step::Grant(number, id),
                    Some(true) => {}
                    None if ownership.asked.is_some() => return Step::Wait,
                    None => return Step::Read(number),
                }
            }
        }
        let is_excluded = || self.is_full(mode) || self.held_against(mode).next().is_some();
        // While a key of this process is being deleted, it no longer holds the name, but it still takes its seat.
        if !self.tries.is_empty() && is_excluded() { Step::RefuseTries } else { Step::Put(id) }
    }

    /// Returns true if calls of this process hold all permits. A contender would then only wait for one of them.
    fn is_full(&self, mode: Mode) -> bool {
        let permits = || self.held.len() - self.held_against(mode).count();
        matches!(mode, Mode::Permits(of) if permits() >= usize::from(of.get()))
    }

    /// Returns the held contenders that each exclude a call of this mode.
    pub fn held_against(&self, mode: Mode) -> impl Iterator<Item = (u64, &Contender)> {
        let held = self.held.range(..(!matches!(mode, Mode::Permits(_)), u64::MAX));
        let held = held.filter_map(|(_, number)| self.numbered(*number));
        held.filter(move |(_, it)| mode.is_excluded_by(it.seat))
    }

    /// Returns a seat for the head, or for a nested call that waits `beside` the queue; `None`: the call must wait.
    pub fn seat_for(&self, id: CallId, mode: Mode, beside: bool) -> Option<Seat> {
        let (_, head) = self.waiters.first_key_value()?;
        match mode {
            _ if beside => {
                Some(Seat::Nested { number: self.free_number()?, shared: mode == Mode::Shared })
            }
            _ if *head != id || self.in_line.is_some() || self.is_full(mode) => None,
            Mode::Exclusive => Some(Seat::Exclusive).filter(|it| !self.seats.contains_key(it)),
            Mode::Shared => self.free_number().map(Seat::Shared),
            Mode::Permits(_) => self.free_number().map(Seat::Permit),
        }
    }

    fn free_number(&self) -> Option<u16> {
        let taken = self.seats.len() - usize::from(self.seats.contains_key(&Seat::Exclusive));
        // If no number was given back, all smaller ones are taken.
        self.given_back.first().copied().or_else(|| u16::try_from(taken).ok())
    }

    /// Returns the call that a contender in line would serve.
    pub fn serves(&self, contender: &Contender, calls: &Calls) -> Option<CallId> {
        if let Some(call) = contender.bound {
            return calls.waiting(call).map(|_| call);
        }
        let (id, head) = self.head(calls)?;
        (!head.is_shown && !head.is_group() && head.wish == contender.wish).then_some(id)
    }

    pub fn head<'a>(&self, calls: &'a Calls) -> Option<(CallId, &'a Call)> {
        let (_, id) = self.waiters.first_key_value()?;
        Some((*id, calls.get(*id)?))
    }

    /// Adds a call to the queue. Returns true if it would have to wait there: an exclusive call or a group behind any call,
    /// readers and permits behind calls of another kind.
    pub fn enter(&mut self, id: CallId, call: &Call) -> bool {
        let Some(ticket) = call.ticket() else { return false };
        let kind = kind(call);
        let beside = if kind == 0 { 0 } else { self.kinds[kind] };
        let waits = self.waiters.len() > beside;
        self.kinds[kind] += 1;
        if call.is_try() {
            self.tries.insert(ticket, id);
        }
        self.waiters.insert(ticket, id);
        waits
    }

    pub fn leave(&mut self, call: &Call) {
        let Some(ticket) = call.ticket() else { return };
        self.tries.remove(&ticket);
        if self.waiters.remove(&ticket).is_some() {
            self.kinds[kind(call)] -= 1;
        }
    }

    fn numbered(&self, number: u64) -> Option<(u64, &Contender)> {
        Some((number, self.contenders.get(&number)?))
    }

    /// Changes a contender, and moves it to the lists where it then belongs. Every change of its state must use this.
    pub fn change<T>(&mut self, number: u64, by: impl FnOnce(&mut Contender) -> T) -> Option<T> {
        let contender = self.contenders.get_mut(&number)?;
        let result = by(contender);
        let waits = matches!(contender.state, State::Waiting) && !contender.detached;
        let held = contender.ownership().filter(|_| !contender.detached);
        let is_permit = matches!(contender.seat, Seat::Permit(_));
        list(&mut self.waiting, (contender.created, number), waits);
        list(&mut self.held, (is_permit, number), held.is_some());
        list(&mut self.released, number, held.is_some_and(|it| it.first().is_none()));
        self.in_line.take_if(|of| *of == number && !contender.is_in_line());
        if self.in_line.is_none() && self.waiting.is_empty() {
            self.owner = None; // unknown while no contender of this process waits
        }
        Some(result)
    }

    /// Returns the contenders that wait for no other one of this process: the oldest, and readers that follow only readers.
    pub fn fronts(&self) -> impl Iterator<Item = (u64, &Contender)> {
        let waiting = self.waiting.iter().filter_map(|(_, of)| self.numbered(*of));
        let mut shared = true;
        let fronts = waiting.enumerate().take_while(move |(at, (_, it))| {
            step();
            shared &= it.wish.mode == Mode::Shared;
            shared || *at == 0
        });
        fronts.map(|(_, front)| front).take(FRONTS)
    }

    /// Returns the contenders that may be admitted next: the fronts, and the one for the head of the queue.
    pub fn in_line(&self) -> impl Iterator<Item = (u64, &Contender)> {
        let fronts = self.fronts().filter(|(of, _)| Some(*of) != self.in_line);
        fronts.chain(self.in_line.and_then(|of| self.numbered(of)))
    }

    /// Returns the contenders that calls hold, the oldest first.
    pub fn held(&self) -> impl DoubleEndedIterator<Item = (u64, &Contender)> {
        self.held.iter().filter_map(|(_, number)| self.numbered(*number))
    }

    /// Returns the contender with this key, unless it is detached.
    pub fn by_key(&self, key: &[u8]) -> Option<u64> {
        let number = *self.seats.get(&Seat::of_key(key))?;
        let own = self.contenders.get(&number)?.key.as_ref()?;
        (own.as_bytes() == key).then_some(number)
    }

    /// Returns true if a key of this process holds nothing: its put or its delete has no response, its session is lost, or the
    /// key is gone. `lease` is the key's, if that is known: another client may have put the key under another lease.
    pub fn is_going(&self, key: &[u8], lease: Option<LeaseId>, sessions: &Sessions) -> bool {
        let named = lease_of(key).filter(|named| lease.is_none_or(|lease| lease == *named));
        match named.and_then(|_| self.contenders.get(&self.by_key(key)?)) {
            Some(own) => !matches!(own.state, State::Waiting | State::Held(_)),
            None => named.is_some_and(|lease| sessions.have(lease)),
        }
    }

    /// Takes in the keys of the family that a read returned, and notes whether too many of them belong to names below this one.
    pub fn note_below(&mut self, now: Moment, keys: &[Kv]) {
        let below = keys.iter().filter(|kv| !contends(&self.family, &kv.key)).count();
        self.rests_until = (below > BELOW).then_some(now + REST);
    }

    /// Takes in a read at a revision: what is ahead of a waiting contender, or behind a held one.
    pub fn read(&mut self, now: Moment, of: u64, at: Revision, seen: Vec<Kv>, sessions: &Sessions) {
        let Some(contender) = self.contenders.get_mut(&of) else { return };
        if contender.ownership().is_some() {
            let is_ours = |key: &[u8]| lease_of(key).is_some_and(|it| sessions.have(it));
            let contended = contender.is_contended(&seen, is_ours);
            let ownership = contender.ownership_mut();
            ownership.into_iter().for_each(|it| it.read(now, at, contended));
            return self.see(now, contended);
        }
        contender.read(at, &seen);
        let excluded = contender.admitted.is_none();
        self.see(now, excluded);
        let owner = seen.into_iter().find(|kv| excluded && kv.lease.is_some());
        // A key of this process says nothing about owners elsewhere, so the last known owner stays.
        if owner.as_ref().is_none_or(|kv| self.by_key(&kv.key).is_none()) {
            self.owner = owner.map(|mut kv| {
                if self.is_going(&kv.key, kv.lease, sessions) {
                    kv.value.clear(); // it holds nothing, so it is not named as the owner (rule P36)
                }
                Owner::of(kv)
            });
        }
    }

    /// Takes in whether other processes have contenders.
    pub fn see(&mut self, now: Moment, foreign: bool) {
        self.answered = Some(now);
        self.foreign = foreign.then_some(now).or(self.foreign);
    }
}

fn list<T: Ord>(all: &mut BTreeSet<T>, item: T, belongs: bool) {
    match belongs {
        true => all.insert(item),
        false => all.remove(&item),
    };
}

/// Returns the kind of a call: 1 for readers, 2 for permits, each of which may share a name; 0 for exclusive calls and all groups.
fn kind(call: &Call) -> usize {
    match call.wish.mode {
        Mode::Shared if !call.is_group() => 1,
        Mode::Permits(_) if !call.is_group() => 2,
        _ => 0,
    }
}

/// All names that this process wants, holds, or still watches.
#[derive(Debug, Default)]
pub struct Names {
    all: Vec<Option<Box<Name>>>,
    free: Vec<NameId>,
    by_text: HashMap<Key, NameId>,
    /// The names whose next step may have changed.
    pub dirty: BTreeSet<NameId>,
    /// Names with a key that lingers, or has lingered, and when that ends, the earliest first.
    lingering: VecDeque<(Moment, NameId)>,
    tickets: u64,
    contenders: u64,
}

impl Names {
    /// Returns the id of a name, and adds the name if it is new.
    pub fn intern(&mut self, text: &Key) -> NameId {
        if let Some(id) = self.by_text.get(text) {
            return *id;
        }
        let id = self.free.pop().unwrap_or_else(|| {
            self.all.push(None);
            NameId(self.all.len() - 1)
        });
        let family = [text, "/"].concat().into();
        let name = Box::new(Name { text: text.clone(), family, ..Name::default() });
        self.by_text.insert(name.text.clone(), id);
        self.all[id.0] = Some(name);
        id
    }

    pub fn forget(&mut self, id: NameId) {
        if let Some(name) = self.all.get_mut(id.0).and_then(Option::take) {
            self.by_text.remove(&name.text);
            self.free.push(id);
        }
    }

    pub fn get(&self, id: NameId) -> Option<&Name> {
        self.all.get(id.0)?.as_deref()
    }

    pub fn get_mut(&mut self, id: NameId) -> Option<&mut Name> {
        self.all.get_mut(id.0)?.as_deref_mut()
    }

    pub fn contender(&self, id: ContenderId) -> Option<&Contender> {
        self.get(id.name)?.contenders.get(&id.number)
    }

    pub fn contender_mut(&mut self, id: ContenderId) -> Option<&mut Contender> {
        self.get_mut(id.name)?.contenders.get_mut(&id.number)
    }

    /// Notes that the next step of a name may have changed.
    pub fn touch(&mut self, id: NameId) {
        self.dirty.insert(id);
    }

    /// Returns a place behind all waiters. It is the same in all queues of a call, so any two calls have one order (rule P13).
    pub fn ticket(&mut self) -> Ticket {
        self.tickets += 1;
        Ticket(self.tickets)
    }

    /// Adds a contender to a name: it takes its seat and its place in line.
    pub fn add(&mut self, id: NameId, contender: Contender) -> ContenderId {
        for held in &contender.lists {
            self.contender_mut(*held).into_iter().for_each(|it| it.listed += 1);
        }
        self.contenders += 1;
        let number = self.contenders;
        if let Some(name) = self.get_mut(id) {
            contender.seat.number().into_iter().for_each(|number| {
                name.given_back.remove(&number);
            });
            name.seats.insert(contender.seat, number);
            if !matches!(contender.seat, Seat::Nested { .. }) {
                name.in_line = Some(number);
            }
            name.contenders.insert(number, contender);
        }
        ContenderId { name: id, number }
    }

    /// Ends the wait of a contender: the contenders that it lists may be handed over again.
    pub fn unlist(&mut self, id: ContenderId) {
        let lists = self.contender_mut(id).map(|it| take(&mut it.lists));
        for held in lists.into_iter().flatten() {
            self.contender_mut(held).into_iter().for_each(|it| it.listed -= 1);
        }
    }

    /// Removes a holder of a contender. Returns the result of `Ownership::leave`.
    pub fn release(
        &mut self,
        now: Moment,
        id: ContenderId,
        holder: (CallId, u16),
        stays: Option<Moment>,
    ) -> bool {
        let leave = |it: &mut Contender| {
            let is_last = it.ownership_mut().is_some_and(|it| it.leave(holder, stays));
            it.confirms = is_last.then_some(holder.0).or(it.confirms);
            is_last
        };
        let name = self.get_mut(id.name);
        let is_last = name.and_then(|it| it.change(id.number, leave)).unwrap_or_default();
        if is_last {
            let lingers = stays.filter(|until| *until > now);
            self.lingering.extend(lingers.map(|until| (until, id.name)));
            self.touch(id.name);
        }
        is_last
    }

    /// Returns when the first lingering ends.
    pub fn lingering_until(&self) -> Option<Moment> {
        self.lingering.front().map(|(until, _)| until.rounded_up(TOGETHER))
    }

    /// Ends the lingering of up to `most` names whose time is over.
    pub fn end_lingering(&mut self, now: Moment, most: usize) {
        let over = self.lingering.iter().take(most).take_while(|(until, _)| *until <= now).count();
        self.dirty.extend(self.lingering.drain(..over).map(|(_, name)| name));
    }

    /// Lets the name go on without a contender. Its key may still exist.
    pub fn detach(&mut self, id: ContenderId) {
        self.touch(id.name);
        let Some(name) = self.get_mut(id.name) else { return };
        let detach = |it: &mut Contender| (!replace(&mut it.detached, true)).then_some(it.seat);
        if let Some(seat) = name.change(id.number, detach).flatten() {
            name.seats.remove(&seat);
            name.given_back.extend(seat.number());
        }
    }

    /// Returns how far a contender has come, with the other contenders of its group if it is in one.
    pub fn standing(&self, contender: &Contender, calls: &Calls) -> Standing {
        let Some(call) = contender.bound else { return contender.standing() };
        let Some(call) = calls.waiting(call) else { return Standing::Broken };
        let each = call.own.iter().map(|id| {
            step();
            self.contender(*id).map_or(Standing::Broken, Contender::standing)
        });
        each.fold(contender.standing(), Standing::min)
    }

    pub fn iter(&self) -> impl Iterator<Item = (NameId, &Name)> {
        let all = self.all.iter().enumerate();
        all.filter_map(|(place, name)| Some((NameId(place), name.as_deref()?)))
    }
}
