//! Outbox: the operations that wait to be sent, by kind, and the size and number of their transactions (rules P6, P7, P9).
//!
//! While transactions of a kind are under way, the next one fills. No fixed number fits both a few calls and thousands: a few calls
//! want to go at once, while many want full transactions, because etcd pays for each. So the next one is sent once it is full, or
//! has as many elements as all that are under way. If etcd refuses one because of a single element, the next ones carry half as
//! many, until that element travels alone. Then the size doubles again each time.

use std::collections::VecDeque;

use crate::ids::{ContenderId, Unit};
use crate::moment::Moment;
use crate::transactions::{Deletion, LOCKS};

/// The most transactions of a kind under way, however full they are, because etcd processes them one after another.
const MOST: usize = 16;

/// Elements of one kind: those that wait to be sent, and the number under way.
#[derive(Debug)]
pub struct Line<T> {
    pub pending: VecDeque<T>,
    /// The most keys of the next transaction.
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
    /// Returns true if elements wait and may be sent in a transaction now.
    pub fn is_ready(&self) -> bool {
        let waiting = self.pending.len();
        waiting > 0 && self.transactions < MOST && waiting >= self.elements.min(self.room)
    }

    /// Returns true if a transaction was refused lately. Nothing else is then added to transactions of this kind.
    pub fn is_narrow(&self) -> bool {
        self.room < LOCKS
    }

    /// Takes the elements of the next transaction, if one may be sent. `keys` returns how many keys an element has: [`LOCKS`] if it
    /// must travel alone, `None` if it is no longer wanted. No element is split.
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

    /// Notes that a transaction with this number of elements succeeded or failed.
    pub fn done(&mut self, elements: usize, accepted: bool) {
        // The transaction may date from before the window was reopened.
        self.transactions = self.transactions.saturating_sub(1);
        self.elements = self.elements.saturating_sub(elements);
        self.room = if accepted { LOCKS.min(2 * self.room) } else { self.room };
    }

    /// Stops counting the transactions under way: their responses may never come.
    pub fn reopen_window(&mut self) {
        (self.transactions, self.elements) = (0, 0);
    }

    /// Puts elements back at the front of the line. `room` limits the keys of the next transaction, if etcd refused one of these.
    pub fn again(&mut self, elements: Vec<T>, room: Option<usize>) {
        elements.into_iter().rev().for_each(|element| self.pending.push_front(element));
        self.room = room.map_or(self.room, |keys| keys.clamp(1, LOCKS));
    }
}

/// What waits to be sent, for all sessions.
#[derive(Debug, Default)]
pub struct Outbox {
    /// The contenders to put, those of one call together. Their sessions are open, or were recently.
    pub puts: Line<Unit>,
    pub deletions: Line<Deletion>,
    /// Deletions that etcd has refused. One at a time is retried alone; once one succeeds, all are sent (rule P34).
    pub refused: VecDeque<Deletion>,
    /// When the next one is retried, and the contender of the last one.
    pub retry_at: Option<Moment>,
    probe: Option<ContenderId>,
    /// Held contenders whose records must be written.
    pub records: Line<ContenderId>,
}

impl Outbox {
    /// Retries one of the refused deletions.
    pub fn retry_refused(&mut self) {
        self.retry_at = None;
        let next = self.refused.pop_front();
        self.probe = next.as_ref().map(|deletion| deletion.contender);
        self.deletions.again(Vec::from_iter(next), Some(1));
    }

    /// Notes that a contender's key is gone. If it was the retried one, all refused deletions are sent again.
    pub fn deleted(&mut self, contender: ContenderId) {
        if self.probe == Some(contender) {
            self.probe = None;
            self.deletions.pending.extend(self.refused.drain(..));
        }
    }
}
