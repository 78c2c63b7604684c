//! Wait queue: the calls of this process that want one name, in order, and which contenders of it the process has.
//!
//! Only the head of the queue gets a contender that waits (rules P3, P4), so at most one does. Calls of all modes stand in one
//! queue; what they may have together is for the contenders' seats to say (rule P37).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;
use std::time::Duration;

use crate::ids::{CallId, ContenderId, Name};
use crate::moment::Moment;
use crate::output::Owner;
use crate::seat::{Mode, Seat};

/// A call's place in all its queues: smaller is earlier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(u64);

/// What a waiter wants. Waiters of one kind want the same of the same names, whatever their numbers of permits: they wait for what the
/// first of them waits for, and for it. (A group may stand in another queue between two of a kind: a cycle through it is found
/// once the first has gone.)
type Kind = (Mode, Arc<[Name]>);

/// What a queue has to know of a waiter.
#[derive(Debug)]
struct Waiter {
    call: CallId,
    kind: Kind,
}

/// Where a contender goes that is, or was, in line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Calls hold it, or have left it locked.
    Held,
    /// It is to be deleted: its seat stays taken until that is known.
    Closing,
    /// It is gone, or is not its names' any more: its seat is free.
    Gone,
}

/// How long a name that other processes were seen to want counts as contended.
const CONTENDED: Duration = Duration::from_secs(1);

/// Numbers of seats in use, each found and given back in logarithmic time; the smallest ones are used again first.
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

/// The wait queue of one name.
#[derive(Debug, Default)]
pub struct WaitQueue {
    waiters: BTreeMap<Ticket, Waiter>,
    /// Those that others depend on, by their kinds.
    kinds: BTreeMap<Kind, BTreeSet<Ticket>>,
    tries: BTreeSet<CallId>,
    /// The contenders of this process, each with its seat.
    in_line: Option<(ContenderId, Seat)>,
    held: BTreeMap<ContenderId, Seat>,
    /// Those whose deletion is not known.
    closing: BTreeMap<ContenderId, Seat>,
    /// The seats that they take.
    exclusive: bool,
    shared: Numbers,
    permits: Numbers,
    permits_held: usize,
    /// The record of another process that was last seen to own the name, while a contender of ours waits.
    owner: Option<Owner>,
    /// When etcd last answered about the name.
    heard: Option<Moment>,
    /// When another process's contender was last seen.
    foreign: Option<Moment>,
}

impl WaitQueue {
    /// The first in the queue.
    pub fn head(&self) -> Option<CallId> {
        self.waiters.first_key_value().map(|(_, head)| head.call)
    }

    /// The waiters, in order.
    pub fn waiters(&self) -> impl Iterator<Item = CallId> {
        self.waiters.values().map(|waiter| waiter.call)
    }

    /// The calls ahead of a waiter that may wait for more than it does: the first of each other kind.
    pub fn ahead_of(&self, ticket: Ticket) -> impl Iterator<Item = CallId> {
        let own = self.waiters.get(&ticket).map(|waiter| &waiter.kind);
        let others = self.kinds.iter().filter(move |(of, _)| Some(*of) != own);
        let others = others.filter_map(|(_, tickets)| tickets.first());
        let ahead = others.filter(move |other| **other < ticket);
        ahead.filter_map(|first| Some(self.waiters.get(first)?.call))
    }

    /// The waiters behind the first of a kind and ahead of the next of it: they would not wait for what it waits for without it.
    /// None behind another than the first.
    pub fn relying_on(&self, ticket: Ticket) -> impl Iterator<Item = CallId> {
        let of = self.waiters.get(&ticket);
        let of_kind = of.and_then(|it| self.kinds.get(&it.kind));
        let mut of_kind = of_kind.into_iter().flatten();
        let first = of_kind.next().filter(|first| **first == ticket);
        let end = of_kind.next().map_or(Unbounded, |next| Excluded(*next));
        let behind = first.map(|first| self.waiters.range((Excluded(*first), end)));
        behind.into_iter().flatten().map(|(_, waiter)| waiter.call)
    }

    /// Nobody depends on this waiter any more: its wait is over.
    fn pass_over(&mut self, ticket: Ticket) {
        if let Some(waiter) = self.waiters.get(&ticket)
            && let Some(tickets) = self.kinds.get_mut(&waiter.kind)
        {
            tickets.remove(&ticket);
            if tickets.is_empty() {
                self.kinds.remove(&waiter.kind);
            }
        }
    }

    /// Whether no call waits but single-name calls of this mode, with any number of permits.
    pub fn is_uniform(&self, mode: Mode) -> bool {
        let mut kinds = self.kinds.keys();
        kinds.all(|(of, names)| *of == mode.alike() && names.len() == 1)
    }

