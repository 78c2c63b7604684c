//! Verdicts over a history: the promises that it breaks, and what was measured on the way.

use std::collections::BTreeMap;

use clap::ValueEnum;

use super::calls::CallId;
use crate::options::word;
use crate::schedule::Kind;

/// A promise that a history can break.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Breach {
    /// Two bodies that exclude each other were polled while both their guards said "held".
    Overlap,
    /// More permits were held than the largest number asked for.
    #[value(name = "too many permits")]
    Permits,
    /// The body of a call began once more.
    #[value(name = "body begun twice")]
    Twice,
    /// A body was polled again after its guard had said "lost".
    #[value(name = "polled after its loss")]
    RanOn,
    /// A later holder has a smaller token, or the same.
    #[value(name = "token not rising")]
    Token,
    /// The register refused a holder whose guard said "held".
    #[value(name = "holder refused by the register")]
    Register,
    /// A call was given fewer names than it asked for.
    #[value(name = "group partly held")]
    Group,
    /// A later call was served before an earlier one, with no fault about.
    #[value(name = "overtaken in calm")]
    Order,
    /// A call was not answered within its bound and three seconds.
    #[value(name = "beyond its bound")]
    Bound,
    /// A name was locked again before its retention was over.
    #[value(name = "retention cut short")]
    Retention,
    /// A guard said "held" longer than a lock can be without an answer of etcd.
    #[value(name = "held for too long")]
    Validity,
    /// A name was not served though no fault was there.
    #[value(name = "not served in calm")]
    Liveness,
    /// A call that waits for ten seconds or more was not served, with no fault about.
    #[value(name = "busy in calm")]
    Starved,
    /// A call was told that a name is taken which was free.
    #[value(name = "busy though free")]
    Free,
    /// A call was told of a deadlock, and no nested calls allow a cycle.
    #[value(name = "deadlock without a cycle")]
    Deadlock,
    /// Keys or leases were left in etcd after everything had ended.
    #[value(name = "keys left")]
    Left,
    /// A process wrote more than ten lines about one fault.
    #[value(name = "log storm")]
    Logs,
    /// A call failed in a way that no fault explains.
    #[value(name = "unexplained error")]
    Error,
    /// A worker has ended by itself, or not when it was asked to.
    #[value(name = "worker died")]
    Died,
}

impl Breach {
    /// Tells whether a body ran that should not have.
    pub(crate) fn is_unsafe(self) -> bool {
        matches!(self, Self::Overlap | Self::Permits | Self::RanOn)
    }

    /// Tells whether it breaks mutual exclusion, or what is built on it: tokens, groups, retentions.
    pub(crate) fn is_safety(self) -> bool {
        let built = [
            Self::Twice,
            Self::Token,
            Self::Register,
            Self::Group,
            Self::Retention,
            Self::Validity,
        ];
        self.is_unsafe() || built.contains(&self)
    }
}

/// One broken promise.
#[derive(Debug, Clone)]
pub(crate) struct Violation {
    pub(crate) breach: Breach,
    pub(crate) at: u64,
    pub(crate) names: Vec<String>,
    pub(crate) calls: Vec<CallId>,
    pub(crate) text: String,
}

/// What a history comes to.
#[derive(Debug, Default)]
pub(crate) struct Verdicts {
    pub(crate) violations: Vec<Violation>,
    /// Overlaps with a holder whose key had been removed at etcd, before its engine noticed: how long each lasted, by kind of fault.
    pub(crate) removed: BTreeMap<String, Vec<u64>>,
    /// Polls after the stop time, while the next holder was there: how long after its begin.
    pub(crate) after_stop: Vec<u64>,
    /// Bodies that were polled once after their loss, as they blocked their thread.
    pub(crate) late_blocking: u64,
    /// As their process stood still in that poll.
    pub(crate) late_stopped: u64,
    /// As the loss came between the gate and the poll.
    pub(crate) late_between: u64,
    /// Losses of locks whose leases etcd had revoked though they were renewed, at a TTL of ten seconds.
    pub(crate) revoked: u64,
    /// Writes of lost holders that the register has refused.
    pub(crate) refused_writes: u64,
    /// How many pairs of calls were compared for their order.
    pub(crate) ordered: u64,
    /// How many of them were calls of two processes.
    pub(crate) ordered_apart: u64,
    /// For how long order was judged, as there was no fault.
    pub(crate) order_judged: u64,
    /// The share of the time of all processes in which errors of long leases were.
    pub(crate) errors_judged: f64,
    pub(crate) recoveries: Vec<Recovery>,
    /// The most lines a process wrote about one fault.
    pub(crate) most_lines: u64,
    pub(crate) lines: u64,
    /// How long the machine did not run a process that was due.
    pub(crate) stalls: Vec<u64>,
}

/// How long it took until every name was served after a fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Recovery {
    pub(crate) kind: Kind,
    pub(crate) took: u64,
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
        self.violations.push(Violation {
            breach,
            at,
            names: names.to_vec(),
            calls: calls.to_vec(),
            text,
        });
    }

    pub(super) fn removed(&mut self, kind: Kind, lasted: u64) {
        self.removed.entry(word(kind)).or_default().push(lasted);
    }

    /// How often each promise was broken.
    pub(crate) fn counts(&self) -> BTreeMap<Breach, usize> {
        let mut counts = BTreeMap::new();
        for violation in &self.violations {
            *counts.entry(violation.breach).or_default() += 1;
        }
        counts
    }
}
