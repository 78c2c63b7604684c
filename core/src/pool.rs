//! Pool: all sessions of a process, which of them a call uses, and which leases are over (rule P27).

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::mem::take;

use crate::ids::{CallId, ContenderId, LeaseId, SessionId, Unit};
use crate::moment::Moment;
use crate::request::{Failure, Response};
use crate::session::{Asked, Need, Session};
use crate::timers::Jitter;
use crate::transactions::LOCKS;

/// How many leases are remembered that are over: more than sessions end in the time of a read.
const OVER: usize = 1_024;

/// How many names' sessions are remembered at most.
const RECENT: u64 = 4_096;

/// All sessions of a process: one for each TTL in use, or as many as its contenders need where a session takes only some (rule P27).
#[derive(Debug, Default)]
pub struct Sessions {
    pub all: BTreeMap<SessionId, Session>,
    last: u64,
    /// What session keys begin with.
    root: String,
    /// How many keys a session takes; `None`: any number.
    limit: Option<usize>,
    /// Those that have room, by their TTL.
    with_room: BTreeSet<(i64, SessionId)>,
    /// The session that a name has used last, by a hash of the name. A few names may share one.
    recent: HashMap<u64, SessionId>,
    /// Those that may need something.
    pub awake: BTreeSet<SessionId>,
    /// Calls that wait until a session of this TTL is open.
    pub warming: Vec<(i64, CallId)>,
    /// Leases to be revoked.
    pub revocations: Vec<LeaseId>,
    /// The leases of all of them, and the last that are over: their keys may be seen until etcd has answered, and a little later.
    leases: BTreeSet<LeaseId>,
    over: VecDeque<LeaseId>,
}

impl Sessions {
    /// None yet. `root`: what session keys begin with; `limit`: how many keys each takes.
    pub fn new(root: String, limit: Option<usize>) -> Self {
        Self { root, limit, ..Self::default() }
    }

    /// Returns a session that may need something now.
    pub fn wake(&mut self, id: SessionId) -> Option<&mut Session> {
        self.awake.insert(id);
        self.all.get_mut(&id)
    }

    /// The session that a call of this name and TTL is to use. It is the one that the name has used last, if that is in use and has room:
    /// with another lease the key would be another, and etcd's ranges pass deleted keys until a compaction. Else it is the oldest that has
    /// room, so that the others come to rest, or a new one.
    pub fn choose(&mut self, now: Moment, ttl_secs: i64, name: &str) -> SessionId {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        let slot = hasher.finish() % RECENT;
        let fits = |it: &Session| {
            let has_room = self.limit.is_none_or(|limit| it.contenders.len() < 2 * limit);
            it.ttl_secs == ttl_secs && it.accepts() && !it.contenders.is_empty() && has_room
        };
        let recent = self.recent.get(&slot).filter(|id| self.all.get(id).is_some_and(fits));
        let id = recent.copied().or_else(|| self.with_room(ttl_secs).next());
        let id = id.unwrap_or_else(|| self.open(now, ttl_secs));
        self.recent.insert(slot, id);
        id
    }

    fn open(&mut self, now: Moment, ttl_secs: i64) -> SessionId {
        self.last += 1;
        let id = SessionId::from(self.last);
        self.all.insert(id, Session::new(now, ttl_secs));
        self.awake.insert(id);
        self.note_room(id);
        id
    }

    /// Those of this TTL that have room, the oldest first.
    pub fn with_room(&self, ttl_secs: i64) -> impl Iterator<Item = SessionId> {
        let from = self.with_room.range((ttl_secs, SessionId::from(0))..);
        from.take_while(move |(of, _)| *of == ttl_secs).map(|(_, id)| *id)
    }

