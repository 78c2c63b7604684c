//! Contender: the keys of one call below its names, put in one transaction, from the wish for them until they are gone.
//!
//! ```text
//! Pending ─sent─► Creating ─answered─► Waiting ─admitted, session fresh─► Owned ─last body dropped─► Deleting ─answered─► gone
//!    ▲               │  ▲ nothing applied       │                            │ ▲ │                       ▲
//!    └───────────────┘  └── Pending             │                     handed over  └at_least─► Retained ─┤
//!                    │                          └───nobody wants it────────────────────────────────────┤
//!                    └no answer─► Ambiguous ─barrier answered────────────────────────────────────────────┘
//! ```
//!
//! A call with several names is a *group*: its keys share one create revision, and stand or fall together (rule P13). A
//! contender of one name may be inherited by the next call that fits it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::deadlock::STEP;
use crate::ids::{CallId, ContenderId, Incarnation, Key, LeaseId, Name, Revision, SessionId};
use crate::loss::LossCause;
use crate::moment::Moment;
use crate::observe::{Read, Seen};
use crate::output::OwnedKey;
use crate::ownership::Ownership;
use crate::part::{Own, Part};
use crate::request::{Event, Kv};
use crate::retention::Retention;
use crate::seat::{Mode, Seat};

/// How long at least the keys of a call linger here for the next. Other processes wait that much longer, and up to two milliseconds
/// more.
const LINGER: Duration = Duration::from_millis(1);

/// What a contender is put for.
#[derive(Debug, Clone, Default)]
pub struct Purpose {
    pub names: Arc<[Name]>,
    pub mode: Mode,
    pub ttl_secs: i64,
}

impl Purpose {
    /// Whether what was put for it serves a call that wants this.
    pub fn serves(&self, wanted: &Self) -> bool {
        let same = self.names.len() == wanted.names.len()
            && self.names.iter().all(|name| wanted.names.contains(name));
        same && self.mode == wanted.mode && self.ttl_secs == wanted.ttl_secs
    }
}

/// Where a contender is in its life.
#[derive(Debug)]
pub enum State {
    /// It waits for its session's next bundle: nothing was sent. `tries`: it goes alone, and only if no other key is there.
    Pending { tries: bool },
    /// Its put is under way.
    Creating,
    /// Its put may have been applied or not: a barrier settles that (rule P10).
    Ambiguous,
    /// Its keys exist and wait.
    Waiting { created: Revision, since: Moment },
    /// Calls hold it.
    Owned(Ownership),
    /// Its call is over, and its names stay locked (rule P39).
    Retained(Retention),
    /// A guarded delete of its keys is queued or under way; their names take no other key of this seat until it is answered.
    Deleting,
}

/// The keys of one call.
#[derive(Debug)]
pub struct Contender {
    session: SessionId,
    purpose: Purpose,
    seats: Vec<Seat>,
    record: Arc<[u8]>,
    /// None while it is pending: its keys are named after its session's lease.
    parts: Vec<Part>,
    state: State,
    /// Its names go on without it, because its session is gone: it only remains until it is known to be deleted.
    detached: bool,
}

impl Contender {
    /// A wish for keys, to be put under a session. `tries`: for a single try.
    pub fn new(
        session: SessionId,
        purpose: Purpose,
        seats: Vec<Seat>,
        record: Arc<[u8]>,
        tries: bool,
    ) -> Self {
        // Below a name that is shared others of its kind may be: the answer to a plain put shows which (rule P11).
        let tries = tries && purpose.mode == Mode::Exclusive;
        Self {
            session,
            purpose,
            seats,
            record,
            parts: Vec::new(),
            state: State::Pending { tries },
            detached: false,
        }
    }

    /// The session its keys are, or will be, under.
    pub fn session(&self) -> SessionId {
        self.session
    }

    /// What it is put for.
    pub fn purpose(&self) -> &Purpose {
        &self.purpose
    }

    /// Its names, in the order of its call.
    pub fn names(&self) -> &Arc<[Name]> {
        &self.purpose.names
    }

    /// How its calls share its names.
    pub fn mode(&self) -> Mode {
        self.purpose.mode
    }

