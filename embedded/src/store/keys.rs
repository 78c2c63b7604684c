//! Keys of the store, each with its earlier versions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use etcd_client::proto::PbKeyValue;

use super::span::Span;

/// Change of one key. For a deletion, the key-value has only the key and the revision, as in etcd's events.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    pub(crate) kv: Arc<PbKeyValue>,
    pub(crate) deleted: bool,
}

impl Change {
    pub(crate) fn revision(&self) -> i64 {
        self.kv.mod_revision
    }
}

/// Changes of every key, oldest first. Deleted keys are kept until compaction forgets them.
#[derive(Debug, Clone, Default)]
pub(super) struct Keys {
    changes: BTreeMap<Vec<u8>, Vec<Change>>,
}

impl Keys {
    pub(super) fn record(&mut self, change: Change) {
        match self.changes.get_mut(&change.kv.key) {
            Some(changes) => changes.push(change),
            None => {
                self.changes.insert(change.kv.key.clone(), vec![change]);
            }
        }
    }

    /// Returns the key as it was after this revision.
    pub(super) fn get(&self, key: &[u8], revision: i64) -> Option<&Arc<PbKeyValue>> {
        at(self.changes.get(key)?, revision)
    }

    /// Returns the keys as they were after this revision, in order of their names.
    pub(super) fn range<'a>(
        &'a self,
        span: Span<'_>,
        revision: i64,
    ) -> impl Iterator<Item = &'a Arc<PbKeyValue>> {
        span.bounds()
            .map(|bounds| self.changes.range::<[u8], _>(bounds))
            .into_iter()
            .flatten()
            .filter_map(move |(_, changes)| at(changes, revision))
    }

    /// Returns the revisions since this one, included, at which a key of the span changed.
    pub(super) fn revisions(&self, span: Span<'_>, from: i64) -> BTreeSet<i64> {
        let changed = span.bounds().map(|bounds| self.changes.range::<[u8], _>(bounds));
        changed
            .into_iter()
            .flatten()
            .flat_map(|(_, changes)| {
                let first = changes.partition_point(|change| change.revision() < from);
                changes[first..].iter().map(Change::revision)
            })
            .collect()
    }

    /// Forgets this key's versions before the revision.
    pub(super) fn compact(&mut self, key: &[u8], revision: i64) {
        let Some(changes) = self.changes.get_mut(key) else {
            return;
        };
        let later = changes.partition_point(|change| change.revision() <= revision);
        let forgotten = match later.checked_sub(1) {
            Some(last) if !changes[last].deleted => last,
            _ => later,
        };
        changes.drain(..forgotten);
        if changes.is_empty() {
            self.changes.remove(key);
        }
    }
}

fn at(changes: &[Change], revision: i64) -> Option<&Arc<PbKeyValue>> {
    let last = match changes.last() {
        Some(last) if last.revision() <= revision => last, // nearly always, because most reads are of the current revision
        _ => {
            let later = changes.partition_point(|change| change.revision() <= revision);
            &changes[later.checked_sub(1)?]
        }
    };
    (!last.deleted).then_some(&last.kv)
}
