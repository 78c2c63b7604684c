//! View: what a core has, as plain values, for the test kit and for checkers. Nothing here decides anything.

use crate::conductor::Core;
use crate::contender::{Contender, State};
use crate::ids::{CallId, Key, LeaseId, Name, RequestId, Revision};
use crate::seat::Seat;
use crate::session::Session;

/// One key of a contender.
#[derive(Debug, Clone)]
pub struct ContenderView {
    /// The name.
    pub name: Name,
    /// The key; `None` while nothing was sent.
    pub key: Option<Key>,
    /// Its create revision, where it is known to exist.
    pub created: Option<Revision>,
    /// Its seat.
    pub seat: Seat,
    /// The TTL of its session, in seconds.
    pub ttl_secs: i64,
    /// Where it is in its life.
    pub state: ContenderState,
    /// The calls that hold it.
    pub holders: Vec<CallId>,
    /// Its holders have lost it.
    pub lost: bool,
    /// Its session accepts no acquisitions, and its name goes on without it.
    pub detached: bool,
}

/// Where a contender is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContenderState {
    /// Nothing was sent.
    Pending,
    /// Its put is under way.
    Creating,
    /// Its put had no answer.
    Ambiguous,
    /// It waits.
    Waiting,
    /// Calls hold it.
    Owned,
    /// Its call is over, and its name stays locked.
    Retained,
    /// It is to be deleted.
    Deleting,
}

/// One session.
#[derive(Debug, Clone)]
pub struct SessionView {
    /// Its lease, once granted.
    pub lease: Option<LeaseId>,
    /// Its TTL, in seconds.
    pub ttl_secs: i64,
    /// Where it is in its life.
    pub state: SessionState,
    /// How many bodies it has.
    pub bodies: usize,
}

/// Where a session is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionState {
    /// Its lease is asked for.
    Granting,
    /// A barrier is wanted, or under way.
    Barred,
    /// Acquisitions may be sent.
    Open,
    /// No acquisitions any more.
    Retired,
    /// Not to be relied on any more.
    Lost,
}

impl Core {
    /// Every key of every contender.
    #[must_use]
    pub fn contenders(&self) -> Vec<ContenderView> {
        let view = |contender: &Contender| {
            let keys = contender
                .seats()
                .enumerate()
                .map(|(at, (name, seat))| ContenderView {
                    name: name.clone(),
                    key: contender.parts().get(at).map(|part| part.key.clone()),
                    created: contender.created(),
                    seat,
                    ttl_secs: contender.purpose().ttl_secs,
                    state: match contender.state() {
                        State::Pending => ContenderState::Pending,
                        State::Creating => ContenderState::Creating,
                        State::Ambiguous => ContenderState::Ambiguous,
                        State::Waiting { .. } => ContenderState::Waiting,
                        State::Owned(_) => ContenderState::Owned,
                        State::Retained { .. } => ContenderState::Retained,
                        State::Deleting => ContenderState::Deleting,
                    },
                    holders: contender
                        .ownership()
                        .map_or(Vec::new(), |ownership| ownership.holders().collect()),
                    lost: contender
                        .ownership()
                        .is_some_and(|ownership| ownership.is_lost()),
                    detached: contender.is_detached(),
                });
            keys.collect::<Vec<_>>()
        };
        self.machines()
            .contenders
            .iter()
            .flat_map(|(_, contender)| view(contender))
            .collect()
    }

    /// The sessions.
    #[must_use]
    pub fn sessions(&self) -> Vec<SessionView> {
        let view = |session: &Session| SessionView {
            lease: session.lease(),
            ttl_secs: session.ttl_secs(),
            state: match () {
                () if session.is_granting() => SessionState::Granting,
                () if session.is_lost() => SessionState::Lost,
                () if !session.accepts() => SessionState::Retired,
                () if session.is_open() => SessionState::Open,
                () => SessionState::Barred,
            },
            bodies: session.bodies(),
        };
        self.machines()
            .sessions
            .iter()
            .map(|(_, session)| view(session))
            .collect()
    }

    /// The calls that wait for a name, in order.
    #[must_use]
    pub fn waiters(&self, name: &Name) -> Vec<CallId> {
        let queue = self.machines().queues.get(name);
        queue.map_or(Vec::new(), |queue| {
            queue.waiters().map(|waiter| waiter.call).collect()
        })
    }

    /// How often a waiting call went to the end of its queues; `None`: it does not wait.
    #[must_use]
    pub fn requeued(&self, call: CallId) -> Option<u32> {
        let call = self.machines().calls.get(call)?;
        call.waiting().map(|_| call.requeued())
    }

    /// The victim and the keys of a cycle that this request is to cut, if it is to.
    #[must_use]
    pub fn abort_under_way(&self, request: RequestId) -> Option<(CallId, Vec<(Key, Revision)>)> {
        self.machines().abort(request)
    }

    /// The keys that requests under way delete.
    #[must_use]
    pub fn deletes_under_way(&self) -> Vec<Key> {
        self.machines().deletes()
    }

    /// How many timers are set, and how many exchanges are under way.
    #[must_use]
    pub fn pending(&self) -> (usize, usize) {
        let machines = self.machines();
        (machines.timers, machines.exchanges())
    }

    /// What is left although no call wants anything; `None`: nothing.
    #[must_use]
    pub fn leftovers(&self) -> Option<String> {
        let machines = self.machines();
        let names: Vec<&Name> = machines.queues.iter().map(|(name, _)| name).collect();
        let idle = machines.idle
            && machines.contenders.is_empty()
            && machines.calls.is_empty()
            && names.is_empty();
        (!idle).then(|| format!("{names:?} {:?} {:?}", machines.contenders, machines.calls))
    }
}
