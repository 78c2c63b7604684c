//! Contender: one key of this process for a lock name, from before its put until it is known to be gone.
//!
//! ```text
//! Pending ─sent─► Putting ─response─► Waiting ─admitted, session fresh─► Held ─last body dropped─► Parting ─response─► gone
//!    ▲               │ │                 │                               │  ▲                         ▲
//!    └nothing applied┘ │                 └──────no call wants it─────────┼──┼─────────────────────────┤
//!                      └no response► Unsettled ─barrier's response───────┼──┼─────────────────────────┘
//!                                                                        └──┘ hand-over
//! ```
//!
//! The set *ahead* contains the older contenders that may exclude it (rules P14, P37). The response to the put, or a later read,
//! fills it once. After that it only shrinks: a key leaves it when a watch reports its deletion, or when another read does not
//! return it. The order of these does not matter, so a watch may overtake the response. A key in the set may be gone already. A
//! key that has left the set is gone for good.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::ids::{
    CallId, ContenderId, Incarnation, Key, LeaseId, Revision, SessionId, contends, lease_of,
};
use crate::loss::LossCause;
use crate::moment::Moment;
use crate::output::OwnedKey;
use crate::ownership::{Ownership, SETTLED};
use crate::request::{Event, Kv};
use crate::seat::{self, Mode, Seat};
use crate::steps::step;

/// How a call wants a name. Calls with the same wish can use the same key, one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Wish {
    pub mode: Mode,
    pub ttl_secs: i64,
}

#[derive(Debug, Default)]
pub enum State {
    /// It waits for the next transaction of its session.
    #[default]
    Pending,
    /// Its put is under way.
    Putting,
    /// Its put may have been applied or not. A barrier settles that (rule P10).
    Unsettled,
    /// Its key exists and waits.
    Waiting,
    /// Calls hold it.
    Held(Ownership),
    /// A guarded delete of its key waits to be sent, or is under way. Its seat stays taken until the response.
    Parting,
}

/// The older contenders that may exclude it.
#[derive(Debug)]
pub struct Ahead {
    /// Their keys and create revisions.
    standing: BTreeMap<Vec<u8>, Revision>,
    /// The highest revision at which one of them was deleted, or was missing from a read.
    at: Revision,
}

/// How far a contender, or a whole group, has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// It is gone, or about to be deleted.
    Broken,
    Waits,
    Admitted,
}

/// What a contender needs to know about its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    Nothing,
    Read,
    Watch,
}

#[derive(Debug, Default)]
pub struct Contender {
    /// The prefix of the keys of its name.
    pub family: Key,
    /// The session whose lease its key is, or will be, attached to.
    pub session: SessionId,
    pub wish: Wish,
    pub seat: Seat,
    /// The record of the call for which it was put.
    pub record: Arc<[u8]>,
    /// The only call that it serves, which is a group or nested. `None`: any call with the same wish.
    pub bound: Option<CallId>,
    /// The contenders that its value lists: those that the task of its nested call holds (rule P38).
    pub lists: Vec<ContenderId>,
    /// The number of contenders that list this one and that wait, or may still exist.
    pub listed: usize,
    /// A transaction that deletes it to break a cycle is under way. It is not granted before the response.
    pub aborts: bool,
    pub is_group: bool,
    /// A single try: it is put in a separate transaction, and only if no other key exists (rule P11).
    pub tries: bool,
    pub state: State,
    /// Its name goes on without it, because its session is lost or retired. It stays here until it is known to be deleted.
    pub detached: bool,
    /// The released call that waits until it is gone.
    pub confirms: Option<CallId>,
    /// When it is read next, or starts to be watched.
    pub read_at: Option<Moment>,
    /// True while it is in the line of reads.
    pub to_read: bool,
    /// Set once the put is sent, because it contains the lease of the session.
    pub key: Option<Key>,
    /// The create revision of its key, once that is known to exist.
    pub created: Option<Revision>,
    /// What is ahead, once that was read.
    pub ahead: Option<Ahead>,
    /// Deletions that a watch reported before that: each key with its last one.
    gone: BTreeMap<Vec<u8>, Revision>,
    /// The oldest other key of the family, if the response to the put returned one.
    oldest: Option<Vec<u8>>,
    /// The revision of a state in which nothing older excluded it. That stays true (rule P14).
    pub admitted: Option<Revision>,
    /// The last mod revision known under this process's lease, from a write or a read. It guards the next write. `None`: a write
    /// had no response, or another client may have written the key. The next read then includes its value and lease.
    pub modified: Option<Revision>,
    /// The last revision at which the key was known to be this process's. A watch may start there.
    seen: Option<Revision>,
}

