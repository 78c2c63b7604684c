//! Verdicts about a history: the promises that it breaks, and the measurements.

use std::collections::BTreeMap;
use std::fmt;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::calls::{Call, CallId};
use crate::options::word;
use crate::schedule::Kind;

/// Promise that a history can break. Reports name it with the words of the variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Breach {
    /// Two bodies that exclude each other were polled while both their guards said "held".
    Overlap,
    TooManyPermits,
    BodyBegunTwice,
    PolledAfterItsLoss,
    /// A later holder has a smaller token, or the same one.
    TokenNotRising,
    HolderRefusedByTheRegister,
    GroupPartlyHeld,
    OvertakenInCalm,
    /// A call was not answered within its bound and three seconds.
    BeyondItsBound,
    RetentionCutShort,
    /// A guard said "held" for longer than a lock lasts without a response of etcd.
    HeldForTooLong,
    /// A hot name was not served for long after a fault, although there was no other fault.
    NotServedInCalm,
    /// A call that waits for ten seconds or more was not served, although there was no fault.
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
    /// Returns true if a body ran that should not have.
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
    /// Writes it as one line, with its time in seconds since the run began. The history has all of its calls.
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
    /// Times until every hot name was served after a fault of each kind, in nanoseconds.
    pub(crate) recoveries: Vec<(Kind, u64)>,
    pub(crate) measured: Measured,
}

/// Measurements that are not violations. Times are in nanoseconds.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub(crate) struct Measured {
    /// Lengths of overlaps with a holder whose key was gone from etcd, by the kind of fault that had taken the key.
    pub(crate) removed_by: BTreeMap<String, Vec<u64>>,
    /// Bodies polled once after their loss: they block their thread, or a stop or the loss came between the gate and the poll.
    pub(crate) late: u64,
    /// Locks with a TTL of ten seconds that were lost because etcd had revoked renewed leases.
    pub(crate) revoked: u64,
    /// Writes of lost holders that the register refused.
    pub(crate) refused_writes: u64,
    /// Pairs of calls whose order was compared.
    pub(crate) ordered: u64,
    /// Times for which the machine did not run a process that was due.
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

    /// Records a promise about a name that several calls broke.
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
