//! Batch: which contenders are put together, which keys are deleted together, and how many such transactions are under way
//! (rules P6, P7, P9).
//!
//! While [`WINDOW`] transactions of a kind travel, the next one fills. A transaction that etcd refuses because of one of its
//! elements is split, and the halves are sent again.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::ids::{ContenderId, SessionId};
use crate::transactions::{Deletion, LOCKS};

/// Transactions of one kind that may be under way at a time.
pub const WINDOW: usize = 2;

/// What is to be sent in transactions of one kind.
#[derive(Debug)]
struct Line<T> {
    pending: VecDeque<T>,
    /// Transactions that had no answer, and halves of those that etcd refused: they are sent as they are.
    parts: VecDeque<Vec<T>>,
    under_way: usize,
}

impl<T> Default for Line<T> {
    fn default() -> Self {
        Self {
            pending: VecDeque::new(),
            parts: VecDeque::new(),
            under_way: 0,
        }
    }
}

impl<T> Line<T> {
    /// The elements of the next transaction, if one may be sent, and whether it is an element that goes alone. `keys` tells how many
    /// keys each has, and whether it goes alone; `None`: it is not wanted any more.
    fn next(&mut self, keys: impl Fn(&T) -> Option<(usize, bool)>) -> Option<(Vec<T>, bool)> {
        if self.under_way >= WINDOW {
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
            self.under_way += 1;
            (next, alone)
        })
    }

    /// A transaction is sent again as it was, or in `halves`.
    fn again(&mut self, mut elements: Vec<T>, halves: bool) {
        let rest = elements.split_off(if halves { elements.len() / 2 } else { 0 });
        let parts = [elements, rest].into_iter();
        self.parts.extend(parts.filter(|part| !part.is_empty()));
    }
}

/// All that waits to be sent.
#[derive(Debug, Default)]
pub struct Batch {
    puts: BTreeMap<SessionId, Line<ContenderId>>,
    deletions: Line<Deletion>,
    /// Deletions that etcd has refused: one at a time is sent again, as long as its session lives, and all once it is carried out
    /// (rule P34).
    refused: VecDeque<Deletion>,
    /// The contender of that one.
    probe: Option<ContenderId>,
    /// Held contenders whose keys are to say so, and whether a transaction of such keys is under way: one at a time.
    described: BTreeSet<ContenderId>,
    describing: bool,
}

impl Batch {
    /// A contender waits to be put.
    pub fn put(&mut self, session: SessionId, contender: ContenderId) {
        let puts = self.puts.entry(session).or_default();
        puts.pending.push_back(contender);
    }

    /// Nothing of a transaction was applied: it is sent again, in `halves` if etcd refused it because of one of these.
    pub fn put_again(&mut self, session: SessionId, contenders: Vec<ContenderId>, halves: bool) {
        if let Some(puts) = self.puts.get_mut(&session) {
            puts.again(contenders, halves);
        }
    }

    /// The contenders of the next transaction of a session, if one may be sent, and whether it is for a single try. `keys` tells
    /// the same of each, and how many keys it has; `None`: it is not wanted any more.
    pub fn next_put(
        &mut self,
        session: SessionId,
        keys: impl Fn(ContenderId) -> Option<(usize, bool)>,
    ) -> Option<(Vec<ContenderId>, bool)> {
        let puts = self.puts.get_mut(&session)?;
        puts.next(|contender| keys(*contender))
    }

    /// A transaction of puts was answered, or not.
    pub fn put_done(&mut self, session: SessionId) {
        if let Some(puts) = self.puts.get_mut(&session) {
            puts.under_way -= 1;
        }
    }

    /// A session takes no more puts.
    pub fn forget(&mut self, session: SessionId) {
        self.puts.remove(&session);
    }

    /// Keys are to be deleted.
    pub fn delete(&mut self, deletion: Deletion) {
        self.deletions.pending.push_back(deletion);
    }

    /// The deletions of the next transaction, if one may be sent.
    pub fn next_delete(&mut self) -> Option<Vec<Deletion>> {
        let keys = |deletion: &Deletion| Some((deletion.keys.len(), false));
        Some(self.deletions.next(keys)?.0)
    }

    /// A transaction of deletes was answered, or not.
    pub fn delete_done(&mut self) {
        self.deletions.under_way -= 1;
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
        self.deletions.pending.extend(next);
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

    /// Such a transaction is sent.
    pub fn describe_begun(&mut self) {
        self.describing = true;
    }

    /// It was answered, or not.
    pub fn describe_done(&mut self) {
        self.describing = false;
    }

    /// Whether any key is to be deleted that etcd has not refused to delete.
    pub fn has_deletes(&self) -> bool {
        let Line {
            pending,
            parts,
            under_way,
        } = &self.deletions;
        *under_way > 0 || !pending.is_empty() || !parts.is_empty()
    }
}
