//! Report: what a run came to, as Markdown that a terminal can show.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::checker::verdicts::Verdicts;
use crate::checker::{calls, faults};
use crate::history::{Event, Outcome, Run, What};

/// What a run came to, in figures.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) run: Run,
    /// Calls by kind: asked, served, beyond them lost, busy, refused, dropped.
    kinds: BTreeMap<String, Tally>,
    /// Faults by kind, with the times until every name was served.
    faults: BTreeMap<String, (u64, Vec<u64>)>,
    pub(crate) seconds: f64,
    pub(crate) left: usize,
}

#[derive(Debug, Default, Clone, Copy)]
struct Tally {
    asked: u64,
    served: u64,
    lost: u64,
    busy: u64,
    deadlock: u64,
    refused: u64,
    dropped: u64,
}

impl Report {
    pub(crate) fn of(events: &[Event], verdicts: &Verdicts) -> Self {
        let mut kinds: BTreeMap<String, Tally> = BTreeMap::new();
        for call in calls::of(events).into_values() {
            let tally = kinds.entry(call.asked.kind.clone()).or_default();
            tally.asked += 1;
            tally.served += u64::from(call.was_held());
            match &call.returned {
                Some((_, Outcome::Lost(_))) => tally.lost += 1,
                Some((_, Outcome::Busy)) => tally.busy += 1,
                Some((_, Outcome::Deadlock)) => tally.deadlock += 1,
                Some((_, Outcome::Refused(_))) => tally.refused += 1,
                Some((_, Outcome::Dropped)) => tally.dropped += 1,
                _ => {}
            }
        }
        let mut by_kind: BTreeMap<String, (u64, Vec<u64>)> = BTreeMap::new();
        for fault in faults::of(events) {
            by_kind.entry(fault.kind).or_default().0 += 1;
        }
        for recovery in &verdicts.recoveries {
            by_kind
                .entry(recovery.kind.clone())
                .or_default()
                .1
                .push(recovery.took);
        }
        let find = |wanted: fn(&What) -> Option<usize>| {
            events.iter().find_map(|event| wanted(&event.what))
        };
        let run = events.iter().find_map(|event| match &event.what {
            What::Run(run) => Some(run.clone()),
            _ => None,
        });
        let (first, last) = (events.first(), events.last());
        Self {
            run: run.unwrap_or_default(),
            kinds,
            faults: by_kind,
            seconds: first
                .zip(last)
                .map_or(0.0, |(first, last)| (last.at - first.at) as f64 / 1e9),
            left: find(|what| match what {
                What::Left { keys } => Some(keys.len()),
                _ => None,
            })
            .unwrap_or_default(),
        }
    }

    pub(crate) fn calls(&self) -> u64 {
        self.kinds.values().map(|tally| tally.asked).sum()
    }

    pub(crate) fn served(&self) -> u64 {
        self.kinds.values().map(|tally| tally.served).sum()
    }

    pub(crate) fn faults(&self) -> u64 {
        self.faults.values().map(|(many, _)| many).sum()
    }

    /// The tables.
    pub(crate) fn text(&self, verdicts: &Verdicts) -> String {
        let mut text = String::from(
            "| calls | asked | served | lost | busy | deadlock | refused | dropped |\n|---|---:|---:|---:|---:|---:|---:|---:|\n",
        );
        for (kind, tally) in &self.kinds {
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "| {kind} | {} | {} | {} | {} | {} | {} | {} |",
                tally.asked,
                tally.served,
                tally.lost,
                tally.busy,
                tally.deadlock,
                tally.refused,
                tally.dropped
            );
        }
        text += "\n| fault | times | all names served again: p50 | p99 | max |\n|---|---:|---:|---:|---:|\n";
        for (kind, (many, took)) in &self.faults {
            let mut took = took.clone();
            took.sort_unstable();
            let at = |share: f64| quantile(&took, share);
            let _ = writeln!(
                text,
                "| {kind} | {many} | {} | {} | {} |",
                at(0.5),
                at(0.99),
                at(1.0)
            );
        }
        let most = |times: &[u64]| times.iter().max().map_or(0.0, |most| *most as f64 / 1e6);
        let _ = writeln!(
            text,
            "\n{} overlaps with a holder whose key was removed at etcd, the longest {:.1} ms; {} polls after the stop time beside the \
             next holder, the latest after {:.1} ms; {} bodies polled once after their loss; {} late writes refused by the register; \
             {} pairs of calls compared for their order; {} log lines, at most {} of a process about one fault; {} keys left.",
            verdicts.removed.len(),
            most(&verdicts.removed),
            verdicts.after_stop.len(),
            most(&verdicts.after_stop),
            verdicts.late_polls,
            verdicts.refused_writes,
            verdicts.ordered,
            verdicts.lines,
            verdicts.most_lines,
            self.left,
        );
        text
    }
}

fn quantile(sorted: &[u64], share: f64) -> String {
    let last = sorted.len().saturating_sub(1);
    let at = (last as f64 * share).ceil() as usize;
    sorted
        .get(at)
        .map_or("–".to_owned(), |ns| format!("{:.2} s", *ns as f64 / 1e9))
}
