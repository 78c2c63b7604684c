//! Part: one key of a contender, and the older contenders of its name that may exclude it (rules P14, P37).
//!
//! The set of predecessors only shrinks. It is read once, in the answer to the put or later. A key that a watch reports deleted,
//! or that another read does not show, is taken out, in whatever order that comes: the watch may be ahead of the answer. What is
//! out is gone for good; what is in may be gone already, because a watch may be late or silent.

use std::collections::BTreeMap;

use crate::ids::{Key, LeaseId, Name, Revision, contends};
use crate::loss::LossCause;
use crate::observe::Seen;
use crate::request::Kv;
use crate::seat::{self, Mode, Seat};
use crate::steps::step;

/// One key of a contender.
#[derive(Debug)]
pub struct Part {
    pub name: Name,
    pub family: Key,
    pub seat: Seat,
    pub key: Key,
    mode: Mode,
    ahead: Ahead,
    /// Last mod revision known under this process's lease, from a write or a read. `None` until the response to the put.
    modified: Option<Revision>,
    /// True after a read without leases has shown an unknown mod revision. The next read then includes the key's value and lease.
    suspect: bool,
}

/// What is known of the older contenders.
#[derive(Debug)]
enum Ahead {
    /// They have not been read.
    Unread {
        /// Deletions that a watch has reported, each key with its last one.
        gone: BTreeMap<Vec<u8>, Revision>,
        /// The oldest key of the family, which alone was in the answer to the put.
        oldest: Option<Vec<u8>>,
    },
    /// They have been read, and exclude it.
    Read {
        /// By their keys, with their create revisions.
        standing: BTreeMap<Vec<u8>, Revision>,
        /// The highest revision at which any of them went, or was missed.
        at: Revision,
    },
    /// At this revision nothing older excluded it: that stays true (rule P14).
    Admitted(Revision),
}

/// What a read shows of a key of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Own {
    /// The read shows no loss.
    Intact,
    /// The mod revision is unknown, and the read does not include the lease.
    Unknown,
    /// The key was deleted, created again, or attached to another lease.
    Lost(LossCause),
}

impl Part {
    /// A key that is to be put under this lease: `<name>/<lease in hex><seat>` (rules P1, P37).
    pub fn new(name: &Name, lease: LeaseId, seat: Seat, mode: Mode) -> Self {
        let family: Key = [name.as_str(), "/"].concat().into();
        Self {
            key: format!("{family}{lease:x}{seat}").into(),
            name: name.clone(),
            family,
            seat,
            mode,
            ahead: Ahead::Unread { gone: BTreeMap::new(), oldest: None },
            modified: None,
            suspect: false,
        }
    }

    /// The mod revision that guards the next write of the key.
    pub fn modified(&self) -> Option<Revision> {
        self.modified
    }

    /// Records a mod revision that the key had under this process's lease.
    pub fn record_write(&mut self, revision: Revision) {
        self.modified = self.modified.max(Some(revision));
        self.suspect = false;
    }

    /// Returns the key that the next read includes with value and lease: its own if another client may have written it, else that
    /// of [`Self::owner`].
    pub fn key_to_read(&self) -> Option<&[u8]> {
        match self.suspect {
            true => Some(self.key.as_bytes()),
            false => self.owner(),
        }
    }

    /// Compares its key with `seen`, which was read at `revision`. `created` and `lease` are those of its put.
    ///
    /// An unknown mod revision may come from a write of this process whose response was lost, so only the lease decides.
    pub fn compare(
        &mut self,
        created: Revision,
        lease: LeaseId,
        revision: Revision,
        seen: &Seen,
    ) -> Own {
        let is_own = |kv: &&Kv| kv.key == self.key.as_bytes();
        let Some(kv) = seen.keys.iter().find(is_own) else {
            return Own::Lost(LossCause::Deleted);
        };
        if kv.create_revision != created {
            return Own::Lost(LossCause::Overwritten);
        }
        // The last write is known, or it is later than the read.
        let is_known = |last| last == kv.mod_revision || last > revision;
        if self.modified.is_some_and(is_known) {
            return Own::Intact;
        }
        let Some(whole) = seen.whole.as_ref().filter(is_own) else {
            self.suspect = true;
            return Own::Unknown;
        };
        if whole.lease != Some(lease) {
            return Own::Lost(LossCause::Overwritten);
        }
        self.record_write(whole.mod_revision);
        Own::Intact
    }

    /// Takes in what the answer to its put shows at this revision: the oldest key of the family, or all of them.
    pub fn placed(&mut self, created: Revision, revision: Revision, found: &[Kv]) {
        self.record_write(revision);
        let Ahead::Unread { gone, oldest } = &mut self.ahead else {
            return;
        };
        let deleted = gone.get(self.key.as_bytes());
        let there = found.is_empty() || found.iter().any(|kv| kv.key == self.key.as_bytes());
        // A watch may have seen it deleted before its put was answered: then a read finds out.
        if there && deleted.is_none_or(|deleted| *deleted <= created) {
            return self.read(created, revision, found);
        }
        let mut contenders = found.iter().filter(|kv| contends(&self.family, &kv.key));
        *oldest = contenders.next().map(|kv| kv.key.clone());
    }

