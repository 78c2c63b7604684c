//! Outbox: which operations of a kind go in one transaction, and how many such transactions are under way (rules P6, P7, P9).
//!
//! While transactions of a kind travel, the next one fills. No number of them fits both a few calls and thousands: a few want to go
//! at once, and many want full transactions, because each costs etcd something of its own. So the next one goes once it would carry
//! as much as travels, or is full. After a transaction that etcd refused because of one of its elements, the next ones carry half as
//! much, until that element goes alone; then twice as much each time.

use std::collections::VecDeque;

use crate::ids::{ContenderId, Unit};
use crate::moment::Moment;
use crate::transactions::{Deletion, LOCKS};

/// Transactions of a kind that may be under way at a time, however full they are: etcd works on them one after another.
const MOST: usize = 16;

/// Elements of one kind that wait to be sent, and how many are under way.
#[derive(Debug)]
pub struct Line<T> {
    pub pending: VecDeque<T>,
    /// Keys of the next transaction at most.
    room: usize,
    transactions: usize,
    elements: usize,
}

impl<T> Default for Line<T> {
    fn default() -> Self {
        Self { pending: VecDeque::new(), room: LOCKS, transactions: 0, elements: 0 }
    }
}

impl<T> Line<T> {
    /// Returns true if elements wait and a transaction of them may be sent.
    pub fn is_ready(&self) -> bool {
        let waiting = self.pending.len();
        waiting > 0 && self.transactions < MOST && waiting >= self.elements.min(self.room)
    }

    /// Returns true if a transaction was refused lately: nothing else is added to the next ones.
    pub fn is_narrow(&self) -> bool {
        self.room < LOCKS
    }

    /// Takes the elements of the next transaction, if one may be sent. `keys` returns how many keys an element has, [`LOCKS`] if it
    /// goes alone, `None` if it is not wanted any more. No element is split.
    pub fn next(&mut self, mut keys: impl FnMut(&T) -> Option<usize>) -> Option<Vec<T>> {
        if !self.is_ready() {
            return None;
        }
        let (mut next, mut room) = (Vec::new(), self.room);
        while let Some(element) = self.pending.pop_front() {
            match keys(&element) {
                Some(more) if more > room && !next.is_empty() => {
                    self.pending.push_front(element);
                    break;
                }
                Some(more) => {
                    next.push(element);
                    room = room.saturating_sub(more);
                }
                None => {}
            }
        }
        self.transactions += usize::from(!next.is_empty());
        self.elements += next.len();
        (!next.is_empty()).then_some(next)
    }

    /// Notes that a transaction of this number of elements was carried out, or has failed.
    pub fn done(&mut self, elements: usize, accepted: bool) {
        // It may be one that was under way when the window was reopened.
        self.transactions = self.transactions.saturating_sub(1);
        self.elements = self.elements.saturating_sub(elements);
        self.room = if accepted { LOCKS.min(2 * self.room) } else { self.room };
    }

    /// Notes that what is under way may never be answered: it holds nothing back any more.
    pub fn reopen_window(&mut self) {
        (self.transactions, self.elements) = (0, 0);
    }

    /// Sends elements again, before all others; `room`: the most keys of the next transaction, if one of these was refused.
    pub fn again(&mut self, elements: Vec<T>, room: Option<usize>) {
        elements.into_iter().rev().for_each(|element| self.pending.push_front(element));
        self.room = room.map_or(self.room, |keys| keys.clamp(1, LOCKS));
    }
}

/// What waits to be sent for all sessions.
#[derive(Debug, Default)]
pub struct Outbox {
    /// Contenders to be put, those of a call together. Their sessions are open, or were lately.
    pub puts: Line<Unit>,
    pub deletions: Line<Deletion>,
    /// Deletions that etcd has refused: one at a time is sent again, alone, and all once it is carried out (rule P34).
    pub refused: VecDeque<Deletion>,
    /// When the next one is, and the contender of the last one.
    pub retry_at: Option<Moment>,
    probe: Option<ContenderId>,
    /// Held contenders whose records are to be written.
    pub records: Line<ContenderId>,
}

impl Outbox {
    /// Returns true if puts or deletions may be sent.
    pub fn is_ready(&self) -> bool {
        self.puts.is_ready() || self.deletions.is_ready()
    }

    /// Sends one of the deletions again that etcd has refused.
    pub fn retry_refused(&mut self) {
        self.retry_at = None;
        let next = self.refused.pop_front();
        self.probe = next.as_ref().map(|deletion| deletion.contender);
        self.deletions.again(Vec::from_iter(next), Some(1));
    }

    /// Notes that the key of a contender is gone. If it was the one that was tried for all, those are sent again.
    pub fn deleted(&mut self, contender: ContenderId) {
        if self.probe == Some(contender) {
            self.probe = None;
            self.deletions.pending.extend(self.refused.drain(..));
        }
    }
}
