//! Pauses of processes: when they did not run, because they were stopped, because the machine ran others, or because they had
//! ended. Times are nanoseconds since boot.

use std::collections::BTreeMap;

use crate::history::{Event, Said, What};
use crate::stalls::ASK_PAUSE;

#[derive(Debug, Default)]
pub(super) struct Pauses {
    /// Intervals in which each process did not run; they may overlap.
    stopped: BTreeMap<u32, Vec<(u64, u64)>>,
    started: BTreeMap<u32, u64>,
    ended: BTreeMap<u32, u64>,
    /// Intervals in which the machine did not run the witness, or a worker that was not stopped.
    stalls: Vec<(u64, u64)>,
    silences: Vec<(u64, u64)>,
    pub(super) over: u64,
}

impl Pauses {
    pub(super) fn of(events: &[Event]) -> Self {
        let mut pauses = Self::default();
        for Event { at, what } in events {
            pauses.over = *at;
            match what {
                What::Started { process, .. } => _ = pauses.started.entry(*process).or_insert(*at),
                What::Stopped { process } => {
                    let stopped = pauses.stopped.entry(*process).or_default();
                    stopped.push((*at, u64::MAX));
                }
                What::Continued { process } => {
                    let stopped = pauses.stopped.entry(*process).or_default();
                    if let Some((_, to)) = stopped.iter_mut().rfind(|(_, to)| *to == u64::MAX) {
                        *to = *at;
                    }
                }
                What::Killed { process } | What::Exited { process, .. } => {
                    pauses.ended.entry(*process).or_insert(*at);
                }
                What::Silent { since } => match pauses.silences.last_mut() {
                    // etcd gets a request after each such pause, so there was no response between the two.
                    Some((_, to)) if *since < *to + 2 * ASK_PAUSE => *to = *at,
                    _ => pauses.silences.push((*since, *at)),
                },
                What::Stalled { since } => pauses.stalls.push((*since, *at)),
                What::Said { process, said: Said::Stalled { since } } => {
                    let stopped = pauses.stopped.entry(*process).or_default();
                    if stopped.iter().all(|(from, to)| to < since || at < from) {
                        pauses.stalls.push((*since, *at));
                    }
                    stopped.push((*since, *at));
                }
                _ => {}
            }
        }
        pauses
    }

    pub(super) fn ended(&self, process: u32) -> Option<u64> {
        self.ended.get(&process).copied()
    }

    /// Returns true if a process lives all the time between two moments.
    pub(super) fn lives(&self, process: u32, from: u64, to: u64) -> bool {
        let started = self.started.get(&process).is_none_or(|at| *at <= from);
        started && self.ended(process).is_none_or(|at| to <= at)
    }

    pub(super) fn ran(&self, process: u32, from: u64, to: u64) -> u64 {
        let to = to.min(self.ended(process).unwrap_or(u64::MAX));
        let paused = self.stopped.get(&process).map_or(&[][..], Vec::as_slice);
        to.saturating_sub(from).saturating_sub(covered(paused, from, to))
    }

    /// Returns how long the machine did not run the witness or some worker between two moments.
    pub(super) fn stalled(&self, from: u64, to: u64) -> u64 {
        covered(&self.stalls, from, to)
    }

    /// Returns the longest time for which the machine did not run the witness, some worker or etcd, of those that touch the time between
    /// two moments.
    pub(super) fn longest_stall(&self, from: u64, to: u64) -> u64 {
        let stalls = self.stalls.iter().chain(&self.silences);
        let stalls = stalls.filter(|(begin, end)| *begin <= to && from <= *end);
        stalls.map(|(begin, end)| end - begin).max().unwrap_or(0)
    }

    /// Returns the intervals of at least this length in which the machine did not run the witness, some worker or etcd.
    pub(super) fn long_stalls(&self, least: u64) -> impl Iterator<Item = (u64, u64)> {
        let stalls = self.stalls.iter().chain(&self.silences).copied();
        stalls.filter(move |(from, to)| to - from >= least)
    }

    pub(super) fn stalls(&self) -> Vec<u64> {
        self.stalls.iter().map(|(from, to)| to - from).collect()
    }
}

/// Returns how much of the time between two moments these ranges cover. Overlaps count once.
pub(super) fn covered(ranges: &[(u64, u64)], from: u64, to: u64) -> u64 {
    let mut inside: Vec<(u64, u64)> = ranges
        .iter()
        .map(|(begin, end)| ((*begin).max(from), (*end).min(to)))
        .filter(|(begin, end)| begin < end)
        .collect();
    inside.sort_unstable();
    let mut last = from;
    inside.into_iter().fold(0, |sum, (begin, end)| {
        let added = end.saturating_sub(begin.max(last));
        last = last.max(end);
        sum + added
    })
}
