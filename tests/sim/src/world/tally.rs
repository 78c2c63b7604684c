//! Tally: how often each fault has happened, and what has become of calls.

use std::collections::BTreeMap;

/// A fault that the simulator has injected, or what has become of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Happened {
    /// A call was served; of these, without a word to etcd; shared or by permit.
    Served,
    HandedOver,
    Together,
    /// A call was refused because of a cycle.
    Deadlock,
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
}

/// How often each has happened.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tally(pub(crate) BTreeMap<Happened, u64>);

impl Tally {
    pub(crate) fn count(&mut self, what: Happened) {
        *self.0.entry(what).or_default() += 1;
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (what, many) in &other.0 {
            *self.0.entry(*what).or_default() += many;
        }
    }
}
