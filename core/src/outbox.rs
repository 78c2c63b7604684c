//! Outbox: which operations of a kind go in one transaction, and how many such transactions are under way (rules P6, P7, P9): the
//! puts of a session, and the deletions and records of all.
//!
//! While transactions of a kind travel, the next one fills. No number of them fits both a few calls and thousands: a few want to go
//! at once, and many want full transactions, because each costs etcd something of its own. So the next one goes once it would carry
//! as much as travels, or is full. A transaction that etcd refuses because of one of its elements is split, and the halves are sent
//! again.

use std::collections::{BTreeSet, VecDeque};

use std::time::Duration;

use crate::ids::ContenderId;
use crate::moment::Moment;
use crate::transactions::{Deletion, LOCKS};

/// Transactions of a kind that may be under way at a time, however full they are: etcd works on them one after another.
const MOST: usize = 16;

/// The transactions of one kind that are under way, and how many elements they carry.
#[derive(Debug, Default)]
pub struct Window {
    transactions: usize,
    elements: usize,
}

impl Window {
    /// Whether a transaction may be sent while so many elements wait for it; a full one has `full` of them.
    pub fn admits(&self, waiting: usize, full: usize) -> bool {
        self.transactions < MOST && waiting >= self.elements.min(full)
    }

    /// A transaction of so many elements is sent.
    pub fn sent(&mut self, elements: usize) {
        self.transactions += 1;
        self.elements += elements;
    }

    /// It was answered, or not.
    pub fn done(&mut self, elements: usize) {
        // It may be one that was under way when the window was reopened.
        self.transactions = self.transactions.saturating_sub(1);
        self.elements = self.elements.saturating_sub(elements);
    }

    /// What is under way may never be answered, and counts no more.
    pub fn reopen(&mut self) {
        *self = Self::default();
    }
}

/// What is to be sent in transactions of one kind.
#[derive(Debug)]
pub struct Line<T> {
    pending: VecDeque<T>,
    /// Transactions that had no answer, and halves of those that etcd refused: they are sent as they are.
    parts: VecDeque<Vec<T>>,
    window: Window,
}

impl<T> Default for Line<T> {
    fn default() -> Self {
        Self { pending: VecDeque::new(), parts: VecDeque::new(), window: Window::default() }
    }
}

impl<T> Line<T> {
    /// Where most of what waits to be sent is wanted no more, that goes.
    pub fn tidy(&mut self, wanted: usize, is_wanted: impl Fn(&T) -> bool) {
        if self.pending.len() > LOCKS + 2 * wanted {
            self.pending.retain(is_wanted);
        }
    }

    /// An element waits to be sent.
    pub fn push(&mut self, element: T) {
        self.pending.push_back(element);
    }

    /// Whether elements wait, and a transaction may be sent.
    pub fn is_ready(&self) -> bool {
        let waiting = self.waiting();
        waiting > 0 && self.window.admits(waiting, LOCKS)
    }

    /// Whether the next transaction has failed before, or is a half of one: nothing is added to it.
    pub fn goes_again(&self) -> bool {
        !self.parts.is_empty()
    }

    fn waiting(&self) -> usize {
        let parts: usize = self.parts.iter().map(Vec::len).sum();
        self.pending.len() + parts
    }

    /// The elements of the next transaction, if one may be sent. `keys` tells how many keys each has, and whether it goes alone; `None`:
    /// it is not wanted any more.
    pub fn next(&mut self, keys: impl Fn(&T) -> Option<(usize, bool)>) -> Option<Vec<T>> {
        if !self.is_ready() {
            return None;
        }
        let mut next = Vec::new();
        while next.is_empty()
            && let Some(part) = self.parts.pop_front()
        {
            next = part;
            next.retain(|element| keys(element).is_some());
        }
        let mut room = if next.is_empty() { LOCKS } else { 0 };
        let mut alone = false;
        while let Some(element) = self.pending.front().filter(|_| !alone) {
            if let Some((more, goes_alone)) = keys(element) {
                // Never split: it opens the next transaction.
                if more > room || (goes_alone && !next.is_empty()) {
                    break;
                }
                (room, alone) = (room - more, goes_alone);
                next.extend(self.pending.pop_front());
            } else {
                self.pending.pop_front();
            }
        }
        (!next.is_empty()).then(|| {
            self.window.sent(next.len());
            next
        })
    }

    /// A transaction of so many elements was answered, or not.
    pub fn done(&mut self, elements: usize) {
        self.window.done(elements);
    }

    /// What is under way may never be answered, and holds nothing back any more.
    pub fn reopen_window(&mut self) {
        self.window.reopen();
    }

    /// A transaction is sent again as it was, or in `halves`.
    pub fn again(&mut self, mut elements: Vec<T>, halves: bool) {
        let rest = elements.split_off(if halves { elements.len() / 2 } else { 0 });
        let parts = [elements, rest].into_iter();
        self.parts.extend(parts.filter(|part| !part.is_empty()));
    }
}

