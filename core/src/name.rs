//! Name: the calls of this process that want one lock name, in order, and the contenders that the process has below it.
//!
//! The head of the queue gets a contender that waits (rules P3, P4), and so does each nested call that has waited for a second
//! (rule P38). Calls of all modes stand in one queue; what they may hold together is for the seats to say (rule P37).
//! [`Name::step`] derives the next step from the state alone. A name is looked at again after anything about it has changed, so
//! nothing has to remember why.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use crate::contender::{Contender, State, Wish};
use crate::ids::{self, CallId, ContenderId, Key, LeaseId, NameId, Revision, SessionId, contends};
use crate::moment::Moment;
use crate::output::Owner;
use crate::ownership::Gate;
use crate::request::Kv;
use crate::seat::{Mode, Seat};
use crate::steps::step;

/// A call's place in all its queues: smaller is earlier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(u64);

/// Contenders that wait for no older one of this process, and are read and watched at a time.
const FRONTS: usize = 64;

/// A name with more keys of other names below it is crowded: it is read at most once in [`REST`].
const BELOW: usize = 64;
const REST: Duration = Duration::from_secs(1);

/// How long a name that other processes were seen to want counts as contended.
const CONTENDED: Duration = Duration::from_secs(1);

/// What a queue knows of a call that waits in it.
#[derive(Debug, Clone, Copy)]
pub struct Waiter {
    pub call: CallId,
    pub wish: Wish,
    /// It wants several names: its contenders serve no other call.
    pub is_group: bool,
    /// It is a single try.
    pub tries: bool,
    /// Its keys say what its task holds, so it never takes over one that waits for another call (rule P38).
    pub is_shown: bool,
    /// When its wait is over, if ever.
    pub until: Option<Moment>,
}

impl Waiter {
    /// Waiters of one kind may hold a name together; of the first kind none may, or only group by group.
    fn kind(&self) -> usize {
        match self.wish.mode {
            _ if self.is_group => 0,
            Mode::Exclusive => 0,
            Mode::Shared => 1,
            Mode::Permits(_) => 2,
        }
    }
}

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

    fn give_back(&mut self, number: u16) {
        self.given_back.insert(number);
    }
}

/// One lock name.
#[derive(Debug)]
pub struct Name {
    pub text: Key,
    /// Its text with a `/`: what its contenders' keys begin with.
    pub family: Key,
    waiters: BTreeMap<Ticket, Waiter>,
    /// The single tries among them.
    tries: BTreeSet<Ticket>,
    /// How many waiters there are of each kind.
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

