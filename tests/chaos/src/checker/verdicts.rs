//! Verdicts over a history: the promises that it breaks, and what was measured on the way.

use std::collections::BTreeMap;
use std::fmt;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::calls::{Call, CallId};
use crate::options::word;
use crate::schedule::Kind;

/// A promise that a history can break. Its name in reports has the words of the variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Breach {
    /// Two bodies that exclude each other were polled while both their guards said "held".
    Overlap,
    TooManyPermits,
    BodyBegunTwice,
    PolledAfterItsLoss,
    /// A later holder has a smaller token, or the same.
    TokenNotRising,
    HolderRefusedByTheRegister,
    GroupPartlyHeld,
    OvertakenInCalm,
    /// A call was not answered within its bound and three seconds.
    BeyondItsBound,
    RetentionCutShort,
    /// A guard said "held" longer than a lock can be without an answer of etcd.
    HeldForTooLong,
    /// A hot name was not served for long after a fault, though no other was there.
    NotServedInCalm,
    /// A call that waits for ten seconds or more was not served, with no fault about.
    BusyInCalm,
    BusyThoughFree,
    DeadlockWithoutACycle,
    /// Keys, locks or leases were left in etcd after everything had ended.
    KeysLeft,
    LogStorm,
    UnexplainedError,
    WorkerDied,
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&word(*self).replace('-', " "))
    }
}

impl Breach {
    /// Tells whether a body ran that should not have.
    pub(crate) fn is_unsafe(self) -> bool {
        matches!(self, Self::Overlap | Self::TooManyPermits | Self::PolledAfterItsLoss)
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Violation {
    pub(crate) breach: Breach,
    pub(crate) at: u64,
    pub(crate) names: Vec<String>,
    pub(crate) calls: Vec<CallId>,
    pub(crate) text: String,
}

impl Violation {
    /// Writes it as one line. Its time is in seconds since the run began; the history has all of its calls.
    pub(crate) fn line(&self, start: u64) -> String {
        let seconds = self.at.saturating_sub(start) as f64 / 1e9;
        let calls: Vec<String> = self.calls.iter().map(CallId::to_string).collect();
        let (names, calls) = (self.names.join(", "), calls.join(", "));
        format!("{seconds:9.3} {}: {}; {names} {calls}", self.breach, self.text)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Verdicts {
    pub(crate) violations: Vec<Violation>,
    /// How long it took until every hot name was served after a fault of this kind, in nanoseconds.
    pub(crate) recoveries: Vec<(Kind, u64)>,
    pub(crate) measured: Measured,
}

/// What is no violation, and worth knowing. Times are in nanoseconds.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub(crate) struct Measured {
    /// How long bodies overlapped with a holder whose key etcd no longer had, by the kind of fault that had taken the key.
    pub(crate) removed_by: BTreeMap<String, Vec<u64>>,
    /// Bodies polled once after their loss, as they block their thread, or as a stop or the loss came between the gate and the poll.
    pub(crate) late: u64,
    /// Locks with a TTL of ten seconds that were lost as etcd had revoked leases that were renewed.
    pub(crate) revoked: u64,
    /// Writes of lost holders that the register has refused.
    pub(crate) refused_writes: u64,
    /// Pairs of calls that were compared for their order.
    pub(crate) ordered: u64,
    /// How long the machine did not run a process that was due, each time.
    pub(crate) stalls: Vec<u64>,
}

impl Verdicts {
    pub(super) fn breach(
        &mut self,
        breach: Breach,
        at: u64,
        names: &[String],
        calls: &[CallId],
        text: String,
    ) {
        let (names, calls) = (names.to_vec(), calls.to_vec());
        self.violations.push(Violation { breach, at, names, calls, text });
    }

    pub(super) fn of_call(&mut self, breach: Breach, call: &Call, at: u64, text: String) {
        self.breach(breach, at, &call.asked.names, &[call.id], text);
    }

    /// Notes a promise about a name that several calls broke.
    pub(super) fn of_name(
        &mut self,
        breach: Breach,
        name: &str,
        calls: &[&Call],
        at: u64,
        text: String,
    ) {
        let calls: Vec<CallId> = calls.iter().map(|call| call.id).collect();
        self.breach(breach, at, &[name.to_owned()], &calls, text);
    }

    pub(super) fn removed(&mut self, kind: Kind, lasted: u64) {
        self.measured.removed_by.entry(kind.to_string()).or_default().push(lasted);
    }

    pub(crate) fn counts(&self) -> BTreeMap<Breach, usize> {
        let mut counts = BTreeMap::new();
        for violation in &self.violations {
            *counts.entry(violation.breach).or_default() += 1;
        }
        counts
    }
}
