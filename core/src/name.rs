//! Name: the calls of this process that want one lock name, in order, and the contenders that the process has below it.
//!
//! The head of the queue gets a contender that waits (rules P3, P4), and so does each nested call that has waited for a second
//! (rule P38). Calls of all modes stand in one queue; what they may hold together is for the seats to say (rule P37).
//! [`Name::step`] derives the next step from the state alone. A name is looked at again after anything about it has changed, so
//! nothing has to remember why.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use crate::call::{Call, Calls, Ticket};
use crate::contender::{Contender, State};
use crate::ids::{CallId, ContenderId, Key, LeaseId, NameId, Revision, contends, lease_of};
use crate::moment::Moment;
use crate::output::Owner;
use crate::ownership::Gate;
use crate::pool::Sessions;
use crate::request::Kv;
use crate::seat::{Mode, Seat};
use crate::session::Session;
use crate::steps::step;

/// Contenders that wait for no older one of this process, and are read and watched at a time.
const FRONTS: usize = 64;

/// A name with more keys of other names below it is crowded: it is read at most once in [`REST`].
const BELOW: usize = 64;
const REST: Duration = Duration::from_secs(1);

/// How long a name that other processes were seen to want counts as contended.
const CONTENDED: Duration = Duration::from_secs(1);

/// What a name wants done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The call at the head is to get a contender on this seat.
    Put(CallId, Seat),
    /// The contender serves this call: all that excluded it has gone, or readers hold it.
    Grant(u64, CallId),
    /// No call wants the contender: its key goes.
    GiveUp(u64),
    /// A read has to show what is ahead of the contender, or behind it.
    Read(u64),
    /// Single tries would have to wait.
    RefuseTries,
    /// Nothing is left of it.
    Retire,
    /// Nothing, until something about it changes.
    Wait,
}

/// How far a contender's call has come with all its names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// One of its contenders is gone, or on its way out.
    Broken,
    Waits,
    Admitted,
}

/// Numbers of seats in use. The smallest free one is used first (rule P4).
#[derive(Debug, Default)]
struct Numbers {
    given_back: BTreeSet<u16>,
    next: u16,
}

impl Numbers {
    fn free(&self) -> Option<u16> {
        let given_back = self.given_back.first().copied();
        given_back.or((self.next < u16::MAX).then_some(self.next))
    }

    fn take(&mut self, number: u16) {
        if !self.given_back.remove(&number) {
            self.next = number + 1;
        }
    }
}

/// One lock name.
#[derive(Debug)]
pub struct Name {
    pub text: Key,
    /// Its text with a `/`: what its contenders' keys begin with.
    pub family: Key,
    waiters: BTreeMap<Ticket, CallId>,
    /// The single tries among them.
    tries: BTreeSet<Ticket>,
    /// How many waiters there are of each [`kind`].
    kinds: [usize; 3],
    contenders: BTreeMap<u64, Contender>,
    /// The one that may be put, or waits, for the head of the queue.
    in_line: Option<u64>,
    /// Those that wait at etcd, those of nested calls too, the oldest first.
    waiting: BTreeSet<(Revision, u64)>,
    /// Those that calls hold, the oldest first.
    held: BTreeSet<u64>,
    permits_held: usize,
    /// The seats that are taken, each by one contender; and their numbers.
    seats: BTreeMap<Seat, u64>,
    shared: Numbers,
    permits: Numbers,
    nested: Numbers,
    /// The record of another process that was last seen to own the name, while a contender of this process waits.
    pub owner: Option<Owner>,
    /// When etcd last answered about the name.
    pub heard: Option<Moment>,
    /// When another process's contender was last seen.
    foreign: Option<Moment>,
    /// Many keys of other names are below it, so it is not read before this moment.
    rests_until: Option<Moment>,
    is_dirty: bool,
}

impl Name {
    fn new(text: Key) -> Self {
        Self {
            family: [&*text, "/"].concat().into(),
            text,
            waiters: BTreeMap::new(),
            tries: BTreeSet::new(),
            kinds: [0; 3],
            contenders: BTreeMap::new(),
            in_line: None,
            waiting: BTreeSet::new(),
            held: BTreeSet::new(),
            permits_held: 0,
            seats: BTreeMap::new(),
            shared: Numbers::default(),
            permits: Numbers::default(),
            nested: Numbers::default(),
            owner: None,
            heard: None,
            foreign: None,
            rests_until: None,
            is_dirty: false,
        }
    }