    /// Notes whether a session takes more calls.
    pub fn note_room(&mut self, id: SessionId) {
        let Some(session) = self.all.get(&id) else { return };
        let (of, keys) = ((session.ttl_secs, id), session.contenders.len());
        match session.accepts() && self.limit.is_none_or(|limit| keys < limit) {
            true => self.with_room.insert(of),
            false => self.with_room.remove(&of),
        };
    }

    /// The contenders of a call are to be put under a session, in one transaction. Returns them if that may be now: the session is open,
    /// and etcd is not lost (`sends`). Else they wait in the session.
    pub fn attach(
        &mut self,
        now: Moment,
        id: SessionId,
        contenders: Unit,
        sends: bool,
    ) -> Option<Unit> {
        let session = self.all.get_mut(&id)?;
        session.last_used = now;
        session.contenders.extend(&*contenders);
        // Those that gave up while etcd was away are still there.
        let wanted = &session.contenders;
        if session.units.len() > LOCKS + 2 * wanted.len() {
            session.units.retain(|unit| unit.iter().all(|id| wanted.contains(id)));
        }
        let ready = sends && session.is_open();
        session.units.extend((!ready).then(|| contenders.clone()));
        self.note_room(id);
        ready.then_some(contenders)
    }

    /// A contender has no key under its session any more.
    pub fn detach(&mut self, now: Moment, id: SessionId, contender: ContenderId) {
        let Some(session) = self.all.get_mut(&id) else { return };
        session.last_used = now;
        session.contenders.remove(&contender);
        session.ambiguous.remove(&contender);
        self.note_room(id);
    }

    /// A body has been dropped.
    pub fn drop_body(&mut self, id: SessionId) {
        let Some(session) = self.all.get_mut(&id) else { return };
        session.bodies -= 1;
        self.awake.extend((!session.accepts()).then_some(id));
    }

    /// etcd answered what was sent then for a session, or did not. Returns what follows.
    pub fn answered(
        &mut self,
        now: Moment,
        id: SessionId,
        sent: (Moment, Asked),
        result: Result<Response, Failure>,
        jitter: &mut Jitter,
    ) -> Vec<Need> {
        self.awake.insert(id);
        let Some(session) = self.all.get_mut(&id) else {
            // A shutdown has ended it.
            if let Ok(Response::Granted { lease, .. }) = result {
                self.revocations.push(lease);
            }
            return Vec::new();
        };
        let mut needs = session.answered(now, sent, result, &self.root, jitter);
        match session.lease() {
            Some(lease) => self.leases.extend([lease]),
            // A grant that was carried out unseen runs out by itself: nothing was put under it. The next call asks anew.
            None if session.contenders.is_empty() && self.warming.is_empty() => {
                needs.push(Need::End);
            }
            None => {}
        }
        needs
    }

    /// Takes out the calls that a session is open for now; sees to it that there will be one for the others that wait.
    pub fn warmed(&mut self, now: Moment, waits: impl Fn(CallId) -> bool) -> Vec<CallId> {
        let mut warming = take(&mut self.warming);
        warming.retain(|(_, call)| waits(*call));
        let is_open = |of: &mut (i64, CallId)| {
            let id = self.choose(now, of.0, "");
            self.all.get(&id).is_some_and(Session::is_open)
        };
        let open = warming.extract_if(.., is_open).map(|(_, call)| call).collect();
        self.warming = warming;
        open
    }

    /// A session is over, or could not be had: its lease is to be revoked.
    pub fn end(&mut self, id: SessionId) -> Option<Session> {
        let session = self.all.remove(&id)?;
        self.with_room.remove(&(session.ttl_secs, id));
        self.revocations.extend(session.lease());
        self.over.extend(session.lease());
        if self.over.len() > OVER
            && let Some(oldest) = self.over.pop_front()
        {
            self.leases.remove(&oldest);
        }
        Some(session)
    }

    /// Whether a lease is, or was lately, that of a session.
    pub fn have(&self, lease: LeaseId) -> bool {
        self.leases.contains(&lease)
    }
}
