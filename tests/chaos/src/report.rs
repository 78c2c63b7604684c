//! Report of a run: figures that are kept.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::checker::verdicts::{Measured, Verdicts};
use crate::checker::{VERSION, calls, faults};
use crate::history::{Event, Run, What};

#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) run: Run,
    /// Version of the rules by which it was judged.
    pub(crate) checker: u32,
    /// Why it ended early; empty if it did not.
    pub(crate) error: String,
    pub(crate) seconds: f64,
    pub(crate) calls: usize,
    /// Calls whose body began with the lock held.
    pub(crate) served: usize,
    pub(crate) faults: BTreeMap<String, Happened>,
    /// Broken promises, by their names.
    pub(crate) violations: BTreeMap<String, usize>,
    pub(crate) measured: Measured,
}

#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub(crate) struct Happened {
    pub(crate) times: u64,
    /// Times until every hot name was served, in nanoseconds. A fault that overlaps another, or is soon followed by one, has none.
    pub(crate) recoveries: Vec<u64>,
}

impl Report {
    pub(crate) fn of(events: &[Event], verdicts: &Verdicts) -> Self {
        let calls = calls::of(events);
        let mut report = Self {
            checker: VERSION,
            calls: calls.len(),
            served: calls.values().filter(|call| call.was_held()).count(),
            measured: verdicts.measured.clone(),
            ..Self::default()
        };
        for fault in faults::of(events) {
            report.faults.entry(fault.kind.to_string()).or_default().times += 1;
        }
        for (kind, took) in &verdicts.recoveries {
            report.faults.entry(kind.to_string()).or_default().recoveries.push(*took);
        }
        for (breach, many) in verdicts.counts() {
            report.violations.insert(breach.to_string(), many);
        }
        for event in events {
            match &event.what {
                What::Run(run) => report.run = run.clone(),
                What::Failed { error } => report.error = error.clone(),
                _ => {}
            }
        }
        if let (Some(first), Some(last)) = (events.first(), events.last()) {
            report.seconds = (last.at - first.at) as f64 / 1e9;
        }
        report
    }

    pub(crate) fn faults(&self) -> u64 {
        self.faults.values().map(|fault| fault.times).sum()
    }

    /// Adds another run to this one.
    pub(crate) fn add(&mut self, other: &Self) {
        self.seconds += other.seconds;
        self.calls += other.calls;
        self.served += other.served;
        for (kind, happened) in &other.faults {
            let sum = self.faults.entry(kind.clone()).or_default();
            sum.times += happened.times;
            sum.recoveries.extend(&happened.recoveries);
        }
        for (breach, many) in &other.violations {
            *self.violations.entry(breach.clone()).or_default() += many;
        }
        let (sum, more) = (&mut self.measured, &other.measured);
        for (kind, lasted) in &more.removed_by {
            sum.removed_by.entry(kind.clone()).or_default().extend(lasted);
        }
        sum.late += more.late;
        sum.revoked += more.revoked;
        sum.refused_writes += more.refused_writes;
        sum.ordered += more.ordered;
        sum.stalls.extend(&more.stalls);
    }

    /// Writes the table of faults, with the times until every hot name was served again.
    pub(crate) fn faults_text(&self) -> String {
        let mut text = String::from(
            "| fault | times | measured | all names served again: median | longest |\n|---|---:|---:|---:|---:|\n",
        );
        for (kind, happened) in &self.faults {
            let mut took = happened.recoveries.clone();
            took.sort_unstable();
            let text_of = |ns: Option<&u64>| {
                ns.map_or("–".to_owned(), |ns| format!("{:.2} s", *ns as f64 / 1e9))
            };
            let (times, measured) = (happened.times, took.len());
            let half = text_of(took.get(took.len().saturating_sub(1) / 2));
            let most = text_of(took.last());
            let _ = writeln!(text, "| {kind} | {times} | {measured} | {half} | {most} |");
        }
        text
    }

    pub(crate) fn measured_text(&self) -> String {
        let measured = &self.measured;
        let removed = measured.removed_by.iter().map(|(kind, lasted)| {
            format!("; by `{kind}` {}, {:.1} ms", lasted.len(), longest(lasted) * 1e3)
        });
        format!(
            "- {} times etcd itself had removed a holder's key (a lease that it revoked, an operator, a wipe), and the next body began before \
             the holder's process knew{}\n\
             - {} bodies polled once after their loss, as they block their thread, or as a stop or the loss came between the check and the poll\n\
             - {} locks of ten seconds lost, as etcd revoked leases that were renewed\n\
             - {} late writes refused by the fenced register\n\
             - {} pairs of calls compared for their order in calm\n\
             - {} times the machine did not run a process for over 200 ms, for {:.1} s at most\n",
            self.removed().count(),
            removed.collect::<String>(),
            measured.late,
            measured.revoked,
            measured.refused_writes,
            measured.ordered,
            measured.stalls.len(),
            longest(&measured.stalls),
        )
    }

    /// Returns the length of each overlap with a holder without a key, in nanoseconds.
    pub(crate) fn removed(&self) -> impl Iterator<Item = &u64> {
        self.measured.removed_by.values().flatten()
    }
}

/// Returns the longest of these times, in seconds.
pub(crate) fn longest<'a>(times: impl IntoIterator<Item = &'a u64>) -> f64 {
    times.into_iter().max().map_or(0.0, |most| *most as f64 / 1e9)
}
