//! Pool: all sessions of a process, which of them a call uses, and which leases are over (rule P27).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::mem::take;

use crate::ids::{CallId, ContenderId, LeaseId, SessionId};
use crate::loss::LossCause;
use crate::moment::Moment;
use crate::session::{Need, Session};

/// How many leases are remembered that were lost or revoked: more than sessions end in the time of a read.
const OVER: usize = 1_024;

/// All sessions of a process: one for each TTL in use, or as many as its contenders need where a session takes only some (rule P27).
#[derive(Debug, Default)]
pub struct Sessions {
    all: BTreeMap<SessionId, Session>,
    last: u64,
    /// How many keys a session takes; `None`: any number.
    limit: Option<usize>,
    /// Those that have room, by their TTL.
    with_room: BTreeMap<i64, BTreeSet<SessionId>>,
    /// Those that may need something; and those that wait until more than renewals may be sent.
    awake: BTreeSet<SessionId>,
    /// The leases of all of them.
    pub leases: BTreeSet<LeaseId>,
    held_back: BTreeSet<SessionId>,
    /// Callers that wait until a session of this TTL is open, and since when.
    warming: Vec<(Moment, CallId, i64)>,
    revocations: Vec<LeaseId>,
    /// The last leases that were lost or were to be revoked: their keys may be seen until etcd has answered, and a little later.
    over: BTreeSet<LeaseId>,
    in_order: VecDeque<LeaseId>,
}

impl Sessions {
    /// None yet; `limit`: how many keys each takes.
    pub fn new(limit: Option<usize>) -> Self {
        Self { limit, ..Self::default() }
    }

    /// The session that a call of this TTL is to use: the oldest that has room, so that the others come to rest, or a new one.
    pub fn choose(&mut self, now: Moment, ttl_secs: i64) -> SessionId {
        let with_room = self.with_room.entry(ttl_secs).or_default();
        if let Some(oldest) = with_room.first() {
            return *oldest;
        }
        self.last += 1;
        let id = SessionId::from(self.last);
        with_room.insert(id);
        self.all.insert(id, Session::new(now, ttl_secs));
        self.awake.insert(id);
        id
    }

    /// The contenders of a call are to be put under a session, in one transaction.
    pub fn attach(&mut self, now: Moment, id: SessionId, contenders: &[ContenderId]) {
        let limit = self.limit;
        let Some(session) = self.wake(id) else { return };
        let many = session.attach(now, contenders);
        if limit.is_some_and(|limit| many >= limit) {
            self.withdraw(id);
        }
    }

    /// A contender has no key under its session any more.
    pub fn detach(&mut self, now: Moment, id: SessionId, contender: ContenderId) {
        let Some(session) = self.all.get_mut(&id) else { return };
        let many = session.detach(now, contender);
        if self.limit.is_some_and(|limit| many < limit) && session.accepts() {
            self.with_room.entry(session.ttl_secs()).or_default().insert(id);
        }
    }

    /// A caller waits until a session of this TTL is open.
    pub fn warm(&mut self, now: Moment, call: CallId, ttl_secs: i64) {
        self.warming.push((now, call, ttl_secs));
    }

    /// Takes out the callers that a session is open for now; sees to it that there will be one for the others.
    pub fn warmed(&mut self, now: Moment) -> Vec<CallId> {
        let mut open = Vec::new();
        for (since, call, ttl_secs) in take(&mut self.warming) {
            let id = self.choose(now, ttl_secs);
            match self.all.get(&id).is_some_and(Session::is_open) {
                true => open.push(call),
                false => self.warming.push((since, call, ttl_secs)),
            }
        }
        open
    }

    /// When the first caller came that waits for a session.
    pub fn first_warming(&self) -> Option<Moment> {
        self.warming.first().map(|(since, ..)| *since)
    }

    /// Takes out the callers that wait for a session of this TTL, or of any, and came by then.
    pub fn stop_warming(&mut self, then: Moment, ttl_secs: Option<i64>) -> Vec<CallId> {
        let stops = |(since, _, of): &mut (Moment, CallId, i64)| {
            *since <= then && ttl_secs.is_none_or(|ttl_secs| ttl_secs == *of)
        };
        self.warming.extract_if(.., stops).map(|(_, call, _)| call).collect()
    }