    fn leave(&mut self, ticket: Ticket) {
        self.pass_over(ticket);
        if let Some(waiter) = self.waiters.remove(&ticket) {
            self.tries.remove(&waiter.call);
        }
    }

    /// The contender that may be put, or waits.
    pub fn in_line(&self) -> Option<ContenderId> {
        self.in_line.map(|(id, _)| id)
    }

    /// The contenders that calls of this process hold, or have left locked, the oldest first.
    pub fn held(&self) -> impl DoubleEndedIterator<Item = ContenderId> + '_ {
        self.held.keys().copied()
    }

    /// Those of them that exclude a call of this mode.
    pub fn excluding(&self, mode: Mode) -> impl Iterator<Item = ContenderId> + '_ {
        let held = self.held.iter();
        let excluding = held.filter(move |(_, seat)| mode.is_excluded_by(**seat));
        excluding.map(|(id, _)| *id)
    }

    /// Whether no call wants the name, and this process has no key below it, nor may have one.
    pub fn is_idle(&self) -> bool {
        let contenders =
            self.in_line.is_some() || !self.held.is_empty() || !self.closing.is_empty();
        self.waiters.is_empty() && !contenders
    }

    /// The seat that the next contender of this mode would take; `None`: it has to wait for one.
    fn free_seat(&self, mode: Mode) -> Option<Seat> {
        match mode {
            Mode::Exclusive => (!self.exclusive).then_some(Seat::Exclusive),
            Mode::Shared => self.shared.free().map(Seat::Shared),
            // Where all permits are held here, a contender would only wait for one of these.
            Mode::Permits(of) if self.permits_held >= usize::from(of.get()) => None,
            Mode::Permits(_) => self.permits.free().map(Seat::Permit),
        }
    }

    /// Takes a contender with its seat to a place; `None`: it has given the seat back.
    fn place(&mut self, id: ContenderId, place: Place) -> Option<()> {
        let in_line = self.in_line.take_if(|(of, _)| *of == id);
        let held = self.held.remove(&id);
        self.permits_held -= usize::from(matches!(held, Some(Seat::Permit(_))));
        let seat = in_line.map(|(_, seat)| seat).or(held);
        let seat = seat.or_else(|| self.closing.remove(&id))?;
        match (place, seat) {
            (Place::Held, _) => {
                self.permits_held += usize::from(matches!(seat, Seat::Permit(_)));
                self.held.insert(id, seat);
            }
            (Place::Closing, _) => drop(self.closing.insert(id, seat)),
            (Place::Gone, Seat::Exclusive) => self.exclusive = false,
            (Place::Gone, Seat::Shared(number)) => self.shared.give_back(number),
            (Place::Gone, Seat::Permit(number)) => self.permits.give_back(number),
        }
        if place == Place::Gone && self.in_line.is_none() {
            self.owner = None; // unknown while this process has no contender
        }
        Some(())
    }

    pub fn owner(&self) -> Option<&Owner> {
        self.owner.as_ref()
    }

    /// Another process was seen to own the name; `None`: none, or it is not known which.
    pub fn set_owner(&mut self, owner: Option<Owner>) {
        self.owner = owner;
    }

    /// Whether etcd has answered about the name since then.
    pub fn was_heard_since(&self, then: Moment) -> bool {
        self.heard.is_some_and(|at| at >= then)
    }

    /// etcd answered about the name, and showed whether other processes have contenders.
    pub fn see(&mut self, now: Moment, foreign: bool) {
        self.heard = Some(now);
        if foreign {
            self.foreign = Some(now);
        }
    }
}

/// The wait queues of all names that this process wants, has, or still watches.
#[derive(Debug, Default)]
pub struct WaitQueues {
    queues: BTreeMap<Name, WaitQueue>,
    tickets: u64,
}

impl WaitQueues {
    pub fn get(&self, name: &Name) -> Option<&WaitQueue> {
        self.queues.get(name)
    }

    pub fn get_mut(&mut self, name: &Name) -> Option<&mut WaitQueue> {
        self.queues.get_mut(name)
    }

    fn of<'a>(&'a self, names: &'a [Name]) -> impl Iterator<Item = &'a WaitQueue> {
        names.iter().filter_map(|name| self.queues.get(name))
    }

    fn each(&mut self, names: &[Name], mut act: impl FnMut(&mut WaitQueue)) {
        for name in names {
            if let Some(queue) = self.queues.get_mut(name) {
                act(queue);
            }
        }
    }

    /// The same names, each in one copy for all calls; of one name, the whole list that its last waiter has.
    pub fn intern(&self, names: Vec<Name>) -> Arc<[Name]> {
        if let [name] = &*names
            && let Some((_, last)) =
                self.queues.get(name).and_then(|it| it.waiters.last_key_value())
            && last.kind.1.len() == 1
        {
            return last.kind.1.clone();
        }
        let known = |name: &Name| Some(self.queues.get_key_value(name)?.0.clone());
        let names = names.into_iter();
        names.map(|name| known(&name).unwrap_or(name)).collect()
    }