    /// The seat of each name.
    pub fn seats(&self) -> impl Iterator<Item = (&Name, Seat)> {
        self.purpose.names.iter().zip(self.seats.iter().copied())
    }

    /// The record of the call it was put for.
    pub fn record(&self) -> &Arc<[u8]> {
        &self.record
    }

    /// Where it is in its life.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Its keys, each with what is known of those before it; none while nothing was sent.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Its keys.
    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        self.parts.iter().map(|part| &part.key)
    }

    /// Whether its names go on without it.
    pub fn is_detached(&self) -> bool {
        self.detached
    }

    /// Its names go on without it.
    pub fn detach(&mut self) {
        self.detached = true;
    }

    /// Whether it may be put, or waits: at most one contender of a name does (invariant I6).
    pub fn is_in_line(&self) -> bool {
        matches!(
            self.state,
            State::Pending { .. } | State::Creating | State::Ambiguous | State::Waiting { .. }
        )
    }

    /// The create revision of its keys, where they are known to exist.
    pub fn created(&self) -> Option<Revision> {
        match &self.state {
            State::Waiting { created, .. } => Some(*created),
            State::Retained(retention) => Some(retention.created()),
            State::Owned(ownership) => Some(ownership.created()),
            State::Pending { .. } | State::Creating | State::Ambiguous | State::Deleting => None,
        }
    }

    /// What its calls have of it, if they hold it.
    pub fn ownership(&self) -> Option<&Ownership> {
        match &self.state {
            State::Owned(ownership) => Some(ownership),
            _ => None,
        }
    }

    /// The same, unless they have lost it.
    pub fn held(&self) -> Option<&Ownership> {
        self.ownership().filter(|ownership| !ownership.is_lost())
    }

    /// Its keys while calls hold it, and its session.
    pub fn held_keys(&self) -> impl Iterator<Item = (Incarnation, SessionId)> {
        let created = self.held().map(Ownership::created);
        let keys = self.keys();
        keys.filter_map(move |key| Some(((key.clone(), created?), self.session)))
    }

    /// What its calls have of it, to change it.
    pub fn ownership_mut(&mut self) -> Option<&mut Ownership> {
        match &mut self.state {
            State::Owned(ownership) => Some(ownership),
            _ => None,
        }
    }

    /// How its names stay locked, if they do after its call.
    pub fn retention(&mut self) -> Option<&mut Retention> {
        match &mut self.state {
            State::Retained(retention) => Some(retention),
            _ => None,
        }
    }

    /// Nothing of its put was applied: it is to be sent again, plainly.
    pub fn unsent(&mut self) {
        self.state = State::Pending { tries: false };
    }

    /// Its keys were created at this revision.
    pub fn created_at(&mut self, now: Moment, created: Revision) {
        self.state = State::Waiting { created, since: now };
    }

    /// The first of its keys that is not admitted, once they have waited for so long that a deadlock is possible. That of a permit
    /// is none: no single one is waited for (rule P38).
    pub fn stalled(&self, now: Moment) -> Option<Incarnation> {
        let permits = matches!(self.purpose.mode, Mode::Permits(_));
        match self.state {
            State::Waiting { created, since } if now - since >= STEP && !permits => {
                let part = self.parts.iter().find(|part| part.admitted().is_none())?;
                Some((part.key.clone(), created))
            }
            _ => None,
        }
    }

    /// What an answer to its put shows at this revision of part `at`: the oldest key of the family, or all of them.
    pub fn placed(&mut self, at: usize, created: Revision, revision: Revision, found: &[Kv]) {
        if let Some(part) = self.parts.get_mut(at) {
            part.placed(created, revision, found);
        }
    }

    /// Compares its keys, which are attached to `lease`, with a read of its names at `revision`. The loss of one key is the result for
    /// all of them.
    pub fn compare(&mut self, lease: LeaseId, revision: Revision, seen: &[Seen]) -> Own {
        let Some(created) = self.created() else {
            return Own::Intact;
        };
        let mut all = Own::Intact;
        for (part, seen) in self.parts.iter_mut().zip(seen) {
            match part.compare(created, lease, revision, seen) {
                Own::Intact => {}
                Own::Unknown => all = Own::Unknown,
                lost @ Own::Lost(_) => return lost,
            }
        }
        all
    }

    /// Records that this process wrote its keys at this revision.
    pub fn record_write(&mut self, revision: Revision) {
        self.parts.iter_mut().for_each(|part| part.record_write(revision));
    }

    /// How it was lost, if it was, as an event of one of its keys shows. An event of an earlier incarnation says nothing about this
    /// one (rule P14).
    pub fn lost_by(&self, event: &Event, lease: LeaseId) -> Option<LossCause> {
        let created = self.created()?;
        match event {
            Event::Put(kv) => {
                let other = (kv.create_revision, kv.lease) != (created, Some(lease));
                let late = kv.create_revision < created;
                (other && !late).then_some(LossCause::Overwritten)
            }
            Event::Delete { revision, .. } => (*revision > created).then_some(LossCause::Deleted),
        }
    }

    /// A read at this revision shows all keys that are older, of each of its names.
    pub fn read(&mut self, revision: Revision, seen: &[Seen]) {
        if let Some(created) = self.created() {
            for (part, seen) in self.parts.iter_mut().zip(seen) {
                part.read(created, revision, &seen.keys);
            }
        }
    }

    /// A watch of a name reports that a key was deleted; true if that was a predecessor.
    pub fn predecessor_deleted(&mut self, name: &Name, key: &[u8], revision: Revision) -> bool {
        let mut parts = self.parts.iter_mut();
        let part = parts.find(|part| part.name == *name);
        part.is_some_and(|part| part.deleted(key, revision))
    }

    /// Whether all its keys are admitted: its call may be served.
    pub fn is_admitted(&self) -> bool {
        !self.parts.is_empty() && self.parts.iter().all(|part| part.admitted().is_some())
    }

    /// Whether all contenders that are older have been read.
    pub fn is_read(&self) -> bool {
        self.parts.iter().all(Part::is_read)
    }

    /// Whether it is known not to be admitted.
    pub fn must_wait(&self) -> bool {
        self.is_read() && !self.is_admitted()
    }

    /// A call holds it: the first, or one more. True if a read has to show whether another process waits behind it.
    pub fn grant(&mut self, now: Moment, call: CallId) -> bool {
        match &mut self.state {
            State::Owned(ownership) => ownership.add(now, call),
            State::Waiting { created, .. } => {
                let created = *created;
                // Then the answer to its put has shown that no younger contender was there.
                let alone = self.parts.iter().all(|part| part.admitted() == Some(created));
                self.state = State::Owned(Ownership::begin(now, created, call, alone));
                false
            }
            _ => false,
        }
    }

    /// What its calls own below a name.
    pub fn owned(&self, name: &Name) -> Option<OwnedKey> {
        let ownership = self.ownership()?;
        let part = self.parts.iter().find(|part| part.name == *name)?;
        let created = ownership.created();
        Some(OwnedKey {
            key: part.key.clone(),
            created,
            revision: part.admitted().unwrap_or(created).max(created),
            handover: ownership.handover(),
        })
    }

    /// Its call is over, and its names stay locked until then.
    pub fn retain(&mut self, until: Moment, record: Arc<[u8]>) {
        if let Some(created) = self.created() {
            self.state = State::Retained(Retention::new(created, until, record));
        }
    }

    /// It is to be deleted; false if no key of it can be there.
    pub fn delete(&mut self) -> bool {
        let there = self.created().is_some() || matches!(self.state, State::Ambiguous);
        if there {
            self.state = State::Deleting;
        }
        there
    }
}