/// How long at least a released key lingers for the next call of this process. Other processes wait that much longer, and up to two
/// milliseconds more.
const LINGER: Duration = Duration::from_millis(1);

/// What waits to be sent for all sessions.
#[derive(Debug, Default)]
pub struct Outbox {
    deletions: Line<Deletion>,
    /// Deletions that etcd has refused: one at a time is sent again, as long as its session lives, and all once it is carried out
    /// (rule P34).
    refused: VecDeque<Deletion>,
    /// The contender of that one.
    probe: Option<ContenderId>,
    /// Held contenders whose keys are to say so, and whether a transaction of such keys is under way: one at a time.
    described: BTreeSet<ContenderId>,
    pub describing: bool,
    /// Released contenders that linger, the first to end first: until when, and since which hand-over. Some have been taken over
    /// since.
    lingering: VecDeque<(Moment, ContenderId, u16)>,
}

impl Outbox {
    /// Keys are to be deleted.
    pub fn delete(&mut self, deletion: Deletion) {
        self.deletions.push(deletion);
    }

    /// Whether keys are to be deleted, and a transaction may be sent.
    pub fn has_ready_deletes(&self) -> bool {
        self.deletions.is_ready()
    }

    /// The deletions of the next transaction, if one may be sent.
    pub fn next_delete(&mut self) -> Option<Vec<Deletion>> {
        self.deletions.next(|_| Some((1, false)))
    }

    /// Takes deletions of at most so many keys, to go in one transaction with puts. It stops at one that is not `likely`: where a key
    /// to be deleted is not there, nothing is put either.
    pub fn next_with_puts(
        &mut self,
        keys: usize,
        likely: impl Fn(&Deletion) -> bool,
    ) -> Vec<Deletion> {
        let pending = &mut self.deletions.pending;
        let likely = pending.iter().take(keys).take_while(|it| likely(it)).count();
        pending.drain(..likely).collect()
    }

    /// What is under way may never be answered, and holds no deletion back any more.
    pub fn reopen_windows(&mut self) {
        self.deletions.reopen_window();
    }

    /// A transaction of so many deletions was answered, or not.
    pub fn delete_done(&mut self, deletions: usize) {
        self.deletions.done(deletions);
    }

    /// These deletions had no answer, or are left: they are guarded, so they may be sent as often as need be (rule P24).
    pub fn delete_again(&mut self, deletions: Vec<Deletion>) {
        self.deletions.again(deletions, false);
    }

    /// etcd refused these. More than one are sent in halves; a single one waits. True if it does.
    pub fn delete_refused(&mut self, deletions: Vec<Deletion>) -> bool {
        match deletions.len() {
            0 | 1 => self.refused.extend(deletions),
            _ => self.deletions.again(deletions, true),
        }
        !self.refused.is_empty()
    }

    /// One of the deletions that etcd has refused is sent again.
    pub fn retry_refused(&mut self) {
        let next = self.refused.pop_front();
        self.probe = next.as_ref().map(|deletion| deletion.contender);
        // In a transaction of its own: if etcd refuses it again, nothing else is refused with it.
        self.deletions.again(Vec::from_iter(next), false);
    }

    /// The keys of a contender are gone. Was it the one that tried for all that were refused, those are sent again.
    pub fn deleted(&mut self, contender: ContenderId) {
        if self.probe == Some(contender) {
            self.probe = None;
            self.deletions.pending.extend(self.refused.drain(..));
        }
    }

    /// The keys of a held contender are to say so.
    pub fn describe(&mut self, contender: ContenderId) {
        self.described.insert(contender);
    }

    /// The next of them, if a transaction of such keys may be sent.
    pub fn next_described(&mut self) -> Option<ContenderId> {
        match self.describing {
            true => None,
            false => self.described.pop_first(),
        }
    }

    /// No call holds a contender, after this number of hand-overs: from now on it lingers for the next.
    pub fn linger(&mut self, now: Moment, id: ContenderId, handover: u16) {
        self.lingering.push_back((now + LINGER, id, handover));
    }

    /// Takes out the next contender that has lingered for [`LINGER`].
    pub fn next_lingered(&mut self, now: Moment) -> Option<(ContenderId, u16)> {
        self.lingering.front().filter(|(until, ..)| *until <= now)?;
        self.lingering.pop_front().map(|(_, id, handover)| (id, handover))
    }

    /// Until when the next one lingers.
    pub fn lingers_until(&self) -> Option<Moment> {
        self.lingering.front().map(|(until, ..)| *until)
    }

    /// Whether deletions wait to be sent that etcd has not refused.
    pub fn has_deletions(&self) -> bool {
        self.deletions.waiting() > 0
    }
}