impl Contender {
    pub fn new(family: Key, session: SessionId, wish: Wish, seat: Seat) -> Self {
        Self { family, session, wish, seat, ..Self::default() }
    }

    /// Names the key after the lease, because its put is being sent: `<name>/<lease in hex><seat>` (rules P1, P37).
    pub fn sent(&mut self, lease: LeaseId) {
        self.key = Some(format!("{}{lease:x}{}", self.family, self.seat).into());
        self.state = State::Putting;
    }

    /// Returns its key, once that is known to exist.
    pub fn incarnation(&self) -> Option<Incarnation> {
        Some((self.key.clone()?, self.created?))
    }

    /// Returns the lease that its key is, or was, attached to.
    pub fn lease(&self) -> Option<LeaseId> {
        lease_of(self.key.as_ref()?.as_bytes())
    }

    /// Returns true if it is being put, or waits, for a call of its name.
    pub fn is_in_line(&self) -> bool {
        !self.detached && !matches!(self.state, State::Held(_) | State::Parting)
    }

    pub fn standing(&self) -> Standing {
        match self.state {
            _ if !self.is_in_line() => Standing::Broken,
            State::Waiting if self.admitted.is_some() && !self.aborts => Standing::Admitted,
            _ => Standing::Waits,
        }
    }

    /// Returns how much of a transaction its put takes: the `whole` for a single try, or if it is beside another key (rule P5).
    pub fn room(&self, whole: usize) -> Option<usize> {
        let alone = self.tries || matches!(self.seat, Seat::Nested { .. });
        matches!(self.state, State::Pending).then_some(if alone { whole } else { 1 })
    }

    /// Makes a call its holder. Returns the key as the call owns it, and whether a read must show if others wait.
    pub fn grant(&mut self, now: Moment, call: CallId) -> Option<(OwnedKey, bool)> {
        let (key, created) = self.incarnation()?;
        let asks = match &mut self.state {
            State::Held(ownership) => ownership.add(now, call),
            _ => {
                // The response to its put admitted it, and so showed no younger contender.
                let alone = self.admitted.filter(|at| *at == created);
                self.state = State::Held(Ownership::begin(now, call, alone));
                (self.read_at, self.to_read) = (None, false);
                false
            }
        };
        let handover = self.ownership()?.handover;
        let revision = self.admitted.map_or(created, |at| at.max(created));
        Some((OwnedKey { key, created, revision, handover }, asks))
    }

    pub fn part(&mut self) {
        self.state = State::Parting;
        (self.read_at, self.to_read) = (None, false);
    }

    pub fn ownership(&self) -> Option<&Ownership> {
        if let State::Held(ownership) = &self.state { Some(ownership) } else { None }
    }

    pub fn ownership_mut(&mut self) -> Option<&mut Ownership> {
        if let State::Held(ownership) = &mut self.state { Some(ownership) } else { None }
    }

    /// Returns the ownership, unless it is lost.
    pub fn held(&self) -> Option<&Ownership> {
        self.ownership().filter(|ownership| !ownership.lost)
    }

    /// Returns true if no read of it is wanted or scheduled.
    pub fn is_unread(&self) -> bool {
        self.read_at.is_none() && !self.to_read
    }

