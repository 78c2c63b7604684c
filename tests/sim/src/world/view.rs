//! Read-only view of a core. No other file of the simulator depends on how a core shows its state.

use std::collections::BTreeSet;

use etcd_locked_core::{Core, Key, LeaseId, RequestId, Revision, Seat, State};

/// The most timers and exchanges of a core without calls. They belong to the sessions that it keeps for the next call.
const TIMERS: usize = 20;
const EXCHANGES: usize = 4;

/// The state of a contender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ContenderState {
    /// Its key was not put, or its put has no response.
    Pending,
    /// It waits.
    Waiting,
    /// Calls hold it.
    Owned,
    /// It is to be deleted.
    Deleting,
}

impl ContenderState {
    fn of(state: &State) -> Self {
        match state {
            State::Pending | State::Putting | State::Unsettled => Self::Pending,
            State::Waiting => Self::Waiting,
            State::Held(_) => Self::Owned,
            State::Parting => Self::Deleting,
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
    /// The create revision, if the key is known to exist.
    pub(crate) created: Option<Revision>,
    /// The holders, the first granted first.
    pub(crate) holders: Vec<u64>,
    /// Its name goes on without it.
    pub(crate) detached: bool,
    /// The only call that it serves, which is a group or nested.
    pub(crate) call: Option<u64>,
    /// It is being deleted to break a cycle.
    pub(crate) aborts: bool,
}

impl Contender {
    /// Returns true while its key waits, or is about to.
    pub(crate) fn is_queued(&self) -> bool {
        let queued = matches!(self.state, ContenderState::Pending | ContenderState::Waiting);
        queued && !self.detached
    }
}

/// Returns all contenders of a core, grouped by name.
pub(crate) fn contenders(core: &Core) -> Vec<Contender> {
    let keys = core.contenders().map(|(name, of)| Contender {
        name: name.clone(),
        seat: of.seat,
        state: ContenderState::of(&of.state),
        key: of.key.clone(),
        created: of.created,
        holders: of.ownership().into_iter().flat_map(|it| it.holders()).map(|it| it.0).collect(),
        detached: of.detached,
        call: of.bound.map(|it| it.0),
        aborts: of.aborts,
    });
    let mut all: Vec<Contender> = keys.collect();
    all.sort_by(|one, other| one.name.cmp(&other.name));
    all
}

/// Returns the number of contenders of a core.
pub(crate) fn size(core: &Core) -> u64 {
    core.contenders().count() as u64
}

/// Returns the contenders of one name.
pub(crate) fn contenders_of(core: &Core, name: &str) -> Vec<Contender> {
    let mut all = contenders(core);
    all.retain(|contender| &*contender.name == name);
    all
}

/// Returns the wait queue of a name, with its head first.
pub(crate) fn waiters(core: &Core, name: &str) -> Vec<u64> {
    let waiters = core.waiters(name);
    waiters.into_iter().map(|it| it.0).collect()
}

/// Returns the leases under which a core may create keys.
pub(crate) fn leases(core: &Core) -> BTreeSet<LeaseId> {
    let sessions = core.sessions().filter(|it| it.accepts() && !it.is_lost());
    sessions.filter_map(|it| it.lease()).collect()
}

/// Fails with what a core without calls still keeps, if anything.
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

/// Returns the call that this abort refuses, and the keys of the cycle: those that wait, and those for which they wait.
pub(crate) fn abort(core: &Core, request: RequestId) -> Option<(u64, Vec<Key>)> {
    let (call, keys) = core.abort_under_way(request)?;
    Some((call.0, keys.into_iter().map(|(key, _)| key).collect()))
}

/// Returns the steps of all cores on this thread.
pub(crate) fn steps_taken() -> u64 {
    etcd_locked_core::taken()
}