/// All contenders of a process.
#[derive(Debug, Default)]
pub struct Contenders {
    all: BTreeMap<ContenderId, Contender>,
    by_key: BTreeMap<Key, ContenderId>,
    /// Those that linger, the first to end first: until when, and since which hand-over. Some have been taken over since.
    lingering: VecDeque<(Moment, ContenderId, u16)>,
    last: u64,
}

impl Contenders {
    /// Takes one in.
    pub fn add(&mut self, contender: Contender) -> ContenderId {
        self.last += 1;
        let id = ContenderId::from(self.last);
        self.all.insert(id, contender);
        id
    }

    pub fn get(&self, id: ContenderId) -> Option<&Contender> {
        self.all.get(&id)
    }

    pub fn get_mut(&mut self, id: ContenderId) -> Option<&mut Contender> {
        self.all.get_mut(&id)
    }

    /// Its put is sent, under this lease: from now on it is found by its keys.
    pub fn sent(&mut self, id: ContenderId, lease: LeaseId) {
        if let Some(contender) = self.all.get_mut(&id) {
            let part = |(name, seat)| Part::new(name, lease, seat, contender.mode());
            contender.parts = contender.seats().map(part).collect();
            contender.state = State::Creating;
            let keys = contender.keys().map(|key| (key.clone(), id));
            self.by_key.extend(keys);
        }
    }

