//! History of etcd: the highest revision that it has answered, and whether it still goes on (rules P20, P35).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use etcd_locked_core::Revision;

/// What is known of etcd's history.
#[derive(Debug, Default)]
pub(crate) struct History {
    highest: Mutex<Highest>,
    /// How many histories have ended. Written only with `highest` locked.
    epoch: AtomicU64,
}

/// The highest revisions that etcd has answered.
#[derive(Debug, Clone, Copy, Default)]
struct Highest {
    /// In this history: a write cannot answer less.
    ever: i64,
    /// What a read is to be as new as.
    fresh: i64,
}

/// What was known when a request was sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Known {
    highest: Highest,
    epoch: u64,
}

impl Known {
    /// Whether a read of this revision is older than what was known: the member lags.
    pub(super) fn is_newer_than(self, revision: Revision) -> bool {
        revision.get() < self.highest.fresh
    }
}

impl Highest {
    fn raise(&mut self, revision: Revision) {
        self.ever = self.ever.max(revision.get());
        self.fresh = self.fresh.max(revision.get());
    }
}

impl History {
    pub(super) fn known(&self) -> Known {
        let highest = self.highest();
        Known { highest: *highest, epoch: self.epoch() }
    }

    /// A write was answered. A lower revision than was known when it was sent proves that etcd has lost its history.
    pub(super) fn written(&self, known: Known, revision: Revision) {
        let mut highest = self.highest();
        if known.epoch != self.epoch() {
            return; // of a history that has ended
        }
        if revision.get() < known.highest.ever {
            self.epoch.fetch_add(1, Ordering::Release);
            *highest = Highest::default();
        }
        highest.raise(revision);
    }

    pub(super) fn read(&self, known: Known, revision: Revision) {
        let mut highest = self.highest();
        if known.epoch == self.epoch() {
            highest.raise(revision);
        }
    }

    /// All endpoints have answered a read with less than was known, so that no read will answer more; a write is to prove why.
    pub(super) fn all_older(&self, known: Known, revision: Revision) {
        let mut highest = self.highest();
        if known.epoch == self.epoch() {
            highest.fresh = revision.get();
        }
    }

    /// The core, or the id of the cluster, has proved that etcd has lost its history.
    pub(crate) fn end(&self) {
        let mut highest = self.highest();
        *highest = Highest::default();
        self.epoch.fetch_add(1, Ordering::Release);
    }

    /// How many histories have ended: etcd was wiped, or restored from a snapshot.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    fn highest(&self) -> MutexGuard<'_, Highest> {
        self.highest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(revision: i64) -> Revision {
        Revision::new(revision).unwrap()
    }

    #[test]
    fn lower_write_ends_the_history_once() {
        let history = History::default();
        history.written(history.known(), at(100));
        let sent = [history.known(), history.known(), history.known()];
        history.written(sent[0], at(7));
        assert_eq!(history.epoch(), 1);
        // Sent before, and answered by either history.
        history.written(sent[1], at(8));
        history.written(sent[2], at(101));
        history.read(sent[2], at(101));
        assert_eq!(history.epoch(), 1);
        history.written(history.known(), at(9));
        assert_eq!(history.epoch(), 1);
    }

    #[test]
    fn answers_that_overtake_each_other_prove_nothing() {
        let history = History::default();
        let early = history.known();
        history.written(history.known(), at(100));
        history.written(early, at(99));
        assert_eq!(history.epoch(), 0);
        assert!(history.known().is_newer_than(at(99)));
    }

    #[test]
    fn lower_read_is_for_a_write_to_prove() {
        let history = History::default();
        history.read(history.known(), at(100));
        history.all_older(history.known(), at(7));
        assert_eq!(history.epoch(), 0);
        assert!(!history.known().is_newer_than(at(7)));
        history.written(history.known(), at(8));
        assert_eq!(history.epoch(), 1);
    }
}