    /// Derives the next step.
    pub fn step(&self, now: Moment, names: &Names, calls: &Calls, sessions: &Sessions) -> Step {
        let standing = |it: &Contender| names.standing(it, calls);
        for (number, contender) in self.fronts().filter(|(of, _)| Some(*of) != self.in_line) {
            match (standing(contender), contender.bound) {
                (Standing::Admitted, Some(call)) => return Step::Grant(number, call),
                (Standing::Broken, _) => return Step::GiveUp(number),
                _ => {}
            }
        }
        let in_line = self.in_line.and_then(|number| Some((number, self.contenders.get(&number)?)));
        if let Some((number, contender)) = in_line {
            let may_go = matches!(contender.state, State::Pending { .. } | State::Waiting);
            match (standing(contender), self.serves(contender, calls)) {
                (Standing::Broken, _) | (_, None) if may_go => return Step::GiveUp(number),
                (Standing::Admitted, Some(call)) => return Step::Grant(number, call),
                // One that serves no call, and has no response yet, is in the way until it has.
                _ => {}
            }
        }
        let unread = |it: &&Contender| {
            it.read_at.is_none() && it.to_read.is_none() && it.admitted().is_none()
        };
        if let Some((number, _)) = self.fronts().find(|(_, it)| unread(it)) {
            return Step::Read(number);
        }
        let tries = !self.tries.is_empty();
        let stays = |key: &[u8]| !self.is_going(key, None, sessions);
        match (in_line, self.head(calls)) {
            (Some((number, contender)), Some(_)) if tries && contender.is_excluded_by(stays) => {
                // Held here, by an owner elsewhere, or by a nested call that is ahead.
                let behind = !self.fronts().any(|(front, _)| front == number);
                match self.owner.is_some() || !self.held.is_empty() || behind {
                    true => Step::RefuseTries,
                    false => Step::Read(number), // shows who owns it
                }
            }
            (Some(_), _) => Step::Wait,
            (None, Some((id, head))) => self.step_of(id, head, now, sessions),
            (None, None) if self.contenders.is_empty() => Step::Retire,
            (None, None) => Step::Wait,
        }
    }

    /// Derives the step for the head, for which no contender is in line: it joins readers, or gets its own.
    fn step_of(&self, id: CallId, head: &Call, now: Moment, sessions: &Sessions) -> Step {
        if head.wish.mode == Mode::Shared && !head.is_group() {
            // The youngest key of readers who want the name alike.
            let fits = |(_, it): &(u64, &Contender)| {
                step();
                let accepts = sessions.get(it.session).is_some_and(Session::accepts);
                it.wish == head.wish && !it.is_group && accepts
            };
            if let Some((number, contender)) = self.held().rev().find(fits)
                && let Some(ownership) = contender.ownership()
            {
                match ownership.gate(now) {
                    Gate::Open => return Step::Grant(number, id),
                    Gate::Unknown if ownership.asked.is_some() => return Step::Wait,
                    Gate::Unknown => return Step::Read(number),
                    Gate::Closed => {}
                }
            }
        }
        if !self.tries.is_empty() && self.is_held_against(head.wish.mode) {
            return Step::RefuseTries;
        }
        // A key of this process that is being deleted does not hold its name, but it has its seat.
        self.free_seat(head.wish.mode).map_or(Step::Wait, |seat| Step::Put(id, seat))
    }

    /// Returns true if calls of this process hold all permits: a contender would only wait for one of these.
    fn is_full(&self, mode: Mode) -> bool {
        matches!(mode, Mode::Permits(of) if self.permits_held >= usize::from(of.get()))
    }

    /// Returns true if calls of this process hold the name, and exclude a call of this mode.
    fn is_held_against(&self, mode: Mode) -> bool {
        self.is_full(mode) || self.held_against(mode).next().is_some()
    }

    /// The contenders that calls hold, and that exclude a call of this mode by themselves.
    pub fn held_against(&self, mode: Mode) -> impl Iterator<Item = (u64, &Contender)> {
        let permits = matches!(mode, Mode::Permits(_)) && self.permits_held == self.held.len();
        let held = self.held().take(if permits { 0 } else { usize::MAX });
        held.filter(move |(_, it)| mode.is_excluded_by(it.seat))
    }

    /// The seat that the next contender of this mode would take; `None`: it has to wait for one.
    pub fn free_seat(&self, mode: Mode) -> Option<Seat> {
        match mode {
            Mode::Exclusive => {
                (!self.seats.contains_key(&Seat::Exclusive)).then_some(Seat::Exclusive)
            }
            Mode::Shared => self.shared.free().map(Seat::Shared),
            Mode::Permits(_) if self.is_full(mode) => None,
            Mode::Permits(_) => self.permits.free().map(Seat::Permit),
        }
    }