    /// Returns what it needs to know. `observed`: it may be admitted next. `guarded`: its session's held keys are watched.
    pub fn need(&mut self, now: Moment, observed: bool, guarded: bool) -> Need {
        let due = self.read_at.take_if(|at| *at <= now).is_some();
        match &self.state {
            State::Waiting if !observed => {
                self.read_at = None;
                Need::Nothing
            }
            State::Waiting if due || self.ahead.is_none() => Need::Read,
            // An admitted contender of a group waits for the others.
            State::Waiting if self.admitted.is_none() || self.is_group => Need::Watch,
            State::Held(it) if it.lost => Need::Nothing,
            State::Held(it) if due && (guarded || it.asked.is_some()) => Need::Read,
            // Its record cannot be written before that read.
            State::Held(_) if self.modified.is_none() && self.read_at.is_none() => Need::Read,
            State::Held(it) if due || it.since + SETTLED <= now => Need::Watch,
            State::Held(it) if !guarded => {
                let settled = it.since + SETTLED;
                self.read_at = Some(self.read_at.map_or(settled, |at| at.min(settled)));
                Need::Nothing
            }
            _ => Need::Nothing,
        }
    }

    /// Returns when it next needs something.
    pub fn due(&self) -> Option<Moment> {
        match &self.state {
            State::Waiting => self.read_at,
            State::Held(_) => self.read_at.into_iter().chain(self.record_due()).min(),
            _ => None,
        }
    }

    /// Returns when the record of its holder must be written; `None` while the mod revision that guards the write is unknown.
    pub fn record_due(&self) -> Option<Moment> {
        self.modified.and_then(|_| self.ownership()?.record_due())
    }

    /// Returns true if it is excluded by those of its predecessors that `counts` accepts.
    pub fn is_excluded_by(&self, counts: impl Fn(&[u8]) -> bool) -> bool {
        let Some(ahead) = &self.ahead else { return false };
        let keys = ahead.standing.keys().inspect(|_| step()).map(Vec::as_slice);
        !seat::admits(self.wish.mode, keys.filter(|key| counts(key)))
    }

    /// Records a mod revision that the key had under this process's lease.
    pub fn written(&mut self, revision: Revision) {
        self.modified = self.modified.max(Some(revision));
    }

    /// Takes in the response to its put: the oldest key of the family, or all of them. Returns true if there are others.
    pub fn placed(&mut self, revision: Revision, found: &[Kv]) -> bool {
        let key = self.key.clone().unwrap_or_default();
        let own = key.as_bytes();
        // The key was new, unless another client had put it. Then this response shows that, or the next read.
        let shown = found.iter().find(|kv| kv.key == own).map(|kv| kv.create_revision);
        let created = shown.unwrap_or(revision);
        (self.created, self.state) = (Some(created), State::Waiting);
        self.written(revision);
        let there = found.is_empty() || shown.is_some();
        let is_other = |kv: &&Kv| kv.key != own && contends(&self.family, &kv.key);
        self.oldest = found.iter().find(is_other).map(|kv| kv.key.clone());
        // If a watch has reported its deletion before this response, a read finds out.
        if there && self.gone.get(own).is_none_or(|deleted| *deleted <= created) {
            self.seen = Some(revision);
            self.read(revision, found);
        }
        self.oldest.is_some()
    }

    /// Takes in a read of its family at this revision: all keys, or all that are older.
    pub fn read(&mut self, revision: Revision, found: &[Kv]) {
        let Some(created) = self.created else { return };
        let mode = self.wish.mode;
        let counts = |kv: &&Kv| {
            kv.create_revision < created
                && contends(&self.family, &kv.key)
                && (mode.is_excluded_by(Seat::of_key(&kv.key)) || mode.room().is_some())
        };
        let shown = found.iter().inspect(|_| step()).filter(counts);
        let shown: BTreeMap<_, _> = shown.map(|kv| (kv.key.clone(), kv.create_revision)).collect();
        match &mut self.ahead {
            None => self.ahead = Some(Ahead { standing: shown, at: revision }),
            Some(ahead) => {
                ahead.standing.retain(|key, born| shown.get(key) == Some(born));
                ahead.at = revision.max(ahead.at);
            }
        }
        for (key, deleted) in std::mem::take(&mut self.gone) {
            self.deleted(&key, deleted);
        }
        self.admit();
    }

    /// Takes in that a key was deleted at this revision. Returns true if it was a predecessor (rule P14).
    pub fn deleted(&mut self, key: &[u8], revision: Revision) -> bool {
        let Some(ahead) = &mut self.ahead else {
            let at = self.gone.entry(key.to_vec()).or_insert(revision);
            *at = revision.max(*at);
            return false;
        };
        let is_ahead = ahead.standing.get(key).is_some_and(|born| revision > *born);
        if is_ahead {
            ahead.standing.remove(key);
            ahead.at = revision.max(ahead.at);
            self.admit();
        }
        is_ahead
    }