    /// Takes in all keys of its family, as a read at this revision shows them, or all that are older.
    pub fn read(&mut self, created: Revision, revision: Revision, found: &[Kv]) {
        let counts = |kv: &&Kv| {
            step();
            kv.create_revision < created
                && contends(&self.family, &kv.key)
                && (self.mode.is_excluded_by(Seat::of_key(&kv.key)) || self.mode.room().is_some())
        };
        let shown = found.iter().filter(counts);
        let mut shown: BTreeMap<Vec<u8>, Revision> =
            shown.map(|kv| (kv.key.clone(), kv.create_revision)).collect();
        match &mut self.ahead {
            Ahead::Unread { gone, .. } => {
                let mut at = revision;
                for (key, deleted) in std::mem::take(gone) {
                    if shown.get(&key).is_some_and(|born| deleted > *born) {
                        shown.remove(&key);
                        at = at.max(deleted);
                    }
                }
                self.ahead = Ahead::Read { standing: shown, at };
            }
            Ahead::Read { standing, at } => {
                standing.retain(|key, born| shown.get(key) == Some(born));
                *at = revision.max(*at);
            }
            Ahead::Admitted(_) => {}
        }
        self.admit();
    }

    /// A watch reports that a key was deleted at this revision; true if it was a predecessor.
    pub fn deleted(&mut self, key: &[u8], revision: Revision) -> bool {
        match &mut self.ahead {
            Ahead::Unread { gone, .. } => {
                let at = gone.entry(key.to_vec()).or_insert(revision);
                *at = revision.max(*at);
                return false;
            }
            // Of an earlier incarnation it says nothing (rule P14).
            Ahead::Read { standing, at }
                if standing.get(key).is_some_and(|born| revision > *born) =>
            {
                standing.remove(key);
                *at = revision.max(*at);
            }
            Ahead::Read { .. } | Ahead::Admitted(_) => return false,
        }
        self.admit();
        true
    }

    /// Admits it if the predecessors that are left do (rules P21, P37).
    fn admit(&mut self) {
        if let Ahead::Read { standing, at } = &self.ahead {
            let keys = standing.keys().map(|key| {
                step();
                key.as_slice()
            });
            if seat::admits(self.mode, keys) {
                self.ahead = Ahead::Admitted(*at);
            }
        }
    }

    /// The revision of a state in which nothing older excluded it, if such a state was seen.
    pub fn admitted(&self) -> Option<Revision> {
        match self.ahead {
            Ahead::Admitted(at) => Some(at),
            _ => None,
        }
    }

    /// Whether its predecessors have been read.
    pub fn is_read(&self) -> bool {
        !matches!(self.ahead, Ahead::Unread { .. })
    }

    /// The predecessor that most likely owns the name, if any is known: the oldest one.
    pub fn owner(&self) -> Option<&[u8]> {
        match &self.ahead {
            Ahead::Unread { oldest, .. } => oldest.as_deref(),
            Ahead::Read { standing, .. } => {
                let oldest = standing.iter().min_by_key(|(_, born)| **born)?;
                Some(oldest.0)
            }
            Ahead::Admitted(_) => None,
        }
    }

    /// The predecessor just ahead of it.
    fn last(&self) -> Option<&[u8]> {
        match &self.ahead {
            Ahead::Read { standing, .. } => {
                let last = standing.iter().max_by_key(|(_, born)| **born)?;
                Some(last.0)
            }
            _ => None,
        }
    }

    /// What a waiter watches: all keys of the family; or the predecessor just ahead of it, if there are more than so many: a watch
    /// brings an event for each key (rule P15).
    pub fn watched(&self, near: usize) -> Key {
        let far = matches!(&self.ahead, Ahead::Read { standing, .. } if standing.len() > near);
        // A permit may come free, and a reader be let in, long before the last of those before it has gone.
        let alone = (far && self.mode == Mode::Exclusive).then(|| self.last());
        let key = alone.flatten().and_then(|key| std::str::from_utf8(key).ok());
        key.map_or_else(|| self.family.clone(), Key::from)
    }

    /// What a holder watches: all keys of its session below the name, as they begin alike (rule P18).
    pub fn guarded(&self) -> Key {
        let seat = self.seat.to_string();
        self.key.strip_suffix(&*seat).unwrap_or(&self.key).into()
    }

    /// Whether a key of another process waits behind it, which is held, as these keys of its family show (rule P23). What this
    /// process itself has there keeps no other process waiting for long.
    pub fn is_contended(
        &self,
        created: Revision,
        keys: &[Kv],
        is_ours: impl Fn(&[u8]) -> bool,
    ) -> bool {
        let mut contenders = keys.iter().filter(|kv| contends(&self.family, &kv.key));
        let mut together = 0;
        contenders.any(|kv| {
            let excluded = self.mode.is_excluded_by(Seat::of_key(&kv.key));
            together += usize::from(!excluded);
            let full = self.mode.room().is_some_and(|room| together > room + 1);
            let waits = full || (excluded && kv.create_revision > created);
            waits && !is_ours(&kv.key)
        })
    }
}
