//! History of all changes since the last compaction, in order; watches read it.

use std::collections::VecDeque;
use std::error::Error;
use std::fmt;

use etcd_client::proto::PbEvent;

use super::Store;
use super::keys::Change;
use super::span::Span;

/// mvccpb.Event.EventType.
const PUT: i32 = 0;
const DELETE: i32 = 1;

/// Error of a request for events that compaction has forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compacted {
    /// First revision that is still remembered.
    pub revision: i64,
}

impl fmt::Display for Compacted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "revisions before {} are compacted", self.revision)
    }
}

impl Error for Compacted {}

/// Changes since the last compaction.
#[derive(Debug, Clone, Default)]
pub(super) struct History {
    changes: VecDeque<Change>,
}

impl History {
    pub(super) fn record(&mut self, change: Change) {
        self.changes.push_back(change);
    }

    pub(super) fn since(&self, revision: i64) -> impl Iterator<Item = &Change> {
        let first = self.changes.partition_point(|change| change.revision() < revision);
        self.changes.range(first..)
    }

    fn at(&self, revision: i64) -> impl Iterator<Item = &Change> {
        self.since(revision).take_while(move |change| change.revision() == revision)
    }

    /// Returns the changes up to this revision, included.
    pub(super) fn until(&self, revision: i64) -> impl Iterator<Item = &Change> {
        self.changes.iter().take_while(move |change| change.revision() <= revision)
    }

    /// Forgets the changes before this revision. Of the revision itself it keeps the last change of each key.
    pub(super) fn compact(&mut self, revision: i64) {
        let later = self.changes.partition_point(|change| change.revision() <= revision);
        let mut kept: Vec<Change> = Vec::new();
        for change in self.changes.drain(..later) {
            if change.revision() == revision {
                kept.retain(|earlier| earlier.kv.key != change.kv.key);
                kept.push(change);
            }
        }
        for change in kept.into_iter().rev() {
            self.changes.push_front(change);
        }
    }
}

impl Store {
    /// Returns the events on the keys of `key..range_end` (by etcd's rules) since revision `from`, included, in order. Each
    /// inner `Vec` holds the events of one revision.
    ///
    /// With `prev_kv`, each event has the key as it was before its revision, if that is remembered.
    ///
    /// # Errors
    ///
    /// [`Compacted`], if `from` is before the last compaction.
    pub fn events(
        &self,
        key: &[u8],
        range_end: &[u8],
        from: i64,
        prev_kv: bool,
    ) -> Result<Vec<Vec<PbEvent>>, Compacted> {
        if from < self.compacted {
            return Err(Compacted { revision: self.compacted });
        }
        let span = Span::new(key, range_end);
        let mut touched = self.keys.revisions(span, from);
        touched.insert(from); // at a compaction's revision the keys forget deletions, the history does not
        let events = |revision| -> Vec<PbEvent> {
            let changes = self.history.at(revision);
            let of_span = changes.filter(|change| span.contains(&change.kv.key));
            of_span.map(|change| self.event(change, prev_kv)).collect()
        };
        let revisions = touched.into_iter().map(events);
        Ok(revisions.filter(|events| !events.is_empty()).collect())
    }

    /// Returns every remembered change since this revision, included.
    pub(crate) fn changes(&self, from: i64) -> impl Iterator<Item = &Change> {
        self.history.since(from)
    }

    /// Makes the event of a change, as watches send it.
    pub(crate) fn event(&self, change: &Change, prev_kv: bool) -> PbEvent {
        let kv = &change.kv;
        let created = !change.deleted && kv.create_revision == kv.mod_revision;
        let before = kv.mod_revision - 1;
        let prev_kv = (prev_kv && !created && before >= self.compacted)
            .then(|| self.keys.get(&kv.key, before))
            .flatten();
        PbEvent {
            r#type: if change.deleted { DELETE } else { PUT },
            kv: Some((**kv).clone()),
            prev_kv: prev_kv.map(|kv| (**kv).clone()),
        }
    }
}
