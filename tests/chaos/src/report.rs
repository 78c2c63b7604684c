//! Report: what a run came to, in figures that are kept.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::checker::verdicts::{Breach, Verdicts};
use crate::checker::{VERSION, calls, faults};
use crate::history::{Event, Outcome, Run, What};
use crate::options::word;

/// What a run came to.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) run: Run,
    /// The version of the rules by which it was judged.
    pub(crate) checker: u32,
    /// Why it ended before its time; empty if it did not.
    pub(crate) error: String,
    pub(crate) seconds: f64,
    /// Calls by kind.
    pub(crate) kinds: BTreeMap<String, Tally>,
    /// Faults by kind.
    pub(crate) faults: BTreeMap<String, Happened>,
    /// Broken promises, by their names.
    pub(crate) violations: BTreeMap<String, usize>,
    pub(crate) measured: Measured,
}

/// Calls of a kind.
#[derive(Debug, Default, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Tally {
    pub(crate) asked: u64,
    /// Calls whose body began with the lock held.
    pub(crate) served: u64,
    pub(crate) lost: u64,
    pub(crate) busy: u64,
    pub(crate) deadlock: u64,
    pub(crate) refused: u64,
    pub(crate) dropped: u64,
}

/// Faults of a kind.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub(crate) struct Happened {
    pub(crate) times: u64,
    /// How long it took until every hot name was served, in nanoseconds; of one with which or after which there was another, nothing.
    pub(crate) recoveries: Vec<u64>,
}

/// What is no violation, and worth knowing. Times are in nanoseconds.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub(crate) struct Measured {
    /// How long bodies overlapped with a holder whose key etcd no longer had.
    pub(crate) removed: Vec<u64>,
    /// These, by the kind of fault that had taken the key.
    #[serde(default)]
    pub(crate) removed_by: BTreeMap<String, Vec<u64>>,
    /// How late after the begin of the next body a body was polled whose stop time had passed meanwhile.
    pub(crate) after_stop: Vec<u64>,
    /// Bodies polled once after their loss, as they blocked their thread.
    pub(crate) late_blocking: u64,
    /// As their process stood still in that poll.
    pub(crate) late_stopped: u64,
    /// As the loss came between the gate and the poll.
    pub(crate) late_between: u64,
    /// Locks with a TTL of ten seconds that were lost as etcd had revoked leases that were renewed.
    pub(crate) revoked: u64,
    pub(crate) refused_writes: u64,
    pub(crate) ordered: u64,
    /// Of these, pairs of two processes.
    #[serde(default)]
    pub(crate) ordered_apart: u64,
    /// For how long order was judged, in seconds.
    #[serde(default)]
    pub(crate) order_judged: f64,
    /// The share of the time of all processes in which every loss of a lock of ten seconds is a violation.
    #[serde(default)]
    pub(crate) errors_judged: f64,
    pub(crate) lines: u64,
    pub(crate) most_lines: u64,
    pub(crate) left: usize,
    /// How long the machine did not run a process that was due, each time.
    #[serde(default)]
    pub(crate) stalls: Vec<u64>,
}

impl Report {
    pub(crate) fn of(events: &[Event], verdicts: &Verdicts) -> Self {
        let mut report = Self { checker: VERSION, ..Self::default() };
        for call in calls::of(events).into_values() {
            report.kinds.entry(call.asked.kind.clone()).or_default().add(&call);
        }
        for fault in faults::of(events) {
            report.faults.entry(word(fault.kind)).or_default().times += 1;
        }
        for recovery in &verdicts.recoveries {
            let happened = report.faults.entry(word(recovery.kind)).or_default();
            happened.recoveries.push(recovery.took);
        }
        for (breach, many) in verdicts.counts() {
            report.violations.insert(word(breach), many);
        }
        report.measured = Measured {
            removed: verdicts.removed.values().flatten().copied().collect(),
            removed_by: verdicts.removed.clone(),
            after_stop: verdicts.after_stop.clone(),
            late_blocking: verdicts.late_blocking,
            late_stopped: verdicts.late_stopped,
            late_between: verdicts.late_between,
            revoked: verdicts.revoked,
            refused_writes: verdicts.refused_writes,
            ordered: verdicts.ordered,
            ordered_apart: verdicts.ordered_apart,
            order_judged: verdicts.order_judged as f64 / 1e9,
            errors_judged: verdicts.errors_judged,
            lines: verdicts.lines,
            most_lines: verdicts.most_lines,
            left: 0,
            stalls: verdicts.stalls.clone(),
        };
        for event in events {
            match &event.what {
                What::Run(run) => report.run = run.clone(),
                What::Failed { error } => report.error = error.clone(),
                What::Idle { keys } | What::Left { keys } => report.measured.left += keys.len(),
                _ => {}
            }
        }
        if let (Some(first), Some(last)) = (events.first(), events.last()) {
            report.seconds = (last.at - first.at) as f64 / 1e9;
        }
        report
    }

