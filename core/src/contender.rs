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

/// How calls want a name: two calls that want it alike can use one key, one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Wish {
    pub mode: Mode,
    pub ttl_secs: i64,
}

/// Where a contender is in its life.
#[derive(Debug, Default)]
pub enum State {
    /// It waits for its session's next transaction.
    #[default]
    Pending,
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

/// The older contenders that exclude it.
#[derive(Debug)]
pub struct Ahead {
    /// By their keys, with their create revisions.
    standing: BTreeMap<Vec<u8>, Revision>,
    /// The highest revision at which any of them went, or was missed.
    at: Revision,
}

/// How far a contender, or its call with all its names, has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// It is gone, or on its way out.
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

/// One key of this process.
#[derive(Debug, Default)]
pub struct Contender {
    /// What the keys of its name begin with.
    pub family: Key,
    /// The session its key is, or will be, under.
    pub session: SessionId,
    pub wish: Wish,
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
    /// It is put in a transaction of its own, and only where no other key is (rule P11).
    pub tries: bool,
    pub state: State,
    /// Its name goes on without it, because its session is lost or retired: it only remains until it is known to be deleted.
    pub detached: bool,
    /// The released call that waits until it is gone.
    pub confirms: Option<CallId>,
    /// When it is read next, or begins to be watched.
    pub read_at: Option<Moment>,
    /// It stands in the line of reads.
    pub to_read: bool,
    /// Named after its session's lease once its put is sent.
    pub key: Option<Key>,
    /// The create revision of its key, once that is known to exist.
    pub created: Option<Revision>,
    /// What is ahead, once that has been read.
    pub ahead: Option<Ahead>,
    /// Deletions that a watch has reported before that: each key with its last one.
    gone: BTreeMap<Vec<u8>, Revision>,
    /// The oldest other key of the family, if the response to the put has shown one.
    oldest: Option<Vec<u8>>,
    /// The revision of a state in which nothing older excluded it: that stays true (rule P14).
    pub admitted: Option<Revision>,
    /// The last mod revision known under this process's lease, from a write or a read; it guards the next write. `None`: a write had
    /// no response, or another client may have written the key, so the next read includes its value and lease.
    pub modified: Option<Revision>,
    /// The last revision at which the key was known to be this process's: a watch may start there.
    seen: Option<Revision>,
}

impl Contender {
    /// A wish for a key, to be put under a session for calls like this.
    pub fn new(family: Key, session: SessionId, wish: Wish, seat: Seat) -> Self {
        Self { family, session, wish, seat, ..Self::default() }
    }

    /// Its put is sent under this lease: its key is `<name>/<lease in hex><seat>` (rules P1, P37).
    pub fn sent(&mut self, lease: LeaseId) {
        self.key = Some(format!("{}{lease:x}{}", self.family, self.seat).into());
        self.state = State::Putting;
    }

    /// Its key, once that is known to exist.
    pub fn incarnation(&self) -> Option<Incarnation> {
        Some((self.key.clone()?, self.created?))
    }

    /// The lease that its key is, or was, attached to.
    pub fn lease(&self) -> Option<LeaseId> {
        lease_of(self.key.as_ref()?.as_bytes())
    }

    /// Returns true if it may be put, or waits, for a call of its name.
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

    /// How much of a transaction its put takes: the `whole` for a single try, or beside another of its name (rule P5).
    pub fn room(&self, whole: usize) -> Option<usize> {
        let alone = self.tries || matches!(self.seat, Seat::Nested { .. });
        matches!(self.state, State::Pending).then_some(if alone { whole } else { 1 })
    }

