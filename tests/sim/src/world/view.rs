//! Read-only view of a core: the only file of the simulator that knows how a core keeps its state.
//!
//! Another core supplies this file, and nothing else. It may leave out no field: a check that needs one fails without it.

use std::fmt::Debug;

use crate::clock::Moment;
use crate::core::lease::State;
use crate::core::mode::Seat;
use crate::core::place::name_of;
use crate::core::queue::{Queue, Slot};
use crate::core::request::{Key, LeaseId, Revision};
#[cfg(test)]
use crate::core::steps;
use crate::core::{CallId, Core, Exchange, RequestId};

/// Timers and exchanges that a core without calls may have: those of the sessions it keeps for the next call.
const TIMERS: usize = 20;
const EXCHANGES: usize = 4;

/// A key of a process below a name, as its core knows it.
#[derive(Debug, Clone)]
pub(crate) struct Contender {
    /// Prefix and rendered name, without a trailing `/`.
    pub(crate) name: Key,
    pub(crate) seat: Seat,
    /// The TTL of the only sessions it can be under; `None`: any.
    pub(crate) ttl_secs: Option<i64>,
    pub(crate) state: ContenderState,
    /// Under the session it has, or is to have, if etcd has granted that.
    pub(crate) key: Option<Key>,
    /// Where the key is known to exist.
    pub(crate) created: Option<Revision>,
    /// The calls that have it, the first of them first.
    pub(crate) holders: Vec<CallId>,
    /// Its holders have lost it.
    #[allow(dead_code)] // for a schedule in words
    pub(crate) lost: bool,
    /// Readers may join its holders, unless another process waits behind it.
    pub(crate) joinable: bool,
    /// The core has seen that another process waits behind it.
    pub(crate) contended: bool,
}

/// How far a contender has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ContenderState {
    Absent,
    Pending,
    Creating,
    Ambiguous,
    Waiting,
    Owned,
    Retained,
    Deleting,
}

impl Contender {
    /// True while its key waits, or is about to.
    pub(crate) fn is_queued(&self) -> bool {
        matches!(
            self.state,
            ContenderState::Pending
                | ContenderState::Creating
                | ContenderState::Ambiguous
                | ContenderState::Waiting
        )
    }

    fn of(core: &Core, place: &Key, queue: &Queue) -> Self {
        let name = name_of(place);
        let lease = queue.slot.lease().and_then(|lease| core.leases.get(&lease));
        let ttl = place.rsplit_once("!r").map(|(_, ttl)| ttl.parse());
        let joined = core.joined(queue);
        Self {
            name: match name.len() == place.len() {
                true => place.clone(),
                false => name.into(),
            },
            seat: queue.seat,
            ttl_secs: match queue.seat {
                Seat::Shared => ttl.and_then(Result::ok),
                _ => None,
            },
            state: match queue.slot {
                Slot::Free => ContenderState::Absent,
                Slot::Wanting { .. } => ContenderState::Pending,
                Slot::Putting { .. } => ContenderState::Creating,
                Slot::Doubt { .. } => ContenderState::Ambiguous,
                Slot::Queued(_) => ContenderState::Waiting,
                Slot::Held { .. } => ContenderState::Owned,
                Slot::Retained => ContenderState::Retained,
                Slot::Deleting { .. } => ContenderState::Deleting,
            },
            key: lease.map(|l| queue.own_key(l.id)),
            created: queue.slot.created(),
            holders: queue.slot.holders().collect(),
            lost: matches!(queue.slot, Slot::Held { lost: true, .. }),
            joinable: joined.is_some(),
            contended: joined.is_some_and(|(_, run)| run.is_contended()),
        }
    }
}

/// A lease that a core counts on, or has counted on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Session {
    /// `None` until etcd has granted it.
    pub(crate) lease: Option<LeaseId>,
    pub(crate) ttl_secs: i64,
    pub(crate) state: SessionState,
    /// When its holders stop; `None` once it is lost.
    #[allow(dead_code)] // for a schedule in words
    pub(crate) stop: Option<Moment>,
}

