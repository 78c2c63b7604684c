//! Read-only view of a core: the only file of the simulator that knows how a core shows its state.

use std::collections::BTreeSet;

use etcd_locked_core::{Core, Key, LeaseId, RequestId, Revision, Seat, State};

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
    /// Where the key is known to exist.
    pub(crate) created: Option<Revision>,
    /// The calls that have it, the first of them first.
    pub(crate) holders: Vec<u64>,
    /// Its name goes on without it.
    pub(crate) detached: bool,
    /// The call that it is for alone: a group, or a nested one.
    pub(crate) call: Option<u64>,
    /// It is being deleted to cut a cycle.
    pub(crate) aborts: bool,
}

impl Contender {
    /// True while its key waits, or is about to.
    pub(crate) fn is_queued(&self) -> bool {
        let queued = matches!(self.state, ContenderState::Pending | ContenderState::Waiting);
        queued && !self.detached
    }
}

/// All contenders of a core; those of a name follow each other.
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

/// How many contenders a core has.
pub(crate) fn size(core: &Core) -> u64 {
    core.contenders().count() as u64
}

/// The contenders of one name.
pub(crate) fn contenders_of(core: &Core, name: &str) -> Vec<Contender> {
    let mut all = contenders(core);
    all.retain(|contender| &*contender.name == name);
    all
}

/// The wait queue of a name: its head first.
pub(crate) fn waiters(core: &Core, name: &str) -> Vec<u64> {
    let waiters = core.waiters(name);
    waiters.into_iter().map(|it| it.0).collect()
}

/// The leases under which a core may create keys.
pub(crate) fn leases(core: &Core) -> BTreeSet<LeaseId> {
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

/// The call that a request under way takes out of a cycle, and the keys of it: those that wait, and those that they wait for.
pub(crate) fn abort(core: &Core, request: RequestId) -> Option<(u64, Vec<Key>)> {
    let (call, keys) = core.abort_under_way(request)?;
    Some((call.0, keys.into_iter().map(|(key, _)| key).collect()))
}

/// Steps that all cores of this thread have taken.
pub(crate) fn steps_taken() -> u64 {
    etcd_locked_core::taken()
}