    pub(crate) fn calls(&self) -> u64 {
        self.kinds.values().map(|tally| tally.asked).sum()
    }

    pub(crate) fn served(&self) -> u64 {
        self.kinds.values().map(|tally| tally.served).sum()
    }

    pub(crate) fn faults(&self) -> u64 {
        self.faults.values().map(|fault| fault.times).sum()
    }

    /// How often promises were broken.
    pub(crate) fn violations(&self) -> usize {
        self.violations.values().sum()
    }

    /// How often promises of safety were broken: mutual exclusion, and what is built on it.
    pub(crate) fn unsafe_violations(&self) -> usize {
        let broken = self.violations.iter();
        broken
            .filter(|(word, _)| Breach::from_str(word, false).is_ok_and(Breach::is_safety))
            .map(|(_, many)| many)
            .sum()
    }

    /// How often this one was.
    pub(crate) fn broken(&self, breach: Breach) -> usize {
        self.violations.get(&word(breach)).copied().unwrap_or_default()
    }

    /// Its tables, and what was measured.
    pub(crate) fn text(&self) -> String {
        let mut text = kinds(&self.kinds);
        text.push('\n');
        text += &recoveries(&self.faults);
        text.push('\n');
        text += &self.measured.text();
        text
    }

    /// Adds another run to this one.
    pub(crate) fn add(&mut self, other: &Self) {
        // A share of the time, so runs count by their length.
        let (own, judged) = (self.measured.errors_judged, other.measured.errors_judged);
        let judged = own * self.seconds + judged * other.seconds;
        self.seconds += other.seconds;
        self.measured.errors_judged = judged / self.seconds.max(1.0);
        for (kind, tally) in &other.kinds {
            let sum = self.kinds.entry(kind.clone()).or_default();
            sum.asked += tally.asked;
            sum.served += tally.served;
            sum.lost += tally.lost;
            sum.busy += tally.busy;
            sum.deadlock += tally.deadlock;
            sum.refused += tally.refused;
            sum.dropped += tally.dropped;
        }
        for (kind, happened) in &other.faults {
            let sum = self.faults.entry(kind.clone()).or_default();
            sum.times += happened.times;
            sum.recoveries.extend(&happened.recoveries);
        }
        for (breach, many) in &other.violations {
            *self.violations.entry(breach.clone()).or_default() += many;
        }
        let (sum, more) = (&mut self.measured, &other.measured);
        sum.removed.extend(&more.removed);
        for (kind, lasted) in &more.removed_by {
            let sum = sum.removed_by.entry(kind.clone()).or_default();
            sum.extend(lasted);
        }
        sum.after_stop.extend(&more.after_stop);
        sum.late_blocking += more.late_blocking;
        sum.late_stopped += more.late_stopped;
        sum.late_between += more.late_between;
        sum.revoked += more.revoked;
        sum.refused_writes += more.refused_writes;
        sum.ordered += more.ordered;
        sum.ordered_apart += more.ordered_apart;
        sum.order_judged += more.order_judged;
        sum.lines += more.lines;
        sum.most_lines = sum.most_lines.max(more.most_lines);
        sum.left += more.left;
        sum.stalls.extend(&more.stalls);
    }
}

impl Tally {
    fn add(&mut self, call: &calls::Call) {
        self.asked += 1;
        self.served += u64::from(call.was_held());
        match &call.returned {
            Some((_, Outcome::Lost(_))) => self.lost += 1,
            Some((_, Outcome::Busy)) => self.busy += 1,
            Some((_, Outcome::Deadlock)) => self.deadlock += 1,
            Some((_, Outcome::Refused(_))) => self.refused += 1,
            Some((_, Outcome::Dropped)) => self.dropped += 1,
            _ => {}
        }
    }
}