    /// The seat for the call if it is at the head, and nothing is in line for others; `None`: it has to wait.
    pub fn seat_for(&self, call: CallId, calls: &Calls) -> Option<Seat> {
        let (_, head) = self.head(calls).filter(|(id, _)| *id == call && self.in_line.is_none())?;
        self.free_seat(head.wish.mode)
    }

    /// The call that a contender in line would serve.
    pub fn serves(&self, contender: &Contender, calls: &Calls) -> Option<CallId> {
        if let Some(call) = contender.bound {
            return calls.waiting(call).map(|_| call);
        }
        let (id, head) = self.head(calls)?;
        (!head.is_shown && !head.is_group() && head.wish == contender.wish).then_some(id)
    }

    /// The call that may take over a contender that is held: it wants just this name, and wants it alike (rule P23).
    pub fn heir(&self, contender: &Contender, calls: &Calls) -> Option<CallId> {
        let (id, head) = self.head(calls)?;
        let alone = !contender.is_group && contender.wish.mode != Mode::Shared;
        (alone && !head.is_group() && head.wish == contender.wish).then_some(id)
    }

    /// The first call in the queue.
    pub fn head<'a>(&self, calls: &'a Calls) -> Option<(CallId, &'a Call)> {
        let (_, id) = self.waiters.first_key_value()?;
        Some((*id, calls.get(*id)?))
    }

    /// The waiters, in order.
    pub fn waiters(&self) -> impl Iterator<Item = CallId> {
        self.waiters.values().copied()
    }

    /// The single tries.
    pub fn tries(&self) -> Vec<CallId> {
        self.tries.iter().filter_map(|ticket| self.waiters.get(ticket).copied()).collect()
    }

    /// Returns true if a single try would have to queue behind calls that want something else.
    pub fn is_taken_for(&self, call: &Call) -> bool {
        let kind = kind(call);
        let same = if kind == 0 { 0 } else { self.kinds[kind] };
        self.waiters.len() > same
    }

    /// A call enters the queue.
    pub fn enter(&mut self, ticket: Ticket, id: CallId, call: &Call) {
        self.kinds[kind(call)] += 1;
        if call.is_try() {
            self.tries.insert(ticket);
        }
        self.waiters.insert(ticket, id);
    }

    /// A call leaves the queue.
    pub fn leave(&mut self, ticket: Ticket, call: &Call) {
        self.tries.remove(&ticket);
        if self.waiters.remove(&ticket).is_some() {
            self.kinds[kind(call)] -= 1;
        }
    }

    pub fn get(&self, number: u64) -> Option<&Contender> {
        self.contenders.get(&number)
    }

    pub fn get_mut(&mut self, number: u64) -> Option<&mut Contender> {
        self.contenders.get_mut(&number)
    }

    /// The numbers of the seats of a kind.
    fn numbers(&mut self, seat: Seat) -> Option<(&mut Numbers, u16)> {
        match seat {
            Seat::Exclusive => None,
            Seat::Shared(number) => Some((&mut self.shared, number)),
            Seat::Permit(number) => Some((&mut self.permits, number)),
            Seat::Nested { number, .. } => Some((&mut self.nested, number)),
        }
    }

    /// A contender takes its seat, and its place in line.
    fn add(&mut self, number: u64, contender: Contender) {
        if let Some((numbers, number)) = self.numbers(contender.seat) {
            numbers.take(number);
        }
        self.seats.insert(contender.seat, number);
        if !matches!(contender.seat, Seat::Nested { .. }) {
            self.in_line = Some(number);
        }
        self.contenders.insert(number, contender);
    }

    /// A contender goes from the line to those that calls hold.
    pub fn hold(&mut self, number: u64) {
        self.leave_line(number);
        if let Some(contender) = self.contenders.get(&number) {
            self.permits_held += usize::from(matches!(contender.seat, Seat::Permit(_)));
            self.held.insert(number);
        }
    }

    /// A contender does not wait any more, and no call holds it.
    fn drop_from_lists(&mut self, number: u64) {
        self.leave_line(number);
        if self.held.remove(&number)
            && let Some(contender) = self.contenders.get(&number)
        {
            self.permits_held -= usize::from(matches!(contender.seat, Seat::Permit(_)));
        }
    }

    /// A contender is to be deleted. Its seat stays taken until that is answered.
    pub fn part(&mut self, number: u64) {
        self.drop_from_lists(number);
        if let Some(contender) = self.contenders.get_mut(&number) {
            contender.state = State::Parting;
            (contender.read_at, contender.to_read) = (None, None);
        }
    }

    /// The name goes on without a contender, whatever becomes of its key.
    pub fn detach(&mut self, number: u64) {
        self.drop_from_lists(number);
        let Some(contender) = self.contenders.get_mut(&number) else { return };
        if std::mem::replace(&mut contender.detached, true) {
            return;
        }
        let seat = contender.seat;
        self.seats.remove(&seat);
        if let Some((numbers, number)) = self.numbers(seat) {
            numbers.given_back.insert(number);
        }
    }

    /// A contender is gone for good.
    pub fn remove(&mut self, number: u64) -> Option<Contender> {
        self.detach(number);
        self.contenders.remove(&number)
    }

    fn leave_line(&mut self, number: u64) {
        self.in_line.take_if(|of| *of == number);
        let created = self.contenders.get(&number).and_then(|it| it.created);
        created.into_iter().for_each(|created| {
            self.waiting.remove(&(created, number));
        });
        if self.in_line.is_none() && self.waiting.is_empty() {
            self.owner = None; // unknown while this process has no contender that waits
        }
    }

    /// A contender waits at etcd from now on.
    pub fn wait(&mut self, number: u64) {
        let created = self.contenders.get(&number).and_then(|it| it.created);
        self.waiting.extend(created.map(|created| (created, number)));
    }

    /// The contenders that wait at etcd for no older one of this process: the oldest, and readers behind it if it is a reader's.
    pub fn fronts(&self) -> impl Iterator<Item = (u64, &Contender)> {
        let waiting = self.waiting.iter();
        let waiting = waiting.filter_map(|(_, of)| Some((*of, self.contenders.get(of)?)));
        let mut shared = true;
        let fronts = waiting.enumerate().take_while(move |(at, (_, it))| {
            step();
            shared &= it.wish.mode == Mode::Shared;
            shared || *at == 0
        });
        fronts.map(|(_, front)| front).take(FRONTS)
    }

    /// Whether a contender is read and watched while it waits: no older one of this process excludes it, or single tries have to know
    /// who owns the name.
    pub fn is_observed(&self, number: u64) -> bool {
        !self.tries.is_empty() || self.fronts().any(|(front, _)| front == number)
    }

    /// The contenders whose turn may come next: the one for the head, and those that wait for no other one of this process.
    pub fn in_line(&self) -> impl Iterator<Item = (u64, &Contender)> {
        let fronts = self.fronts().filter(|(of, _)| Some(*of) != self.in_line);
        let head = self.in_line.and_then(|number| Some((number, self.contenders.get(&number)?)));
        head.into_iter().chain(fronts)
    }

    /// The seat of the next nested call that waits beside the others.
    pub fn free_beside(&self, mode: Mode) -> Option<Seat> {
        let shared = mode == Mode::Shared;
        self.nested.free().map(|number| Seat::Nested { number, shared })
    }

    /// The contenders that calls hold, the oldest first.
    pub fn held(&self) -> impl DoubleEndedIterator<Item = (u64, &Contender)> {
        self.held.iter().filter_map(|number| Some((*number, self.contenders.get(number)?)))
    }

    /// All contenders, for checkers.
    #[cfg(feature = "simulation")]
    pub fn contenders(&self) -> impl Iterator<Item = (u64, &Contender)> {
        self.contenders.iter().map(|(number, contender)| (*number, contender))
    }

    /// The contender of this process that has this key, unless the name goes on without it.
    pub fn by_key(&self, key: &[u8]) -> Option<u64> {
        let number = *self.seats.get(&Seat::of_key(key))?;
        self.get(number)?.has(key).then_some(number)
    }

    /// Returns true if a key is of this process and holds nothing: its delete or its put has no response, its session is lost, or it is
    /// gone. `lease`: what it is attached to, if that is known. Another client may have put the key under another one.
    pub fn is_going(&self, key: &[u8], lease: Option<LeaseId>, sessions: &Sessions) -> bool {
        let named = lease_of(key).filter(|named| lease.is_none_or(|lease| lease == *named));
        let own = named.and_then(|_| self.get(self.by_key(key)?));
        match own {
            Some(own) => !matches!(own.state, State::Waiting | State::Held(_)),
            None => named.is_some_and(|lease| sessions.have(lease)),
        }
    }

    /// A read has shown these keys of the family. Returns true if many of them are of other names, below this one.
    pub fn note_below(&mut self, now: Moment, keys: &[Kv]) -> bool {
        let below = keys.iter().filter(|kv| !contends(&self.family, &kv.key)).count();
        self.rests_until = (below > BELOW).then_some(now + REST);
        self.is_crowded()
    }

    /// Whether many keys of other names are below it.
    pub fn is_crowded(&self) -> bool {
        self.rests_until.is_some()
    }

    /// The moment before which it is not read, because that would show very many keys of other names.
    pub fn rests_until(&self, now: Moment) -> Option<Moment> {
        self.rests_until.filter(|at| *at > now)
    }

    /// Whether no call of this process wants the name, and it has no contender below it.
    pub fn is_idle(&self) -> bool {
        self.waiters.is_empty() && self.contenders.is_empty()
    }

    /// Whether no call is known to want the name, in this process or in another.
    pub fn is_unwanted(&self, now: Moment) -> bool {
        let foreign = self.foreign.is_some_and(|at| now - at < CONTENDED);
        self.waiters.is_empty() && !foreign
    }

    /// Whether etcd has answered about the name since then.
    pub fn was_heard_since(&self, then: Moment) -> bool {
        self.heard.is_some_and(|at| at >= then)
    }

    /// etcd has answered about the name, and shown whether other processes have contenders.
    pub fn see(&mut self, now: Moment, foreign: bool) {
        self.heard = Some(now);
        if foreign {
            self.foreign = Some(now);
        }
    }
}