    /// A call has it from now on. Returns the key as the call owns it; true if a read has to show whether others wait.
    pub fn grant(&mut self, now: Moment, call: CallId) -> Option<(OwnedKey, bool)> {
        let (key, created) = self.incarnation()?;
        let asks = match &mut self.state {
            State::Held(ownership) => ownership.add(now, call),
            _ => {
                // Then the response to its put has shown no younger contender.
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

    /// It is to be deleted.
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

    /// How calls hold it that have not lost it.
    pub fn held(&self) -> Option<&Ownership> {
        self.ownership().filter(|ownership| !ownership.lost)
    }

    /// Returns true if it neither waits to be read nor is to be read at some moment.
    pub fn is_unread(&self) -> bool {
        self.read_at.is_none() && !self.to_read
    }

    /// What it needs to know of its name. `observed`: it may be next; `guarded`: what its session holds is watched.
    pub fn need(&mut self, now: Moment, observed: bool, guarded: bool) -> Need {
        let due = self.read_at.take_if(|at| *at <= now).is_some();
        match &self.state {
            State::Waiting if !observed => {
                self.read_at = None;
                Need::Nothing
            }
            State::Waiting if due || self.ahead.is_none() => Need::Read,
            // One of a group that is admitted waits for the others.
            State::Waiting if self.admitted.is_none() || self.is_group => Need::Watch,
            State::Held(it) if it.lost => Need::Nothing,
            State::Held(it) if due && (guarded || it.asked.is_some()) => Need::Read,
            // Its record cannot be written before.
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

    /// When it has to be looked at next.
    pub fn due(&self) -> Option<Moment> {
        match &self.state {
            State::Waiting => self.read_at,
            State::Held(_) => self.read_at.into_iter().chain(self.record_due()).min(),
            _ => None,
        }
    }

    /// When the record of its holder is to be written, unless it is. Its mod revision, which guards the write, may have to be read first.
    pub fn record_due(&self) -> Option<Moment> {
        self.modified.and_then(|_| self.ownership()?.record_due())
    }

    /// Returns true if those of its predecessors that count exclude it.
    pub fn is_excluded_by(&self, counts: impl Fn(&[u8]) -> bool) -> bool {
        let Some(ahead) = &self.ahead else { return false };
        let keys = ahead.standing.keys().inspect(|_| step()).map(Vec::as_slice);
        !seat::admits(self.wish.mode, keys.filter(|key| counts(key)))
    }

    /// Records a mod revision that the key had under this process's lease.
    pub fn written(&mut self, revision: Revision) {
        self.modified = self.modified.max(Some(revision));
    }

    /// Takes in what the response to its put shows at this revision: the oldest key of the family, or all of them. Returns true if it
    /// shows others.
    pub fn placed(&mut self, revision: Revision, found: &[Kv]) -> bool {
        let key = self.key.clone().unwrap_or_default();
        let own = key.as_bytes();
        // Its key was not there before, unless another client has put it: then it is seen here, or at the next read.
        let shown = found.iter().find(|kv| kv.key == own).map(|kv| kv.create_revision);
        let created = shown.unwrap_or(revision);
        (self.created, self.state) = (Some(created), State::Waiting);
        self.written(revision);
        let there = found.is_empty() || shown.is_some();
        let is_other = |kv: &&Kv| kv.key != own && contends(&self.family, &kv.key);
        self.oldest = found.iter().find(is_other).map(|kv| kv.key.clone());
        // A watch may have seen it deleted before its put was answered: then a read finds out.
        if there && self.gone.get(own).is_none_or(|deleted| *deleted <= created) {
            self.seen = Some(revision);
            self.read(revision, found);
        }
        self.oldest.is_some()
    }

    /// Takes in all keys of its family, as a read at this revision shows them, or all that are older.
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

    /// Takes in that a key was deleted at this revision. Returns true if that was a predecessor (rule P14).
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

    /// Admits it if the predecessors that are left do (rules P21, P37).
    fn admit(&mut self) {
        let excluded = self.is_excluded_by(|_| true);
        if let Some(ahead) = self.ahead.as_mut().filter(|_| !excluded) {
            ahead.standing.clear();
            self.admitted.get_or_insert(ahead.at);
        }
    }

    /// The key that the next read shows with its value: its own if that may have been written, else the oldest predecessor.
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

    /// What is watched for it, with the first revision: while it waits, all keys of the family, or the predecessor just ahead if
    /// there are more than `near`, since a watch brings an event for each key (rule P15). While it is held, all keys of its
    /// session below the name, which begin alike (rule P18).
    pub fn watched(&self, near: usize) -> Option<(Key, Revision)> {
        match (&self.state, &self.ahead) {
            (State::Waiting, Some(Ahead { standing, at })) => {
                // A permit may come free, and a reader be let in, long before the last of those before it has gone.
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

    /// Compares its key with the keys that a read at `revision` shows. Returns how it was lost, if it was. If the read does not show
    /// that, `modified` is `None` after it.
    ///
    /// An unknown mod revision may come from a write of this process whose response was lost, so only the lease decides.
    pub fn compare(&mut self, revision: Revision, found: &[Kv]) -> Option<LossCause> {
        let (key, created) = (self.key.as_ref()?.as_bytes(), self.created?);
        let Some(kv) = found.iter().find(|kv| kv.key == key) else {
            return Some(LossCause::Gone);
        };
        if kv.create_revision != created {
            return Some(LossCause::Overwritten);
        }
        self.seen = self.seen.max(Some(revision));
        // The last write is known, or it is later than the read.
        let is_known = |last| last == kv.mod_revision || last > revision;
        match kv.lease {
            _ if self.modified.is_some_and(is_known) => {}
            None => self.modified = None,
            lease if lease == self.lease() => self.written(kv.mod_revision),
            Some(_) => return Some(LossCause::Overwritten),
        }
        None
    }

    /// How it was lost, if it was, as an event of its key shows that is not of an earlier incarnation (rule P14).
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

    /// Whether a key of another process waits behind it, which is held (rule P23). What this process has there goes soon.
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
