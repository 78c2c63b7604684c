//! Read-only view of a core: the only file of the simulator that knows how a core shows its state.

use etcd_locked_core::{CallId, Core, Key, LeaseId, Name, RequestId, Revision, Seat};

/// Timers and exchanges that a core without calls may have: those of the sessions it keeps for the next call.
const TIMERS: usize = 20;
const EXCHANGES: usize = 4;

/// Where a contender is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ContenderState {
    /// Its key was not put, or its put has no answer.
    Pending,
    /// It waits.
    Waiting,
    /// Calls hold it.
    Owned,
    /// Its call is over, and its name stays locked.
    Retained,
    /// It is to be deleted.
    Deleting,
}

impl ContenderState {
    fn of(contender: &etcd_locked_core::Contender) -> Self {
        let there = contender.created().is_some();
        match (contender.is_in_line(), contender.ownership()) {
            (true, _) if there => Self::Waiting,
            (true, _) => Self::Pending,
            (false, Some(_)) => Self::Owned,
            (false, None) if there => Self::Retained,
            (false, None) => Self::Deleting,
        }
    }
}

/// A key of a process below a name, as its core knows it.
#[derive(Debug, Clone)]
pub(crate) struct Contender {
    /// Prefix and rendered name, without a trailing `/`.
    pub(crate) name: Key,
    pub(crate) seat: Seat,
    pub(crate) state: ContenderState,
    /// `None` until it is sent.
    pub(crate) key: Option<Key>,
    /// Where the key is known to exist.
    pub(crate) created: Option<Revision>,
    /// The calls that have it, the first of them first.
    pub(crate) holders: Vec<u64>,
    /// Its name goes on without it.
    pub(crate) detached: bool,
}

impl Contender {
    /// True while its key waits, or is about to.
    pub(crate) fn is_queued(&self) -> bool {
        let queued = matches!(self.state, ContenderState::Pending | ContenderState::Waiting);
        queued && !self.detached
    }
}

/// A request under way that takes a call out of a cycle.
#[derive(Debug)]
pub(crate) struct Abort {
    pub(crate) call: u64,
    /// The keys of the cycle: those that wait, and those that they wait for.
    pub(crate) keys: Vec<Key>,
}

/// All contenders of a core; those of a name follow each other.
pub(crate) fn contenders(core: &Core) -> Vec<Contender> {
    let keys = core.contenders().flat_map(|of| {
        let holders = of.ownership().into_iter().flat_map(|it| it.holders());
        let holders: Vec<u64> = holders.map(CallId::get).collect();
        of.seats().map(move |(name, seat)| Contender {
            name: name.as_str().into(),
            seat,
            state: ContenderState::of(of),
            key: of.parts().iter().find(|part| part.name == *name).map(|part| part.key.clone()),
            created: of.created(),
            holders: holders.clone(),
            detached: of.is_detached(),
        })
    });
    let mut all: Vec<Contender> = keys.collect();
    all.sort_by(|one, other| one.name.cmp(&other.name));
    all
}

/// The contenders of one name.
pub(crate) fn contenders_of(core: &Core, name: &str) -> Vec<Contender> {
    let mut all = contenders(core);
    all.retain(|contender| &*contender.name == name);
    all
}

/// The wait queue of a name: its head first.
pub(crate) fn waiters(core: &Core, name: &str) -> Vec<u64> {
    let waiters = core.waiters(&Name::from(name));
    waiters.into_iter().map(CallId::get).collect()
}

/// The leases under which a core may create keys.
pub(crate) fn leases(core: &Core) -> Vec<LeaseId> {
    let sessions = core.sessions().filter(|it| it.accepts() && !it.is_lost());
    sessions.filter_map(|it| it.lease()).collect()
}

/// Answers what a core holds on to that has no calls any more, if anything.
pub(crate) fn is_idle(core: &Core) -> Result<(), String> {
    let (timers, exchanges) = core.pending();
    match core.leftovers() {
        Some(left) => Err(left),
        None if timers >= TIMERS || exchanges >= EXCHANGES => {
            Err(format!("{timers} timers, {exchanges} exchanges"))
        }
        None => Ok(()),
    }
}

/// True where a call has gone to the end of its wait queues, or has been refused since.
pub(crate) fn requeued(core: &Core, call: u64) -> bool {
    core.requeued(call.into()).is_none_or(|times| times > 0)
}

/// What a request under way aborts, if it does.
pub(crate) fn abort(core: &Core, request: RequestId) -> Option<Abort> {
    let (call, keys) = core.abort_under_way(request)?;
    Some(Abort { call: call.get(), keys: keys.into_iter().map(|(key, _)| key).collect() })
}

/// Steps that all cores of this thread have taken.
#[cfg(test)]
pub(crate) fn steps_taken() -> u64 {
    etcd_locked_core::taken()
}
