//! Tally: the number of injected faults of each kind, and the results of calls.

use std::collections::BTreeMap;
use std::time::Duration;

/// A fault that the simulator has injected, or the result of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Happened {
    /// Calls that were granted; of these, by a hand-over; with others, as readers or by permits.
    Served,
    HandedOver,
    Together,
    /// A call was refused because of a cycle.
    Deadlock,
    /// A transaction of a search for cycles.
    Searched,
    Delayed,
    RequestLost,
    AnswerLost,
    LateArrival,
    Overtaken,
    Twice,
    NotReached,
    StaleRead,
    LaggingKeepAlive,
    SilentWatch,
    EventAgain,
    Paused,
    CutOff,
    Deaf,
    Crashed,
    Restarted,
    ShutDown,
    LeaseExpired,
    LeaderChange,
    Compacted,
    KeyDeleted,
    KeyOverwritten,
    LeaseRevoked,
    Stranger,
    DeeperKey,
    Wiped,
    Full,
    Restored,
    Denied,
    SessionEnded,
    Kicked,
}

/// The counts, and the costs of inputs.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tally {
    pub(crate) happened: BTreeMap<Happened, u64>,
    /// The most steps and the longest time of an input of each kind.
    pub(crate) costs: BTreeMap<&'static str, (u64, Duration)>,
}

impl Tally {
    pub(crate) fn count(&mut self, what: Happened) {
        *self.happened.entry(what).or_default() += 1;
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (what, many) in &other.happened {
            *self.happened.entry(*what).or_default() += many;
        }
        for (kind, (steps, took)) in &other.costs {
            self.cost(kind, *steps, *took);
        }
    }

    /// Notes the cost of an input of this kind.
    pub(crate) fn cost(&mut self, kind: &'static str, steps: u64, took: Duration) {
        let most = self.costs.entry(kind).or_default();
        *most = (most.0.max(steps), most.1.max(took));
    }
}
