//! Contender: one key of this process below a name, from the wish for it until it is known to be gone.
//!
//! ```text
//! Pending ─sent─► Putting ─answered─► Waiting ─admitted, session fresh─► Held ─last body dropped─► Parting ─answered─► gone
//!    ▲               │ │                 │                               │  ▲                         ▲
//!    └nothing applied┘ │                 └──────no call wants it─────────┼──┼─────────────────────────┤
//!                      └─no answer─► Unsettled ─barrier answered─────────┼──┼─────────────────────────┘
//!                                                                        └──┘ handed over
//! ```
//!
//! *Ahead* of it are the older contenders that may exclude it (rules P14, P37). That set only shrinks. It is read once, in the
//! response to the put or later. A key that a watch reports deleted, or that another read does not show, is taken out, in whatever
//! order that comes: the watch may overtake the response. A key that is out is gone for good; one that is in may be gone already.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::ids::{CallId, ContenderId, Incarnation, Key, LeaseId, Revision, SessionId, contends};
use crate::loss::LossCause;
use crate::moment::Moment;
use crate::ownership::Ownership;
use crate::request::{Event, Kv};
use crate::seat::{self, Mode, Seat};
use crate::steps::step;

/// How calls want a name: two calls that want it alike can use one key, one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Wish {
    pub mode: Mode,
    pub ttl_secs: i64,
}

/// Where a contender is in its life.
#[derive(Debug)]
pub enum State {
    /// It waits for its session's next transaction.
    Pending {
        /// It goes alone, and only if no other key is there.
        tries: bool,
    },
    /// Its put is under way.
    Putting,
    /// Its put may have been applied or not: a barrier settles that (rule P10).
    Unsettled,
    /// Its key exists and waits.
    Waiting,
    /// Calls hold it.
    Held(Ownership),
    /// A guarded delete of its key waits to be sent, or is under way. Its seat stays taken until that is answered.
    Parting,
}

