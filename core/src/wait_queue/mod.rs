//! Wait queue: the calls of this process that want one name, in order, and which contenders of it the process has.
//!
//! Only the head of the queue gets a contender that waits (rules P3, P4), so at most one does. Calls of all modes stand in one
//! queue; what they may have together is for the contenders' seats to say (rule P37).

mod seats;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::ids::{CallId, ContenderId, Name};
use crate::moment::Moment;
use crate::seat::{Mode, Seat};
use seats::Seats;

/// A call's place in all its queues: smaller is earlier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(u64);

/// What a queue has to know of a waiter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waiter {
    pub call: CallId,
    pub mode: Mode,
    /// It wants several names.
    pub group: bool,
    /// It is a single try.
    pub tries: bool,
}

/// How long a name that other processes were seen to want counts as contended.
const CONTENDED: Duration = Duration::from_secs(1);

/// The wait queue of one name.
#[derive(Debug, Default)]
pub struct WaitQueue {
    waiters: BTreeMap<Ticket, Waiter>,
    /// How many of each mode wait.
    modes: BTreeMap<Mode, usize>,
    groups: BTreeSet<Ticket>,
    tries: BTreeSet<Ticket>,
    in_line: Option<ContenderId>,
    held: BTreeMap<ContenderId, Seat>,
    closing: BTreeSet<ContenderId>,
    seats: Seats,
    /// The record of another process that was last seen to own the name, while a contender of ours waits.
    owner: Option<Arc<[u8]>>,
    /// Keys live deeper than the contenders: a read of one key may show those (rule P2).
    deep: bool,
    /// When etcd last answered about the name.
    heard: Option<Moment>,
    /// When another process's contender was last seen.
    foreign: Option<Moment>,
}

impl WaitQueue {
    /// The first in the queue.
    pub fn head(&self) -> Option<Waiter> {
        self.waiters.first_key_value().map(|(_, waiter)| *waiter)
    }