    /// Enters a call into the queues of all its names in one step, so that any two calls stand in one order wherever they meet
    /// (rule P13). `tries`: it is a single try. Answers its place.
    pub fn enqueue(
        &mut self,
        names: &Arc<[Name]>,
        call: CallId,
        mode: Mode,
        tries: bool,
    ) -> Ticket {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        for name in &**names {
            let queue = self.queues.entry(name.clone()).or_default();
            let kind = (mode.alike(), names.clone());
            queue.kinds.entry(kind.clone()).or_default().insert(ticket);
            queue.waiters.insert(ticket, Waiter { call, kind });
            if tries {
                queue.tries.insert(call);
            }
        }
        ticket
    }

    /// The wait of a call is over, but it stays in its queues for a moment: no walk comes by it.
    pub fn pass_over(&mut self, names: &[Name], ticket: Option<Ticket>) {
        self.each(names, |queue| {
            if let Some(ticket) = ticket {
                queue.pass_over(ticket);
            }
        });
    }

    /// Takes a call out of its queues: all of them at once.
    pub fn leave(&mut self, names: &[Name], ticket: Ticket) {
        self.each(names, |queue| queue.leave(ticket));
    }

    /// The call at the head of a name's queue.
    pub fn head(&self, name: &Name) -> Option<CallId> {
        self.queues.get(name)?.head()
    }

    /// Whether a call is at the head of all its queues.
    pub fn is_head(&self, names: &[Name], call: CallId) -> bool {
        names.iter().all(|name| self.head(name) == Some(call))
    }

    /// Whether a single try would have to queue behind calls that want something else.
    pub fn are_taken(&self, names: &[Name], mode: Mode) -> bool {
        let alone = mode == Mode::Exclusive || names.len() > 1;
        self.of(names).any(|queue| !queue.waiters.is_empty() && (alone || !queue.is_uniform(mode)))
    }

    /// The single tries for any of these names.
    pub fn tries(&self, names: &[Name]) -> Vec<CallId> {
        let tries = self.of(names).flat_map(|queue| &queue.tries);
        tries.copied().collect()
    }

    /// Whether single tries wait for one of these names.
    pub fn have_tries(&self, names: &[Name]) -> bool {
        self.of(names).any(|queue| !queue.tries.is_empty())
    }

    /// The contenders of these names that may be put, or wait; that of several names for each of them.
    pub fn in_line(&self, names: &[Name]) -> Vec<ContenderId> {
        self.of(names).filter_map(WaitQueue::in_line).collect()
    }

    /// Whether calls of this process hold one of these names, or have left it locked.
    pub fn are_held(&self, names: &[Name]) -> bool {
        self.of(names).any(|queue| !queue.held.is_empty())
    }

    /// Whether nobody is known to want any of these names, in this process or in another.
    pub fn are_unwanted(&self, names: &[Name], now: Moment) -> bool {
        let foreign = |queue: &WaitQueue| queue.foreign.is_some_and(|at| now - at < CONTENDED);
        self.of(names).all(|queue| queue.waiters.is_empty() && !foreign(queue))
    }

    /// The seats that the next contender of these names and this mode would take; `None`: it has to wait for one.
    pub fn free_seats(&self, names: &[Name], mode: Mode) -> Option<Vec<Seat>> {
        let free = |name| self.queues.get(name)?.free_seat(mode);
        names.iter().map(free).collect()
    }

    /// A contender takes these seats of its names, and its place in line.
    pub fn claim(&mut self, names: &[Name], id: ContenderId, seats: &[Seat]) {
        let mut seats = seats.iter().copied();
        self.each(names, |queue| {
            queue.in_line = seats.next().map(|seat| (id, seat));
            match queue.in_line {
                Some((_, Seat::Exclusive)) => queue.exclusive = true,
                Some((_, Seat::Shared(number))) => queue.shared.take(number),
                Some((_, Seat::Permit(number))) => queue.permits.take(number),
                None => {}
            }
        });
    }

    /// A contender that has its seats goes to this place in all its names.
    pub fn place(&mut self, names: &[Name], id: ContenderId, place: Place) {
        self.each(names, |queue| {
            queue.place(id, place);
        });
    }

    /// etcd answered about these names.
    pub fn hear(&mut self, names: &[Name], now: Moment) {
        self.each(names, |queue| queue.heard = Some(now));
    }

    /// Forgets a name that no call wants and no contender is for.
    pub fn forget(&mut self, name: &Name) {
        self.queues.remove(name);
    }

    /// All of them, for views.
    pub fn iter(&self) -> impl Iterator<Item = (&Name, &WaitQueue)> {
        self.queues.iter()
    }
}