impl Measured {
    /// What was measured, as a list.
    pub(crate) fn text(&self) -> String {
        let most = |times: &[u64]| times.iter().max().map_or(0.0, |most| *most as f64 / 1e6);
        format!(
            "- {} times etcd itself had removed a holder's key (a lease that it revoked, an operator, a wipe), and the next body began before the \
             holder's process knew; the longest such overlap {:.1} ms{}\n\
             - {} times a body that had begun a poll before its stop time, on a thread that it blocks or in a process that was stopped, ended \
             that one poll after the next body had begun; the latest {:.1} ms after\n\
             - {} bodies polled once after their loss: {} that block their thread, {} whose process stood still in that poll, {} whose loss came \
             between the check and the poll\n\
             - {} locks of ten seconds lost, as etcd revoked leases that were renewed\n\
             - {} late writes refused by the fenced register\n\
             - {} pairs of calls compared for their order in {:.0} s of calm, {} of them of two processes\n\
             - {:.0} % of the time of all processes in which every loss of a lock of ten seconds was judged\n\
             - {} log lines, at most {} of one process about one fault\n\
             - {} keys or leases left\n\
             - {} times the machine did not run a process for over 200 ms, for {:.1} s at most\n",
            self.removed.len(),
            most(&self.removed),
            self.removed_text(),
            self.after_stop.len(),
            most(&self.after_stop),
            self.late_blocking + self.late_stopped + self.late_between,
            self.late_blocking,
            self.late_stopped,
            self.late_between,
            self.revoked,
            self.refused_writes,
            self.ordered,
            self.order_judged,
            self.ordered_apart,
            self.errors_judged * 100.0,
            self.lines,
            self.most_lines,
            self.left,
            self.stalls.len(),
            most(&self.stalls) / 1e3,
        )
    }
}

impl Measured {
    /// The overlaps with a holder without a key, by kind of fault.
    fn removed_text(&self) -> String {
        let mut text = String::new();
        for (kind, lasted) in &self.removed_by {
            let most = lasted.iter().max().map_or(0.0, |most| *most as f64 / 1e6);
            // Writing to a string does not fail.
            let _ = write!(text, "; by `{kind}` {}, {most:.1} ms", lasted.len());
        }
        text
    }
}

/// The table of calls. `served` counts those whose body began; a body that began may be lost or dropped later.
pub(crate) fn kinds(kinds: &BTreeMap<String, Tally>) -> String {
    let mut text = String::from(
        "| calls | asked | served | lost | busy | deadlock | refused | dropped |\n|---|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    for (kind, tally) in kinds {
        let Tally { asked, served, lost, busy, deadlock, refused, dropped } = tally;
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "| {kind} | {asked} | {served} | {lost} | {busy} | {deadlock} | {refused} | {dropped} |"
        );
    }
    text
}

/// The table of faults, with the times until every hot name was served again.
pub(crate) fn recoveries(faults: &BTreeMap<String, Happened>) -> String {
    let mut text = String::from(
        "| fault | times | measured | all names served again: p50 | p99 | max |\n|---|---:|---:|---:|---:|---:|\n",
    );
    for (kind, happened) in faults {
        let mut took = happened.recoveries.clone();
        took.sort_unstable();
        let at = |share: f64| {
            let took = quantile(&took, share);
            took.map_or("–".to_owned(), |ns| format!("{:.2} s", ns as f64 / 1e9))
        };
        // Of fewer, the hundredth part is none.
        let high = match took.len() {
            0..100 => "–".to_owned(),
            _ => at(0.99),
        };
        let _ = writeln!(
            text,
            "| {kind} | {} | {} | {} | {} | {} |",
            happened.times,
            took.len(),
            at(0.5),
            high,
            at(1.0)
        );
    }
    text
}

/// Finds the least value that this share of all does not exceed, by the nearest rank; `None` without values.
pub(crate) fn quantile<T: Copy>(sorted: &[T], share: f64) -> Option<T> {
    let rank = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_of_the_times_there_are() {
        let times: Vec<u64> = (1..=100).collect();
        let of = |share| quantile(&times, share);
        assert_eq!([of(0.5), of(0.99), of(1.0)], [Some(50), Some(99), Some(100)]);
        assert_eq!(quantile(&[1, 2, 3], 0.5), Some(2));
        assert_eq!(quantile::<u64>(&[], 0.5), None);
    }

    #[test]
    fn runs_add_up() {
        let mut report = Report::default();
        let mut other = Report::default();
        other.violations.insert("overlap".to_owned(), 2);
        other.measured.most_lines = 3;
        report.add(&other);
        report.add(&other);
        assert_eq!((report.broken(Breach::Overlap), report.measured.most_lines), (4, 3));
    }
}