/// What is known of the older contenders.
#[derive(Debug)]
enum Ahead {
    /// They have not been read.
    Unread {
        /// Deletions that a watch has reported, each key with its last one.
        gone: BTreeMap<Vec<u8>, Revision>,
        /// The oldest key of the family, which alone was in the response to the put.
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

/// What a read shows of one name.
#[derive(Debug)]
pub struct Seen {
    /// The keys that were asked for, the oldest first.
    pub keys: Vec<Kv>,
    /// The key whose value and lease were asked for, if it is there.
    pub whole: Option<Kv>,
}

/// One key of this process.
#[derive(Debug)]
pub struct Contender {
    /// The session its key is, or will be, under.
    pub session: SessionId,
    /// What it is put for.
    pub wish: Wish,
    /// Its seat.
    pub seat: Seat,
    /// The record of the call that it was put for.
    pub record: Arc<[u8]>,
    /// The only call that it serves: a group, or a nested call. `None`: any call that wants the name alike.
    pub bound: Option<CallId>,
    /// The contenders whose keys its value lists: what the task of its nested call holds (rule P38).
    pub lists: Vec<ContenderId>,
    /// How many contenders that wait, or may still be there, list this one.
    pub listed: usize,
    /// A transaction that deletes it to cut a cycle is under way: until the response it is not granted.
    pub aborts: bool,
    /// It is one of a group.
    pub is_group: bool,
    /// Where it is in its life.
    pub state: State,
    /// Its name goes on without it, because its session is lost or retired: it only remains until it is known to be deleted.
    pub detached: bool,
    /// The released call that waits until it is gone.
    pub confirms: Option<CallId>,
    /// When it is read next, or begins to be watched.
    pub read_at: Option<Moment>,
    /// It waits to be read; true if that is urgent.
    pub to_read: Option<bool>,
    /// Named after its session's lease once its put is sent.
    pub key: Option<Key>,
    /// The create revision of its key, once that is known to exist.
    pub created: Option<Revision>,
    ahead: Ahead,
    /// The last mod revision known under this process's lease, from a write or a read; it guards the next write. `None`: a write had
    /// no response, or another client wrote the key.
    pub modified: Option<Revision>,
    /// True after a read without leases has shown an unknown mod revision. The next read then includes the key's value and lease.
    pub suspect: bool,
    /// The last revision at which the key was known to be this process's: a watch may start there.
    seen: Option<Revision>,
}

impl Contender {
    /// A wish for a key, to be put under a session.
    pub fn new(session: SessionId, wish: Wish, seat: Seat, record: Arc<[u8]>, tries: bool) -> Self {
        Self {
            session,
            wish,
            seat,
            record,
            bound: None,
            lists: Vec::new(),
            listed: 0,
            aborts: false,
            is_group: false,
            // Readers and permits may be beside others of their kind: the response to a plain put shows which (rule P11).
            state: State::Pending { tries: tries && wish.mode == Mode::Exclusive },
            detached: false,
            confirms: None,
            read_at: None,
            to_read: None,
            key: None,
            created: None,
            ahead: Ahead::Unread { gone: BTreeMap::new(), oldest: None },
            modified: None,
            suspect: false,
            seen: None,
        }
    }

    /// Its put is sent under this lease: its key is `<name>/<lease in hex><seat>` (rules P1, P37).
    pub fn sent(&mut self, family: &str, lease: LeaseId) {
        self.key = Some(format!("{family}{lease:x}{}", self.seat).into());
        self.state = State::Putting;
    }

    /// Its key, once that is known to exist.
    pub fn incarnation(&self) -> Option<Incarnation> {
        Some((self.key.clone()?, self.created?))
    }

    /// Returns true if this is its key.
    pub fn has(&self, key: &[u8]) -> bool {
        self.key.as_ref().is_some_and(|own| own.as_bytes() == key)
    }

    /// Returns true if it may be put, or waits, for a call of its name.
    pub fn is_in_line(&self) -> bool {
        use State::{Pending, Putting, Unsettled, Waiting};
        matches!(self.state, Pending { .. } | Putting | Unsettled | Waiting) && !self.detached
    }

    /// How calls hold it, if any do.
    pub fn ownership(&self) -> Option<&Ownership> {
        match &self.state {
            State::Held(ownership) => Some(ownership),
            _ => None,
        }
    }

    /// How calls hold it, to change that.
    pub fn ownership_mut(&mut self) -> Option<&mut Ownership> {
        match &mut self.state {
            State::Held(ownership) => Some(ownership),
            _ => None,
        }
    }

    /// How calls hold it that have not lost it.
    pub fn held(&self) -> Option<&Ownership> {
        self.ownership().filter(|ownership| !ownership.lost)
    }

    /// When it has to be looked at next.
    pub fn due(&self) -> Option<Moment> {
        match &self.state {
            State::Waiting => self.read_at,
            State::Held(ownership) => self.read_at.into_iter().chain(ownership.record_due()).min(),
            _ => None,
        }
    }

    /// The revision of a state in which nothing older excluded it, if such a state was seen.
    pub fn admitted(&self) -> Option<Revision> {
        match self.ahead {
            Ahead::Admitted(at) => Some(at),
            _ => None,
        }
    }

    /// Returns true if its predecessors have been read.
    pub fn is_read(&self) -> bool {
        !matches!(self.ahead, Ahead::Unread { .. })
    }

    /// Returns true if those of its predecessors that count exclude it.
    pub fn is_excluded_by(&self, counts: impl Fn(&[u8]) -> bool) -> bool {
        let Ahead::Read { standing, .. } = &self.ahead else { return false };
        let keys = standing.keys().map(|key| {
            step();
            key.as_slice()
        });
        !seat::admits(self.wish.mode, keys.filter(|key| counts(key)))
    }

    /// Records a mod revision that the key had under this process's lease.
    pub fn written(&mut self, revision: Revision) {
        self.modified = self.modified.max(Some(revision));
        self.suspect = false;
    }

    /// Takes in what the response to its put shows at this revision: the oldest key of the family, or all of them. `previous`: the
    /// create revision of the key, if it was there before.
    pub fn placed(
        &mut self,
        revision: Revision,
        previous: Option<Revision>,
        found: &[Kv],
        family: &str,
    ) {
        let created = previous.unwrap_or(revision);
        self.created = Some(created);
        self.state = State::Waiting;
        self.written(revision);
        let Ahead::Unread { gone, .. } = &self.ahead else { return };
        let own = self.key.as_deref().unwrap_or_default().as_bytes();
        let deleted = gone.get(own);
        let there = found.is_empty() || found.iter().any(|kv| kv.key == own);
        // A watch may have seen it deleted before its put was answered: then a read finds out.
        if there && deleted.is_none_or(|deleted| *deleted <= created) {
            self.seen = Some(revision);
            return self.read(revision, found, family);
        }
        let first = found.iter().find(|kv| contends(family, &kv.key)).map(|kv| kv.key.clone());
        if let Ahead::Unread { oldest, .. } = &mut self.ahead {
            *oldest = first;
        }
    }

    /// Takes in all keys of its family, as a read at this revision shows them, or all that are older.
    pub fn read(&mut self, revision: Revision, found: &[Kv], family: &str) {
        let Some(created) = self.created else { return };
        let mode = self.wish.mode;
        let counts = |kv: &&Kv| {
            step();
            kv.create_revision < created
                && contends(family, &kv.key)
                && (mode.is_excluded_by(Seat::of_key(&kv.key)) || mode.room().is_some())
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

    /// Takes in that a watch reports a key deleted at this revision. Returns true if it was a predecessor.
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
            if seat::admits(self.wish.mode, keys) {
                self.ahead = Ahead::Admitted(*at);
            }
        }
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

    /// The key that the next read includes with value and lease: its own if another client may have written it, else that of
    /// [`Self::owner`].
    pub fn key_to_read(&self) -> Option<&[u8]> {
        match &self.key {
            Some(key) if self.suspect => Some(key.as_bytes()),
            _ => self.owner(),
        }
    }

    /// What is watched for it, with the first revision: while it waits, all keys of the family, or the predecessor just ahead if
    /// there are more than `near`, since a watch brings an event for each key (rule P15). While it is held, all keys of its
    /// session below the name, which begin alike (rule P18).
    pub fn watched(&self, family: &Key, near: usize) -> Option<(Key, Revision)> {
        match (&self.state, &self.ahead) {
            (State::Waiting, Ahead::Read { standing, at }) => {
                // A permit may come free, and a reader be let in, long before the last of those before it has gone.
                let far = standing.len() > near && self.wish.mode == Mode::Exclusive;
                let last = standing.iter().max_by_key(|(_, born)| **born).filter(|_| far);
                let last = last.and_then(|(key, _)| std::str::from_utf8(key).ok());
                Some((last.map_or_else(|| family.clone(), Key::from), *at))
            }
            (State::Waiting, Ahead::Admitted(at)) => Some((family.clone(), *at)),
            (State::Held(_), _) => {
                let (key, seat) = (self.key.as_ref()?, self.seat.to_string());
                let from = self.seen.max(self.created)?;
                Some((key.strip_suffix(&*seat).unwrap_or(key).into(), from))
            }
            _ => None,
        }
    }

    /// Compares its key, which is attached to `lease`, with what a read at `revision` shows. Returns how it was lost, if it was; it is
    /// `suspect` if the read does not show that.
    ///
    /// An unknown mod revision may come from a write of this process whose response was lost, so only the lease decides.
    pub fn compare(
        &mut self,
        lease: LeaseId,
        revision: Revision,
        seen: &Seen,
    ) -> Option<LossCause> {
        let (key, created) = (self.key.clone()?, self.created?);
        let is_own = |kv: &&Kv| kv.key == key.as_bytes();
        let Some(kv) = seen.keys.iter().find(is_own) else {
            return Some(LossCause::Gone);
        };
        if kv.create_revision != created {
            return Some(LossCause::Overwritten);
        }
        self.seen = self.seen.max(Some(revision));
        // The last write is known, or it is later than the read.
        let is_known = |last| last == kv.mod_revision || last > revision;
        match seen.whole.as_ref().filter(is_own) {
            _ if self.modified.is_some_and(is_known) => self.suspect = false,
            Some(whole) if whole.lease != Some(lease) => return Some(LossCause::Overwritten),
            Some(whole) => self.written(whole.mod_revision),
            None => self.suspect = true,
        }
        None
    }

    /// How it was lost, if it was, as an event of its key shows. An event of an earlier incarnation says nothing about this one
    /// (rule P14).
    pub fn lost_by(&self, event: &Event, lease: LeaseId) -> Option<LossCause> {
        let created = self.created?;
        match event {
            Event::Put(kv) => {
                let other = (kv.create_revision, kv.lease) != (created, Some(lease));
                let late = kv.create_revision < created;
                (other && !late).then_some(LossCause::Overwritten)
            }
            Event::Delete { revision, .. } => (*revision > created).then_some(LossCause::Gone),
        }
    }

    /// Whether a key of another process waits behind it, which is held, as these keys of its family show (rule P23). What this
    /// process itself has there keeps no other process waiting for long.
    pub fn is_contended(&self, keys: &[Kv], family: &str, is_ours: impl Fn(&[u8]) -> bool) -> bool {
        let mode = self.wish.mode;
        let mut contenders = keys.iter().filter(|kv| contends(family, &kv.key));
        let mut together = 0;
        contenders.any(|kv| {
            let excluded = mode.is_excluded_by(Seat::of_key(&kv.key));
            together += usize::from(!excluded);
            let full = mode.room().is_some_and(|room| together > room + 1);
            let younger = self.created.is_some_and(|created| kv.create_revision > created);
            (full || (excluded && younger)) && !is_ours(&kv.key)
        })
    }
}
