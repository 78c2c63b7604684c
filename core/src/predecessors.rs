//! Predecessors: the contenders that are older than one of ours, and may exclude it (rules P14, P37).
//!
//! The set only shrinks. It is read once, in the answer to the put or later. A key that a watch reports deleted, or that another
//! read does not show, is taken out, in whatever order that comes: the watch may be ahead of the answer. What is out is gone
//! for good; what is in may be gone already, because a watch may be late or silent.

use std::collections::BTreeMap;

use crate::ids::Revision;
use crate::request::Kv;
use crate::seat::{self, Mode};
use crate::steps;

/// The contenders older than a key that waits, or is being created.
#[derive(Debug, Default)]
pub struct Predecessors {
    known: Option<Known>,
    /// Deletions that were seen before the first read, each key with its last one.
    gone: BTreeMap<Vec<u8>, Revision>,
}

#[derive(Debug)]
struct Known {
    /// By their keys, with their create revisions.
    standing: BTreeMap<Vec<u8>, Revision>,
    /// The highest revision at which any of them went, or was missed.
    at: Revision,
}

impl Predecessors {
    /// Takes in what a read at this revision shows.
    pub fn read(&mut self, revision: Revision, older: impl IntoIterator<Item = Kv>) {
        let gone = std::mem::take(&mut self.gone);
        let mut at = self
            .known
            .as_ref()
            .map_or(revision, |known| known.at.max(revision));
        let mut standing = BTreeMap::new();
        for kv in older {
            steps::step();
            let born = kv.create_revision;
            let out = |known: &Known| known.standing.get(&kv.key) != Some(&born);
            match gone.get(&kv.key) {
                _ if self.known.as_ref().is_some_and(out) => {}
                Some(deleted) if *deleted > born => at = at.max(*deleted),
                _ => {
                    standing.insert(kv.key, born);
                }
            }
        }
        self.known = Some(Known { standing, at });
    }

    /// A key was deleted at this revision; whether it was one of them.
    pub fn deleted(&mut self, key: &[u8], revision: Revision) -> bool {
        let Some(known) = &mut self.known else {
            let at = self.gone.entry(key.to_vec()).or_insert(revision);
            *at = revision.max(*at);
            return false;
        };
        // Of an earlier incarnation it says nothing (rule P14).
        let ours = known.standing.get(key).is_some_and(|born| revision > *born);
        if ours {
            known.standing.remove(key);
            known.at = known.at.max(revision);
        }
        ours
    }

    /// The revision of a state in which those that are left admit a call of this mode, if they do (rules P21, P37).
    pub fn admit(&self, mode: Mode) -> Option<Revision> {
        let known = self.known.as_ref()?;
        let keys = known.standing.keys().map(|key| {
            steps::step();
            key.as_slice()
        });
        seat::admits(mode, keys).then_some(known.at)
    }

    /// The deletion of our own key that was seen before its put was answered, if any.
    pub fn own_deletion(&self, key: &str) -> Option<Revision> {
        self.gone.get(key.as_bytes()).copied()
    }

    /// Whether they have been read.
    pub fn are_known(&self) -> bool {
        self.known.is_some()
    }

    /// How many are left, as far as is known.
    pub fn count(&self) -> usize {
        self.known.as_ref().map_or(0, |known| known.standing.len())
    }

    /// Whether they have been read, and this key is not among those that are left.
    pub fn has_lost(&self, key: &str) -> bool {
        let known = self.known.as_ref();
        known.is_some_and(|known| !known.standing.contains_key(key.as_bytes()))
    }

    /// The last of them: the one just ahead of ours.
    pub fn last(&self) -> Option<&str> {
        let known = self.known.as_ref()?;
        let (key, _) = known.standing.iter().max_by_key(|(_, born)| **born)?;
        std::str::from_utf8(key).ok()
    }
}