    pub fn get(&self, id: SessionId) -> Option<&Session> {
        self.all.get(&id)
    }

    pub fn get_mut(&mut self, id: SessionId) -> Option<&mut Session> {
        self.all.get_mut(&id)
    }

    /// The same: it may need something.
    pub fn wake(&mut self, id: SessionId) -> Option<&mut Session> {
        self.awake.insert(id);
        self.all.get_mut(&id)
    }

    /// The same, if etcd still knows its lease.
    pub fn alive(&mut self, id: SessionId) -> Option<&mut Session> {
        self.wake(id).filter(|session| session.is_alive())
    }

    /// The next session that may need something.
    pub fn next_awake(&mut self) -> Option<SessionId> {
        self.awake.pop_first()
    }

    /// What a session needs now, if anything. `sends`: whether more than renewals may be sent.
    pub fn need(&mut self, id: SessionId, now: Moment, sends: bool) -> Option<Need> {
        let session = self.all.get_mut(&id)?;
        let with_room = self.with_room.get(&session.ttl_secs());
        let spare = with_room.is_some_and(|ids| ids.len() > 1);
        session.need(now, sends, spare)
    }

    /// A session waits until more than renewals may be sent.
    pub fn hold_back(&mut self, id: SessionId) {
        self.held_back.insert(id);
    }

    pub fn has_held_back(&self) -> bool {
        !self.held_back.is_empty()
    }

    /// More than renewals may be sent.
    pub fn wake_held_back(&mut self) {
        self.awake.append(&mut self.held_back);
    }

    /// What is under way may never be answered, and holds no put back any more.
    pub fn reopen_windows(&mut self) {
        for (id, session) in &mut self.all {
            session.puts().reopen_window();
            self.awake.insert(*id);
        }
    }

    /// No more calls for this session.
    pub fn withdraw(&mut self, id: SessionId) {
        let ttl_secs = self.all.get(&id).map(Session::ttl_secs);
        if let Some(with_room) = ttl_secs.and_then(|of| self.with_room.get_mut(&of)) {
            with_room.remove(&id);
        }
    }

    /// A session is over, or could not be had: its lease is to be revoked.
    pub fn end(&mut self, id: SessionId) -> Option<Session> {
        self.withdraw(id);
        let session = self.all.remove(&id)?;
        if let Some(lease) = session.lease() {
            self.leases.remove(&lease);
        }
        self.revoke(session.lease());
        Some(session)
    }

    /// A shutdown ends sessions. One whose body does not end is left to run out.
    pub fn end_idle(&mut self) {
        let idle = self.all.iter().filter(|(_, session)| session.bodies() == 0);
        for id in idle.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.end(id);
        }
    }

    /// A session is not to be relied on any more. Returns how it was lost; `None` if it was lost before.
    pub fn lose(&mut self, id: SessionId, cause: LossCause) -> Option<LossCause> {
        let session = self.alive(id)?;
        let (lease, cause) = (session.lease()?, session.lose(cause));
        self.note_end(lease);
        Some(cause)
    }

    /// These leases are to be revoked.
    pub fn revoke(&mut self, leases: impl IntoIterator<Item = LeaseId>) {
        for lease in leases {
            self.revocations.push(lease);
            self.note_end(lease);
        }
    }

    /// A lease is lost, or to be revoked.
    fn note_end(&mut self, lease: LeaseId) {
        if self.over.insert(lease) {
            self.in_order.push_back(lease);
        }
        if self.in_order.len() > OVER
            && let Some(oldest) = self.in_order.pop_front()
        {
            self.over.remove(&oldest);
        }
    }

    /// Whether a lease is, or was lately, that of a session.
    pub fn have(&self, lease: LeaseId) -> bool {
        self.leases.contains(&lease) || self.have_lost(lease)
    }

    /// Whether a lease was lost, or was to be revoked lately.
    pub fn have_lost(&self, lease: LeaseId) -> bool {
        self.over.contains(&lease)
    }

    /// The lease to be revoked next.
    pub fn next_revocation(&mut self) -> Option<LeaseId> {
        self.revocations.pop()
    }

    pub fn has_revocations(&self) -> bool {
        !self.revocations.is_empty()
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (SessionId, &Session)> {
        self.all.iter().map(|(id, session)| (*id, session))
    }
}