/// How far a session has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SessionState {
    Granting,
    /// A barrier is under way: the core creates no keys meanwhile.
    Barrier,
    Open,
    Retired,
    Lost,
}

impl Session {
    /// True while keys may be created under it.
    pub(crate) fn is_usable(&self) -> bool {
        matches!(self.state, SessionState::Open | SessionState::Barrier)
    }
}

/// A request under way that takes a call out of a cycle.
#[derive(Debug)]
pub(crate) struct Abort {
    pub(crate) call: CallId,
    /// The keys of the cycle: those that wait, and those that they wait for.
    pub(crate) keys: Vec<Key>,
    /// The key of its own task, where the cycle closes.
    pub(crate) own: Option<(Key, Revision)>,
}

/// All contenders of a core; those of a name follow each other.
pub(crate) fn contenders(core: &Core) -> impl Iterator<Item = Contender> {
    let queues = core.queues.iter();
    queues.map(|(place, queue)| Contender::of(core, place, queue))
}

/// The contenders of one name.
pub(crate) fn contenders_of<'a>(
    core: &'a Core,
    name: &'a str,
) -> impl Iterator<Item = Contender> + 'a {
    let queues = core.queues.iter();
    queues
        .filter(move |(place, _)| name_of(place) == name)
        .map(|(place, queue)| Contender::of(core, place, queue))
}

/// The wait queue of a name: its head first.
pub(crate) fn waiters(core: &Core, name: &str) -> Vec<CallId> {
    let queue = core.queues.get(name);
    queue.map_or_else(Vec::new, |queue| queue.calls.iter().copied().collect())
}

pub(crate) fn sessions(core: &Core) -> impl Iterator<Item = Session> {
    core.leases.values().map(|l| Session {
        lease: (l.state != State::Granting).then_some(l.id),
        ttl_secs: l.ttl_secs,
        state: match l.state {
            State::Granting => SessionState::Granting,
            State::Sealing => SessionState::Barrier,
            State::Open => SessionState::Open,
            State::Retired => SessionState::Retired,
            State::Lost => SessionState::Lost,
        },
        stop: l.deadline.stop(),
    })
}

/// Answers what a core holds on to that has no calls any more, if anything.
pub(crate) fn is_idle(core: &Core) -> Result<(), String> {
    if !core.queues.is_empty() {
        return Err(format!("{:?}", core.queues));
    }
    if !(core.calls.is_empty() && core.deletions.is_empty() && core.watches.is_empty()) {
        return Err(format!("{core:?}"));
    }
    if core.timers.len() >= TIMERS || core.under_way.len() >= EXCHANGES {
        return Err(format!("{:?} {:?}", core.timers, core.under_way));
    }
    Ok(())
}

/// True where a call has gone to the end of its wait queues, or has been refused since.
pub(crate) fn requeued(core: &Core, call: CallId) -> bool {
    core.calls.get(&call).is_none_or(|call| call.requeued > 0)
}

/// What a request under way aborts, if it does.
pub(crate) fn abort(core: &Core, request: RequestId) -> Option<Abort> {
    let under_way = core.under_way.get(&request)?;
    let Exchange::Abort(abort) = &under_way.exchange else {
        return None;
    };
    let links = &abort.circle.links;
    let keys = links
        .iter()
        .flat_map(|link| [link.waiting.0.clone(), link.before.key.clone()]);
    let own = links.last().map(|link| &link.before);
    Some(Abort {
        call: abort.call,
        keys: keys.collect(),
        own: own.map(|own| (own.key.clone(), own.created)),
    })
}

/// True while the core has sent a delete of this key and has no answer.
pub(crate) fn is_deleting(core: &Core, key: &str) -> bool {
    core.under_way
        .values()
        .any(|under_way| match &under_way.exchange {
            Exchange::Delete(deletions) => deletions.iter().any(|deletion| &*deletion.key == key),
            _ => false,
        })
}

/// Steps that the cores of this thread have taken so far: what work costs, apart from time.
#[cfg(test)]
pub(crate) fn steps_taken() -> u64 {
    steps::taken()
}

/// The whole state, to tell states apart.
pub(crate) fn state(core: &Core) -> &impl Debug {
    core
}