    /// The waiters, in order.
    pub fn waiters(&self) -> impl Iterator<Item = Waiter> + '_ {
        self.waiters.values().copied()
    }

    /// The groups ahead of a call.
    pub fn groups_ahead(&self, ticket: Ticket) -> impl Iterator<Item = CallId> + '_ {
        let groups = self.groups.range(..ticket);
        groups.filter_map(|group| Some(self.waiters.get(group)?.call))
    }

    /// The single tries.
    pub fn tries(&self) -> impl Iterator<Item = CallId> + '_ {
        let tries = self.tries.iter();
        tries.filter_map(|ticket| Some(self.waiters.get(ticket)?.call))
    }

    pub fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// Whether no call waits but single-name calls of this mode.
    pub fn is_uniform(&self, mode: Mode) -> bool {
        let same = self.modes.get(&mode).copied().unwrap_or(0);
        same == self.waiters.len() && self.groups.is_empty()
    }

    fn join(&mut self, ticket: Ticket, waiter: Waiter) {
        self.waiters.insert(ticket, waiter);
        *self.modes.entry(waiter.mode).or_default() += 1;
        if waiter.group {
            self.groups.insert(ticket);
        }
        if waiter.tries {
            self.tries.insert(ticket);
        }
    }

    fn leave(&mut self, ticket: Ticket) {
        let Some(waiter) = self.waiters.remove(&ticket) else {
            return;
        };
        self.groups.remove(&ticket);
        self.tries.remove(&ticket);
        if let Some(count) = self.modes.get_mut(&waiter.mode) {
            *count -= 1;
            if *count == 0 {
                self.modes.remove(&waiter.mode);
            }
        }
    }

    /// The contender that may be put, or waits.
    pub fn in_line(&self) -> Option<ContenderId> {
        self.in_line
    }

    /// The contenders that calls of this process hold, or have left locked, the oldest first.
    pub fn held(&self) -> impl DoubleEndedIterator<Item = ContenderId> + '_ {
        self.held.keys().copied()
    }

    /// The contenders whose deletion is not known.
    pub fn closing(&self) -> impl Iterator<Item = ContenderId> + '_ {
        self.closing.iter().copied()
    }

    /// Whether all its contenders of the name are on their way out.
    pub fn only_closes(&self) -> bool {
        self.in_line.is_none() && self.held.is_empty() && !self.closing.is_empty()
    }

    /// Whether this process has any key below the name, or may have.
    pub fn has_contenders(&self) -> bool {
        self.in_line.is_some() || !self.held.is_empty() || !self.closing.is_empty()
    }

    /// The seat that the next contender of this mode would take; `None`: it has to wait for one.
    pub fn free_seat(&self, mode: Mode) -> Option<Seat> {
        self.seats.free(mode)
    }

    /// A contender takes a seat, and its place in line.
    pub fn claim(&mut self, id: ContenderId, seat: Seat) {
        self.seats.take(seat);
        self.in_line = Some(id);
    }

    /// The contender in line is held now.
    pub fn hold(&mut self, id: ContenderId, seat: Seat) {
        self.in_line.take_if(|of| *of == id);
        self.held.insert(id, seat);
        self.seats.hold(seat);
    }

    /// A contender is to be deleted: its seat stays taken until that is known.
    pub fn close(&mut self, id: ContenderId) {
        self.in_line.take_if(|of| *of == id);
        if let Some(seat) = self.held.remove(&id) {
            self.seats.unhold(seat);
        }
        self.closing.insert(id);
    }

    /// A contender is gone, or is not the name's any more: its seat is free.
    pub fn free(&mut self, id: ContenderId, seat: Seat) {
        self.close(id);
        self.closing.remove(&id);
        self.seats.give_back(seat);
        if self.in_line.is_none() {
            self.owner = None; // unknown while this process has no contender
        }
    }

    pub fn owner(&self) -> Option<&Arc<[u8]>> {
        self.owner.as_ref()
    }

    /// Another process was seen to own the name; `None`: none, or it is not known which.
    pub fn set_owner(&mut self, owner: Option<Arc<[u8]>>) {
        self.owner = owner;
    }

    pub fn is_deep(&self) -> bool {
        self.deep
    }

    /// Keys live deeper than the contenders.
    pub fn set_deep(&mut self) {
        self.deep = true;
    }

    /// etcd answered about the name.
    pub fn hear(&mut self, now: Moment) {
        self.heard = Some(now);
    }

    /// Whether etcd has answered about the name since then.
    pub fn was_heard_since(&self, then: Moment) -> bool {
        self.heard.is_some_and(|at| at >= then)
    }

    /// Another process's contender was seen.
    pub fn see_foreign(&mut self, now: Moment) {
        self.foreign = Some(now);
    }

    /// Whether another process's contender was seen a short time ago.
    pub fn is_contended(&self, now: Moment) -> bool {
        self.foreign.is_some_and(|at| now - at < CONTENDED)
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

    /// The same name, in one copy for all.
    pub fn intern(&self, name: Name) -> Name {
        match self.queues.get_key_value(&name) {
            Some((known, _)) => known.clone(),
            None => name,
        }
    }

    /// Enters a call into the queues of all its names in one step, so that any two calls stand in one order wherever they meet
    /// (rule P13). Answers its place.
    pub fn enqueue(&mut self, names: &[Name], waiter: Waiter) -> Ticket {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        for name in names {
            self.queues
                .entry(name.clone())
                .or_default()
                .join(ticket, waiter);
        }
        ticket
    }

    /// Takes a call out of its queues: all of them at once.
    pub fn leave(&mut self, names: &[Name], ticket: Ticket) {
        for name in names {
            if let Some(queue) = self.queues.get_mut(name) {
                queue.leave(ticket);
            }
        }
    }

    /// Whether a call is at the head of all its queues.
    pub fn is_head(&self, names: &[Name], call: CallId) -> bool {
        names.iter().all(|name| {
            let head = self.queues.get(name).and_then(WaitQueue::head);
            head.is_some_and(|head| head.call == call)
        })
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
