//! Who comes before a key of ours: the contenders that are older, and of weight for its mode (rules P14, P37).
//!
//! The set only shrinks. So it is read once, in the answer to the put or by a look; whom a watch tells of, or another look
//! does not show, is taken out, in whatever order that comes: the watch may be ahead of the answer. Whoever is out is gone
//! for good; whoever is in may be gone, as a watch may be late, or silent.

use std::collections::BTreeMap;

use crate::core::mode::{self, Mode};
use crate::core::request::{Kv, Revision};

/// The contenders older than a key that waits, or is being put.
#[derive(Debug, Default)]
pub(crate) struct Predecessors {
    /// By their keys, with their create revisions. `None`: not read yet.
    standing: Option<BTreeMap<Vec<u8>, Revision>>,
    /// What was deleted before that, and when last.
    gone: BTreeMap<Vec<u8>, Revision>,
    /// The highest revision at which any of them went, or was missed.
    at: Revision,
    /// The highest revision at which a stranger's hand was on the key itself, before it was known which incarnation that is.
    pub(crate) touched: Revision,
}

impl Predecessors {
    /// Those that a reading at this revision shows.
    pub(crate) fn read(&mut self, revision: Revision, older: impl IntoIterator<Item = Kv>) {
        let known = self.standing.take();
        let gone = std::mem::take(&mut self.gone);
        let mut standing = BTreeMap::new();
        for Kv {
            key,
            create_revision: born,
            ..
        } in older
        {
            let out = known
                .as_ref()
                .is_some_and(|known| known.get(&key) != Some(&born));
            match gone.get(&key) {
                _ if out => {}
                Some(&at) if at > born => self.at = self.at.max(at),
                _ => {
                    standing.insert(key, born);
                }
            }
        }
        self.at = self.at.max(revision);
        self.standing = Some(standing);
    }

    /// A key was deleted at this revision; whether it was one of theirs.
    pub(crate) fn deleted(&mut self, key: &[u8], revision: Revision) -> bool {
        let Some(standing) = &mut self.standing else {
            let at = self.gone.entry(key.to_vec()).or_default();
            *at = revision.max(*at);
            return false;
        };
        // Of an earlier incarnation it says nothing (rule P14).
        let theirs = standing.get(key).is_some_and(|born| revision > *born);
        if theirs {
            standing.remove(key);
            self.at = self.at.max(revision);
        }
        theirs
    }

    /// A revision at which those that are left let a key of this mode in, if they do (rules P21, P37).
    pub(crate) fn let_in(&self, mode: Mode) -> Option<Revision> {
        let standing = self.standing.as_ref()?;
        let keys = standing.keys().map(Vec::as_slice);
        mode::lets_in(mode, keys).then_some(self.at)
    }

    /// Whether they have been read.
    pub(crate) fn are_known(&self) -> bool {
        self.standing.is_some()
    }

    /// Whether the one with this key is among those that are left.
    pub(crate) fn include(&self, key: &[u8]) -> bool {
        let standing = self.standing.as_ref();
        standing.is_some_and(|standing| standing.contains_key(key))
    }

    pub(crate) fn count(&self) -> usize {
        self.standing.as_ref().map_or(0, BTreeMap::len)
    }

    /// The last of them: just before us.
    pub(crate) fn last(&self) -> Option<&[u8]> {
        let standing = self.standing.as_ref()?;
        let (key, _) = standing.iter().max_by_key(|(_, born)| **born)?;
        Some(key)
    }
}
