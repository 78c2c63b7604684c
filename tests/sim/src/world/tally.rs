//! Tally: how often each fault has happened.

/// A fault the simulator can inject.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
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

/// Each fault, and its row of the report.
const FAULTS: [(Fault, &str); 30] = [
    (Fault::Delayed, "message delayed"),
    (Fault::RequestLost, "request lost"),
    (Fault::AnswerLost, "answer lost, request carried out"),
    (Fault::LateArrival, "request carried out after it was given up"),
    (Fault::Overtaken, "request overtaken by a later one"),
    (Fault::Twice, "request carried out twice"),
    (Fault::NotReached, "etcd not reached, or without a leader"),
    (Fault::StaleRead, "read answered by a member that lags"),
    (Fault::LaggingKeepAlive, "keepalive answered with a revision that lags"),
    (Fault::SilentWatch, "watch silent for long"),
    (Fault::EventAgain, "event delivered twice, or never"),
    (Fault::Paused, "process paused"),
    (Fault::CutOff, "process cut off from etcd"),
    (Fault::Deaf, "process gets no answers from etcd"),
    (Fault::Crashed, "process crashed"),
    (Fault::Restarted, "process started anew"),
    (Fault::ShutDown, "process shut down"),
    (Fault::LeaseExpired, "lease expired"),
    (Fault::LeaderChange, "leader changed, leases extended"),
    (Fault::Compacted, "history compacted"),
    (Fault::KeyDeleted, "key deleted by an operator"),
    (Fault::KeyOverwritten, "key overwritten by an operator"),
    (Fault::LeaseRevoked, "lease revoked by an operator"),
    (Fault::Stranger, "contender of another kind"),
    (Fault::DeeperKey, "junk key below a lock"),
    (Fault::Wiped, "etcd wiped"),
    (Fault::Full, "write applied and refused, at the quota"),
    (Fault::Restored, "etcd restored from a snapshot"),
    (Fault::Denied, "writes denied for a while"),
    (Fault::SessionEnded, "session ended in a shutdown"),
];

/// How often each fault has happened.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tally([u64; FAULTS.len()]);

impl Tally {
    pub(crate) fn count(&mut self, fault: Fault) {
        self.0[fault as usize] += 1;
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine += theirs;
        }
    }

    pub(crate) fn sum(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Each fault in words, and how often.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (&'static str, u64)> {
        FAULTS.iter().map(|(fault, words)| (*words, self.0[*fault as usize]))
    }
}