    /// How many keys are to be put for it, and whether for a single try; `None`: it is not to be put.
    pub fn pending(&self, id: ContenderId) -> Option<(usize, bool)> {
        let contender = self.get(id)?;
        match contender.state {
            State::Pending { tries } => Some((contender.seats.len(), tries)),
            _ => None,
        }
    }

    /// Its put may have been applied or not.
    pub fn ambiguous(&mut self, id: ContenderId) {
        if let Some(contender) = self.all.get_mut(&id) {
            contender.state = State::Ambiguous;
        }
    }

    /// The contender that has this key.
    pub fn by_key(&self, key: &[u8]) -> Option<ContenderId> {
        self.by_key.get(std::str::from_utf8(key).ok()?).copied()
    }

    /// No call holds it: from now on it lingers for the next.
    pub fn linger(&mut self, now: Moment, id: ContenderId) {
        let ownership = self.get(id).and_then(Contender::ownership);
        let handover = ownership.map(Ownership::handover);
        let entry = handover.map(|handover| (now + LINGER, id, handover));
        self.lingering.extend(entry);
    }

    /// Takes out the next that has lingered for [`LINGER`], and was not taken over meanwhile.
    pub fn next_lingered(&mut self, now: Moment) -> Option<ContenderId> {
        while let Some((until, id, handover)) = self.lingering.front().copied()
            && until <= now
        {
            self.lingering.pop_front();
            let ownership = self.get(id).and_then(Contender::ownership);
            if ownership.is_some_and(|it| it.handover() == handover) {
                return Some(id);
            }
        }
        None
    }

    /// Until when the next one lingers.
    pub fn lingers_until(&self) -> Option<Moment> {
        self.lingering.front().map(|(until, ..)| *until)
    }

    /// It is gone for good.
    pub fn remove(&mut self, id: ContenderId) -> Option<Contender> {
        let contender = self.all.remove(&id)?;
        for key in contender.keys() {
            self.by_key.remove(key);
        }
        Some(contender)
    }

    /// Some of its keys are gone; how many are left.
    pub fn drop_parts(&mut self, id: ContenderId, gone: &[Key]) -> usize {
        for key in gone {
            self.by_key.remove(key);
        }
        self.all.get_mut(&id).map_or(0, |contender| {
            contender.parts.retain(|part| !gone.contains(&part.key));
            contender.parts.len()
        })
    }

    /// How a contender is to be read: only if it waits, or calls hold it.
    pub fn to_read(&self, id: ContenderId) -> Option<Read> {
        let contender = self.get(id)?;
        let up_to = match contender.state {
            State::Waiting { created, .. } => Some(created),
            State::Owned(_) => None,
            State::Retained(ref retention) if retention.is_moved() => None,
            _ => return None,
        };
        // Nothing but its own key decides of one that is retained.
        let alone = matches!(contender.state, State::Retained(_));
        let parts = contender.parts.iter();
        let names = parts.map(|part| match alone {
            true => (part.key.clone(), None),
            false => (part.family.clone(), part.key_to_read().map(Vec::from)),
        });
        Some(Read { contender: id, up_to, names: names.collect() })
    }

    /// All of them, for views.
    pub fn iter(&self) -> impl Iterator<Item = (ContenderId, &Contender)> {
        self.all.iter().map(|(id, contender)| (*id, contender))
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}