    /// Admits it unless a remaining predecessor excludes it (rules P21, P37).
    fn admit(&mut self) {
        let excluded = self.is_excluded_by(|_| true);
        if let Some(ahead) = self.ahead.as_mut().filter(|_| !excluded) {
            ahead.standing.clear();
            self.admitted.get_or_insert(ahead.at);
        }
    }

    /// Returns the key whose value the next read includes: its own if that may have changed, else the oldest predecessor.
    pub fn key_to_read(&self) -> Option<&[u8]> {
        match &self.ahead {
            _ if self.modified.is_none() => self.key.as_deref().map(str::as_bytes),
            None => self.oldest.as_deref(),
            Some(ahead) => {
                let oldest = ahead.standing.iter().min_by_key(|(_, born)| **born);
                oldest.map(|(key, _)| key.as_slice())
            }
        }
    }

    /// Returns the prefix to watch, and the first revision. While it waits: the whole family, or only the predecessor just ahead
    /// if there are more than `near`, because each key costs an event (rule P15). While it is held: all keys of its session under
    /// the name (rule P18).
    pub fn watched(&self, near: usize) -> Option<(Key, Revision)> {
        match (&self.state, &self.ahead) {
            (State::Waiting, Some(Ahead { standing, at })) => {
                // A permit may become free, or a reader be admitted, long before the predecessor just ahead is gone.
                let far = standing.len() > near && self.wish.mode == Mode::Exclusive;
                let last = standing.iter().max_by_key(|(_, born)| **born).filter(|_| far);
                let last = last.and_then(|(key, _)| std::str::from_utf8(key).ok());
                Some((last.map_or_else(|| self.family.clone(), Key::from), *at))
            }
            (State::Held(_), _) => {
                let (key, seat) = (self.key.as_ref()?, self.seat.to_string());
                let from = self.seen.max(self.created)?;
                Some((key.strip_suffix(&*seat).unwrap_or(key).into(), from))
            }
            _ => None,
        }
    }

    /// Compares its key with those that a read at `revision` returned. Returns the cause if it was lost. If the read cannot tell,
    /// sets `modified` to `None`.
    ///
    /// If the mod revision is unknown, only the lease decides: a lost response may have been to a write of this process.
    pub fn compare(&mut self, revision: Revision, found: &[Kv]) -> Option<LossCause> {
        let (key, created) = (self.key.as_ref()?.as_bytes(), self.created?);
        let Some(kv) = found.iter().find(|kv| kv.key == key) else {
            return Some(LossCause::Gone);
        };
        if kv.create_revision != created {
            return Some(LossCause::Overwritten);
        }
        self.seen = self.seen.max(Some(revision));
        // The key is as last written, or the last write is later than the read.
        let is_known = |last| last == kv.mod_revision || last > revision;
        match kv.lease {
            _ if self.modified.is_some_and(is_known) => {}
            None => self.modified = None,
            lease if lease == self.lease() => self.written(kv.mod_revision),
            Some(_) => return Some(LossCause::Overwritten),
        }
        None
    }

    /// Returns the cause if this event of its key means that it was lost. Events of earlier incarnations do not count (rule P14).
    pub fn lost_by(&self, event: &Event) -> Option<LossCause> {
        let created = self.created?;
        match event {
            Event::Put(kv) => {
                let other = (kv.create_revision, kv.lease) != (created, self.lease());
                let late = kv.create_revision < created;
                (other && !late).then_some(LossCause::Overwritten)
            }
            Event::Delete { revision, .. } => (*revision > created).then_some(LossCause::Gone),
        }
    }

    /// Returns true if a key of another process waits behind this held one (rule P23). Other keys of this process do not count.
    pub fn is_contended(&self, keys: &[Kv], is_ours: impl Fn(&[u8]) -> bool) -> bool {
        let mode = self.wish.mode;
        let mut contenders = keys.iter().filter(|kv| contends(&self.family, &kv.key));
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
