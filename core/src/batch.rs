//! Batch: which contenders are put together, which keys are deleted together, and how many such transactions are under way
//! (rules P6, P7, P9).
//!
//! While [`WINDOW`] transactions of a kind travel, the next one fills. A transaction that etcd refuses because of one of its
//! elements is split, and the halves are sent again.

use std::collections::{BTreeMap, VecDeque};

use crate::ids::{ContenderId, SessionId};
use crate::transactions::{Deletion, LOCKS};

/// Transactions of one kind that may be under way at a time.
pub const WINDOW: usize = 2;

/// What is to be put under one session.
#[derive(Debug, Default)]
struct Puts {
    pending: VecDeque<ContenderId>,
    /// Parts of transactions that etcd refused, to be sent as they are.
    parts: VecDeque<Vec<ContenderId>>,
    under_way: usize,
}

/// All that waits to be sent.
#[derive(Debug, Default)]
pub struct Batch {
    puts: BTreeMap<SessionId, Puts>,
    deletions: VecDeque<Deletion>,
    deletion_parts: VecDeque<Vec<Deletion>>,
    deletes_under_way: usize,
    /// Deletions that etcd has refused: they are sent again slowly, as long as their session lives (rule P34).
    refused: Vec<Deletion>,
}

impl Batch {
    /// A contender waits to be put.
    pub fn put(&mut self, session: SessionId, contender: ContenderId) {
        self.puts
            .entry(session)
            .or_default()
            .pending
            .push_back(contender);
    }

    /// A contender is to be put before all that wait.
    pub fn put_first(&mut self, session: SessionId, contender: ContenderId) {
        self.puts
            .entry(session)
            .or_default()
            .pending
            .push_front(contender);
    }

    /// etcd refused a transaction because of one of these: halves of it are put.
    pub fn put_in_parts(&mut self, session: SessionId, mut contenders: Vec<ContenderId>) {
        let rest = contenders.split_off(contenders.len() / 2);
        let parts = &mut self.puts.entry(session).or_default().parts;
        parts.extend([contenders, rest]);
    }

    /// The contenders of the next transaction of a session, if one may be sent: `alone` tells those that go by themselves, and
    /// `keys` how many keys each has; 0: it is not wanted any more.
    pub fn next_put(
        &mut self,
        session: SessionId,
        keys: impl Fn(ContenderId) -> usize,
        alone: impl Fn(ContenderId) -> bool,
    ) -> Option<Vec<ContenderId>> {
        let puts = self.puts.get_mut(&session)?;
        if puts.under_way >= WINDOW {
            return None;
        }
        while let Some(mut part) = puts.parts.pop_front() {
            part.retain(|contender| keys(*contender) > 0);
            if !part.is_empty() {
                puts.under_way += 1;
                return Some(part);
            }
        }
        let mut next = Vec::new();
        let mut count = 0;
        while let Some(&contender) = puts.pending.front() {
            let more = keys(contender);
            // Never split: it opens the next transaction.
            if count + more > LOCKS || (more > 0 && count > 0 && alone(contender)) {
                break;
            }
            puts.pending.pop_front();
            if more > 0 {
                next.push(contender);
                count += more;
                if alone(contender) {
                    break;
                }
            }
        }
        (!next.is_empty()).then(|| {
            puts.under_way += 1;
            next
        })
    }

    /// A transaction of puts was answered, or not.
    pub fn put_done(&mut self, session: SessionId) {
        if let Some(puts) = self.puts.get_mut(&session) {
            puts.under_way -= 1;
        }
    }

    /// A session takes no more puts.
    pub fn forget_session(&mut self, session: SessionId) {
        if let Some(puts) = self.puts.get_mut(&session) {
            puts.pending.clear();
            puts.parts.clear();
        }
    }

    /// A session is gone, and so are its transactions.
    pub fn remove_session(&mut self, session: SessionId) {
        self.puts
            .retain(|of, puts| *of != session || puts.under_way > 0);
    }

    /// Keys are to be deleted.
    pub fn delete(&mut self, deletion: Deletion) {
        self.deletions.push_back(deletion);
    }

    /// The deletions of the next transaction, if one may be sent.
    pub fn next_delete(&mut self) -> Option<Vec<Deletion>> {
        if self.deletes_under_way >= WINDOW {
            return None;
        }
        let next = self.deletion_parts.pop_front().unwrap_or_else(|| {
            let mut room = LOCKS;
            let mut next = Vec::new();
            while let Some(deletion) = self.deletions.pop_front() {
                if deletion.keys.len() > room {
                    self.deletions.push_front(deletion);
                    break;
                }
                room -= deletion.keys.len();
                next.push(deletion);
            }
            next
        });
        (!next.is_empty()).then(|| {
            self.deletes_under_way += 1;
            next
        })
    }

    /// A transaction of deletes was answered, or not.
    pub fn delete_done(&mut self) {
        self.deletes_under_way -= 1;
    }

    /// These deletions had no answer, or are left: they are guarded, so they may be sent as often as need be (rule P24).
    pub fn delete_again(&mut self, deletions: Vec<Deletion>) {
        self.deletions.extend(deletions);
    }

    /// etcd refused these. More than one are sent in halves; a single one waits. True if it does.
    pub fn delete_refused(&mut self, mut deletions: Vec<Deletion>) -> bool {
        if deletions.len() > 1 {
            let rest = deletions.split_off(deletions.len() / 2);
            self.deletion_parts.extend([deletions, rest]);
            return false;
        }
        self.refused.append(&mut deletions);
        true
    }

    /// Deletions that etcd has refused are sent again.
    pub fn retry_refused(&mut self) {
        self.deletions.extend(std::mem::take(&mut self.refused));
    }

    /// Whether any key is to be deleted that etcd has not refused to delete.
    pub fn has_deletes(&self) -> bool {
        self.deletes_under_way > 0 || !self.deletions.is_empty() || !self.deletion_parts.is_empty()
    }
}