    /// Derives the next step. `standing`: how far the call of a contender has come; `accepts`: whether a session takes new calls;
    /// `stays`: whether a key is not one of this process that holds nothing.
    pub fn step(
        &self,
        now: Moment,
        standing: impl Fn(&Contender) -> Standing,
        accepts: impl Fn(SessionId) -> bool,
        stays: impl Fn(&[u8]) -> bool,
    ) -> Step {
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
            match (standing(contender), self.serves(contender)) {
                (Standing::Broken, _) | (_, None) if may_go => return Step::GiveUp(number),
                (Standing::Admitted, Some(call)) => return Step::Grant(number, call),
                // One that serves no call, and has no response yet, is in the way until it has.
                _ => {}
            }
        }
        let unread = |it: &&Contender| it.read_at.is_none() && it.admitted().is_none();
        if let Some((number, _)) = self.fronts().find(|(_, it)| unread(it)) {
            return Step::Read(number);
        }
        let tries = !self.tries.is_empty();
        match (in_line, self.head()) {
            (Some((number, contender)), Some(_)) if tries && contender.is_excluded_by(stays) => {
                // Held here, by an owner elsewhere, or by a nested call that is ahead.
                let behind = !self.fronts().any(|(front, _)| front == number);
                match self.owner.is_some() || !self.held.is_empty() || behind {
                    true => Step::RefuseTries,
                    false => Step::Read(number), // shows who owns it
                }
            }
            (Some(_), _) => Step::Wait,
            (None, Some(head)) => self.step_of(head, now, accepts),
            (None, None) if self.contenders.is_empty() => Step::Retire,
            (None, None) => Step::Wait,
        }
    }

    /// The step of the head, for which no contender is in line: it joins readers, or gets its own.
    fn step_of(&self, head: &Waiter, now: Moment, accepts: impl Fn(SessionId) -> bool) -> Step {
        if head.wish.mode == Mode::Shared && !head.is_group {
            // The youngest key of readers who want the name alike.
            let fits = |contender: &Contender| {
                step();
                contender.wish == head.wish
                    && contender.siblings.is_empty()
                    && accepts(contender.session)
            };
            let held = self
                .held
                .iter()
                .rev()
                .filter_map(|number| Some((*number, self.contenders.get(number)?)));
            if let Some((number, contender)) = held.into_iter().find(|(_, it)| fits(it))
                && let Some(ownership) = contender.ownership()
            {
                match ownership.gate(now) {
                    Gate::Open => return Step::Grant(number, head.call),
                    Gate::Unknown if ownership.is_asked() => return Step::Wait,
                    Gate::Unknown => return Step::Read(number),
                    Gate::Closed => {}
                }
            }
        }
        if !self.tries.is_empty() && self.is_held_against(head.wish.mode) {
            return Step::RefuseTries;
        }
        // A key of this process that is being deleted does not hold its name, but it has its seat.
        self.free_seat(head.wish.mode).map_or(Step::Wait, |seat| Step::Put(head.call, seat))
    }

    /// Whether calls of this process hold all permits: a contender would only wait for one of these.
    fn is_full(&self, mode: Mode) -> bool {
        matches!(mode, Mode::Permits(of) if self.permits_held >= usize::from(of.get()))
    }

    /// Whether calls of this process hold the name, and exclude a call of this mode.
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
    pub fn seat_for(&self, call: CallId) -> Option<Seat> {
        let head = self.head().filter(|head| head.call == call && self.in_line.is_none())?;
        self.free_seat(head.wish.mode)
    }

    /// The call that a contender in line would serve.
    pub fn serves(&self, contender: &Contender) -> Option<CallId> {
        let head = self.head()?;
        let fits = match contender.bound {
            Some(call) => call == head.call,
            None => !head.is_shown && head.wish == contender.wish && !head.is_group,
        };
        fits.then_some(head.call)
    }

    /// The call that may take over a contender that is held: it wants just this name, and wants it alike (rule P23).
    pub fn heir(&self, contender: &Contender) -> Option<CallId> {
        let alone = contender.siblings.is_empty() && contender.wish.mode != Mode::Shared;
        let fits = |head: &&Waiter| alone && head.wish == contender.wish && !head.is_group;
        self.head().filter(fits).map(|head| head.call)
    }

    /// The first in the queue.
    pub fn head(&self) -> Option<&Waiter> {
        self.waiters.first_key_value().map(|(_, head)| head)
    }

    /// The waiters, in order.
    pub fn waiters(&self) -> impl Iterator<Item = CallId> {
        self.waiters.values().map(|waiter| waiter.call)
    }

    /// The single tries.
    pub fn tries(&self) -> Vec<CallId> {
        let tries = self.tries.iter().filter_map(|ticket| self.waiters.get(ticket));
        tries.map(|waiter| waiter.call).collect()
    }

    /// Whether a single try would have to queue behind calls that want something else.
    pub fn is_taken_for(&self, waiter: &Waiter) -> bool {
        let kind = waiter.kind();
        let same = if kind == 0 { 0 } else { self.kinds[kind] };
        self.waiters.len() > same
    }

    /// A call enters the queue.
    pub fn enter(&mut self, ticket: Ticket, waiter: Waiter) {
        self.kinds[waiter.kind()] += 1;
        if waiter.tries {
            self.tries.insert(ticket);
        }
        self.waiters.insert(ticket, waiter);
    }

    /// A call leaves the queue.
    pub fn leave(&mut self, ticket: Ticket) {
        self.tries.remove(&ticket);
        if let Some(waiter) = self.waiters.remove(&ticket) {
            self.kinds[waiter.kind()] -= 1;
        }
    }

    pub fn get(&self, number: u64) -> Option<&Contender> {
        self.contenders.get(&number)
    }

    pub fn get_mut(&mut self, number: u64) -> Option<&mut Contender> {
        self.contenders.get_mut(&number)
    }

    /// A contender takes its seat, and its place in line.
    pub fn add(&mut self, number: u64, contender: Contender) {
        match contender.seat {
            Seat::Exclusive => {}
            Seat::Shared(seat) => self.shared.take(seat),
            Seat::Permit(seat) => self.permits.take(seat),
            Seat::Nested { number, .. } => self.nested.take(number),
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

    /// A contender is to be deleted. Its seat stays taken until that is answered.
    pub fn part(&mut self, number: u64) {
        self.leave_line(number);
        let held = self.held.remove(&number);
        if let Some(contender) = self.contenders.get_mut(&number) {
            self.permits_held -= usize::from(held && matches!(contender.seat, Seat::Permit(_)));
            contender.state = State::Parting;
            contender.read_at = None;
        }
    }

    /// The name goes on without a contender, whatever becomes of its key.
    pub fn detach(&mut self, number: u64) {
        self.leave_line(number);
        self.held.remove(&number);
        if let Some(contender) = self.contenders.get_mut(&number)
            && !std::mem::replace(&mut contender.detached, true)
        {
            self.seats.remove(&contender.seat);
            match contender.seat {
                Seat::Exclusive => {}
                Seat::Shared(seat) => self.shared.give_back(seat),
                Seat::Permit(seat) => {
                    self.permits_held -= usize::from(matches!(contender.state, State::Held(_)));
                    self.permits.give_back(seat);
                }
                Seat::Nested { number, .. } => self.nested.give_back(number),
            }
        }
    }

    /// A contender is gone for good.
    pub fn remove(&mut self, number: u64) -> Option<Contender> {
        self.detach(number);
        self.contenders.remove(&number)
    }

    fn leave_line(&mut self, number: u64) {
        self.in_line.take_if(|of| *of == number);
        let created = self.contenders.get(&number).and_then(Contender::created);
        created.into_iter().for_each(|created| {
            self.waiting.remove(&(created, number));
        });
        if self.in_line.is_none() && self.waiting.is_empty() {
            self.owner = None; // unknown while this process has no contender that waits
        }
    }

    /// A contender waits at etcd from now on.
    pub fn wait(&mut self, number: u64) {
        let created = self.contenders.get(&number).and_then(Contender::created);
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
    pub fn held(&self) -> impl Iterator<Item = (u64, &Contender)> {
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
    pub fn intern(&mut self, text: &ids::Name) -> NameId {
        if let Some(id) = self.by_text.get(text.as_str()) {
            return *id;
        }
        let id = self.free.pop().unwrap_or_else(|| {
            self.all.push(None);
            NameId::at(self.all.len() - 1)
        });
        let name = Box::new(Name::new(text.as_str().into()));
        self.by_text.insert(name.text.clone(), id);
        self.all[id.place()] = Some(name);
        id
    }

    /// Forgets a name that no call wants, and that no contender is for.
    pub fn forget(&mut self, id: NameId) {
        if let Some(name) = self.all.get_mut(id.place()).and_then(Option::take) {
            self.by_text.remove(&name.text);
            self.free.push(id);
        }
    }

    pub fn get(&self, id: NameId) -> Option<&Name> {
        self.all.get(id.place())?.as_deref()
    }

    pub fn get_mut(&mut self, id: NameId) -> Option<&mut Name> {
        self.all.get_mut(id.place())?.as_deref_mut()
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
        if let Some(name) = self.all.get_mut(id.place()).and_then(Option::as_deref_mut)
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

    /// The id of the next contender of a name.
    pub fn contender_id(&mut self, name: NameId) -> ContenderId {
        self.contenders += 1;
        ContenderId { name, number: self.contenders }
    }

    /// How far the call of a contender has come with all its names.
    pub fn standing(&self, contender: &Contender) -> Standing {
        if contender.siblings.is_empty() {
            return match (&contender.state, contender.admitted()) {
                (State::Waiting, Some(_)) if !contender.aborts => Standing::Admitted,
                _ => Standing::Waits,
            };
        }
        let mut all = Standing::Admitted;
        for id in &*contender.siblings {
            step();
            let Some(sibling) = self.contender(*id).filter(|it| it.is_in_line()) else {
                return Standing::Broken;
            };
            let waits = !matches!(sibling.state, State::Waiting) || sibling.aborts;
            if waits || sibling.admitted().is_none() {
                all = Standing::Waits;
            }
        }
        all
    }

    pub fn iter(&self) -> impl Iterator<Item = (NameId, &Name)> {
        let all = self.all.iter().enumerate();
        all.filter_map(|(place, name)| Some((NameId::at(place), name.as_deref()?)))
    }
}
