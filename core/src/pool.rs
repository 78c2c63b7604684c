//! Pool: all sessions of a process, the choice of one for a call, and the leases that have ended (rule P27).

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::mem::take;

use crate::ids::{CallId, ContenderId, LeaseId, SessionId, Unit};
use crate::moment::Moment;
use crate::request::{Failure, Response};
use crate::session::{Asked, Need, Session};
use crate::timers::Jitter;

/// The number of ended leases that are remembered: more than can end while a read is under way.
const OVER: usize = 1_024;

/// The most names whose last session is remembered.
const RECENT: u64 = 4_096;

/// All sessions of a process. There is one for each TTL in use, or several if each takes only some keys (rule P27).
#[derive(Debug, Default)]
pub struct Sessions {
    pub all: BTreeMap<SessionId, Session>,
    last: u64,
    /// The prefix of session keys.
    root: String,
    /// The most keys of a session; `None`: no limit.
    limit: Option<usize>,
    /// The sessions that have room, by TTL.
    with_room: BTreeSet<(i64, SessionId)>,
    /// The session that a name used last, by a hash of the name. A few names may share an entry.
    recent: HashMap<u64, SessionId>,
    /// The sessions that may need something.
    pub awake: BTreeSet<SessionId>,
    /// The calls that wait until a session of their TTL is open.
    pub warming: Vec<(i64, CallId)>,
    pub revocations: Vec<LeaseId>,
    /// The leases of these sessions, and of the last ones that ended, because reads may return their keys for a little longer.
    leases: BTreeSet<LeaseId>,
    over: VecDeque<LeaseId>,
}

impl Sessions {
    /// `root`: the prefix of session keys; `limit`: the most keys of each.
    pub fn new(root: String, limit: Option<usize>) -> Self {
        Self { root, limit, ..Self::default() }
    }

    /// Returns a session, and marks that it may need something.
    pub fn wake(&mut self, id: SessionId) -> Option<&mut Session> {
        self.awake.insert(id);
        self.all.get_mut(&id)
    }

    /// Chooses the session for a call. First choice is the last session of the name, if that is in use and has room: under
    /// another lease the key would be another one, and etcd's ranges read deleted keys until a compaction. Otherwise it is the
    /// oldest session with room, so that the others become idle, or a new one.
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
        let id = id.unwrap_or_else(|| {
            self.last += 1;
            let id = SessionId(self.last);
            self.all.insert(id, Session::new(now, ttl_secs));
            self.awake.insert(id);
            self.note_room(id);
            id
        });
        self.recent.insert(slot, id);
        id
    }

    /// Returns the sessions of this TTL that have room, the oldest first.
    pub fn with_room(&self, ttl_secs: i64) -> impl Iterator<Item = SessionId> {
        let from = self.with_room.range((ttl_secs, SessionId(0))..);
        from.take_while(move |(of, _)| *of == ttl_secs).map(|(_, id)| *id)
    }

    /// Updates whether a session has room.
    pub fn note_room(&mut self, id: SessionId) {
        let Some(session) = self.all.get(&id) else { return };
        let (of, keys) = ((session.ttl_secs, id), session.contenders.len());
        match session.accepts() && self.limit.is_none_or(|limit| keys < limit) {
            true => self.with_room.insert(of),
            false => self.with_room.remove(&of),
        };
    }

    /// Adds the contenders of a call to a session. Returns them if they can be put now: the session is open, and etcd is not lost
    /// (`sends`). Otherwise the session keeps them until then.
    pub fn attach(&mut self, now: Moment, id: SessionId, unit: Unit, sends: bool) -> Option<Unit> {
        let session = self.all.get_mut(&id)?;
        session.last_used = now;
        session.contenders.extend(&*unit);
        let ready = sends && session.is_open();
        if !ready {
            session.units.insert(*unit.first()?, unit.clone());
        }
        self.note_room(id);
        ready.then_some(unit)
    }

    /// Notes that a contender no longer has a key under its session.
    pub fn detach(&mut self, now: Moment, id: SessionId, contender: ContenderId) {
        let Some(session) = self.all.get_mut(&id) else { return };
        session.last_used = now;
        session.contenders.remove(&contender);
        session.units.remove(&contender);
        session.ambiguous.remove(&contender);
        self.note_room(id);
    }

    pub fn drop_body(&mut self, id: SessionId) {
        let Some(session) = self.all.get_mut(&id) else { return };
        session.bodies -= 1;
        self.awake.extend((!session.accepts()).then_some(id));
    }

    /// Takes in the result of a session's request, which was sent at that time. Returns what follows.
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
            // A shutdown has ended the session.
            if let Ok(Response::Granted { lease, .. }) = result {
                self.revocations.push(lease);
            }
            return Vec::new();
        };
        let mut needs = session.answered(now, sent, result, &self.root, jitter);
        match session.lease() {
            Some(lease) => self.leases.extend([lease]),
            // If etcd granted the lease nevertheless, it expires by itself with no keys. The next call requests another one.
            None if session.contenders.is_empty() && self.warming.is_empty() => {
                needs.push(Need::End);
            }
            None => {}
        }
        needs
    }

    /// Removes and returns the calls whose session is open. For the others it opens sessions.
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

    /// Ends a session that is over or could not be opened. Its lease will be revoked.
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

    /// Returns true if a lease belongs to a session, or did until recently.
    pub fn have(&self, lease: LeaseId) -> bool {
        self.leases.contains(&lease)
    }
}
