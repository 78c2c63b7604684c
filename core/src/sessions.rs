//! Pool: the sessions of a process, one for each TTL in use, and a few where thousands of locks are held (rule P27).
//!
//! What a session takes with it when it is lost is bounded by that, and so is what etcd keeps under one lease.

use std::collections::BTreeMap;

use crate::ids::SessionId;
use crate::moment::Moment;
use crate::session::Session;

/// Sessions of one TTL: renewals must not grow with the number of locks held (invariant I8).
const MOST: usize = 8;

/// All sessions.
#[derive(Debug, Default)]
pub struct Sessions {
    all: BTreeMap<SessionId, Session>,
    /// Those that calls of a TTL use, the oldest first.
    by_ttl: BTreeMap<i64, Vec<SessionId>>,
    last: u64,
}

impl Sessions {
    /// The session a call of this TTL is to use: the oldest that has room, so that the others come to rest. Where none has, a
    /// new one is asked for, and meanwhile they take more.
    /// Answers the new one too.
    pub fn choose(
        &mut self,
        now: Moment,
        ttl_secs: i64,
        room: usize,
    ) -> (SessionId, Option<SessionId>) {
        let ids = self.by_ttl.get(&ttl_secs).map_or(&[][..], Vec::as_slice);
        let known = ids.iter().filter_map(|id| Some((*id, self.all.get(id)?)));
        let mut opening = false;
        let mut best: Option<(bool, usize, SessionId)> = None;
        for (id, session) in known {
            if session.has_opened() && session.load() < room {
                return (id, None);
            }
            opening |= !session.has_opened();
            let candidate = (!session.has_opened(), session.load(), id);
            best = best.into_iter().chain([candidate]).min();
        }
        match best {
            Some((_, _, id)) => {
                let more = !opening && ids.len() < MOST;
                (id, more.then(|| self.open(now, ttl_secs)))
            }
            None => {
                let id = self.open(now, ttl_secs);
                (id, Some(id))
            }
        }
    }

    fn open(&mut self, now: Moment, ttl_secs: i64) -> SessionId {
        self.last += 1;
        let id = SessionId::from(self.last);
        self.all.insert(id, Session::new(now, ttl_secs));
        self.by_ttl.entry(ttl_secs).or_default().push(id);
        id
    }

    /// Whether no call uses a session, and calls of its TTL have another one.
    pub fn is_spare(&self, id: SessionId) -> bool {
        let Some(session) = self.all.get(&id) else {
            return false;
        };
        let first = self
            .by_ttl
            .get(&session.ttl_secs())
            .and_then(|ids| ids.first());
        session.is_open() && session.is_unused() && first.is_some_and(|first| *first != id)
    }

    /// No more calls for this session.
    pub fn withdraw(&mut self, id: SessionId) {
        let Some(ttl_secs) = self.all.get(&id).map(Session::ttl_secs) else {
            return;
        };
        if let Some(ids) = self.by_ttl.get_mut(&ttl_secs) {
            ids.retain(|of| *of != id);
            if ids.is_empty() {
                self.by_ttl.remove(&ttl_secs);
            }
        }
    }

    pub fn get(&self, id: SessionId) -> Option<&Session> {
        self.all.get(&id)
    }

    pub fn get_mut(&mut self, id: SessionId) -> Option<&mut Session> {
        self.all.get_mut(&id)
    }

    /// A session is over, or could not be had.
    pub fn remove(&mut self, id: SessionId) -> Option<Session> {
        self.withdraw(id);
        self.all.remove(&id)
    }

    /// All of them: a few for each TTL.
    pub fn iter(&self) -> impl Iterator<Item = (SessionId, &Session)> {
        self.all.iter().map(|(id, session)| (*id, session))
    }

    /// Their ids.
    pub fn ids(&self) -> Vec<SessionId> {
        self.all.keys().copied().collect()
    }
}