/// The kind of a call: those of one kind may hold a name together; of the first none may, or only group by group.
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
    /// Names whose next step may be another than before.
    dirty: VecDeque<NameId>,
    tickets: u64,
    contenders: u64,
}

impl Names {
    /// The name of this text, which is remembered from now on.
    pub fn intern(&mut self, text: &Key) -> NameId {
        if let Some(id) = self.by_text.get(text) {
            return *id;
        }
        let id = self.free.pop().unwrap_or_else(|| {
            self.all.push(None);
            NameId(self.all.len() - 1)
        });
        let name = Box::new(Name::new(text.clone()));
        self.by_text.insert(name.text.clone(), id);
        self.all[id.0] = Some(name);
        id
    }

    /// Forgets a name that no call wants, and that no contender is for.
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
        self.get(id.name)?.get(id.number)
    }

    pub fn contender_mut(&mut self, id: ContenderId) -> Option<&mut Contender> {
        self.get_mut(id.name)?.get_mut(id.number)
    }

    /// The put of a contender is sent, under this lease.
    pub fn sent(&mut self, id: ContenderId, lease: LeaseId) {
        if let Some(name) = self.get_mut(id.name)
            && let Some(contender) = name.contenders.get_mut(&id.number)
        {
            contender.sent(&name.family, lease);
        }
    }

    /// The next step of this name may be another than before.
    pub fn touch(&mut self, id: NameId) {
        if let Some(name) = self.all.get_mut(id.0).and_then(Option::as_deref_mut)
            && !std::mem::replace(&mut name.is_dirty, true)
        {
            self.dirty.push_back(id);
        }
    }

    /// The next name to look at.
    pub fn next_dirty(&mut self) -> Option<NameId> {
        let id = self.dirty.pop_front()?;
        if let Some(name) = self.get_mut(id) {
            name.is_dirty = false;
        }
        Some(id)
    }

    /// A place behind all that wait: the same in all queues of a call, so that any two calls stand in one order wherever they meet
    /// (rule P13).
    pub fn ticket(&mut self) -> Ticket {
        self.tickets += 1;
        Ticket(self.tickets)
    }

    /// A contender takes its seat in a name. Returns its id.
    pub fn add(&mut self, name: NameId, contender: Contender) -> ContenderId {
        self.contenders += 1;
        let number = self.contenders;
        if let Some(name) = self.get_mut(name) {
            name.add(number, contender);
        }
        ContenderId { name, number }
    }

    /// How far the call of a contender has come with all its names.
    pub fn standing(&self, contender: &Contender, calls: &Calls) -> Standing {
        let admits = |it: &Contender| {
            matches!(it.state, State::Waiting) && it.admitted().is_some() && !it.aborts
        };
        let Some(call) = contender.bound else {
            return if admits(contender) { Standing::Admitted } else { Standing::Waits };
        };
        let own = calls.waiting(call).map(|call| &call.own);
        let own = own.and_then(|own| {
            let in_line = |of: &ContenderId| {
                step();
                self.contender(*of).filter(|it| it.is_in_line())
            };
            own.iter().map(in_line).collect::<Option<Vec<_>>>()
        });
        match own {
            None => Standing::Broken,
            Some(own) if own.iter().all(|it| admits(it)) => Standing::Admitted,
            Some(_) => Standing::Waits,
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (NameId, &Name)> {
        let all = self.all.iter().enumerate();
        all.filter_map(|(place, name)| Some((NameId(place), name.as_deref()?)))
    }
}
