//! What a row comes to: lines of the table, points of the plots.

use super::crew::Kind;
use super::figures::{Target, Verdict};
use crate::latency::Latency;

/// A line of the table.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) row: &'static str,
    pub(crate) work: String,
    pub(crate) ours: String,
    /// What it is compared to.
    pub(crate) against: String,
    pub(crate) theirs: String,
    /// What the target is for.
    pub(crate) figure: String,
    /// The number in it.
    pub(crate) measured: f64,
    pub(crate) target: Option<Target>,
}

impl Line {
    pub(crate) fn verdict(&self) -> Verdict {
        let target = self.target;
        target.map_or(Verdict::Untargeted, |it| it.verdict(self.measured))
    }
}

/// A point of a plot.
#[derive(Clone, Debug)]
pub(crate) enum Point {
    /// Calls a second of so many tasks, each with a name of its own.
    Tasks(Kind, f64, f64),
    /// Hand-overs a second of so many processes, with one name.
    Processes(Kind, f64, f64),
    /// Calls a second, so many seconds after the start.
    Time(f64, f64),
    /// How long calls took in this row.
    Latency { row: &'static str, work: &'static str, kind: Kind, latency: Latency },
}

#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) lines: Vec<Line>,
    pub(crate) points: Vec<Point>,
    /// What else is to be said of it.
    pub(crate) notes: Vec<String>,
}

impl Outcome {
    /// One line, and nothing else.
    pub(crate) fn of(line: Line) -> Self {
        Self { lines: vec![line], ..Self::default() }
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.lines.extend(other.lines);
        self.points.extend(other.points);
        self.notes.extend(other.notes);
    }

    /// The figures that miss their targets, in words.
    pub(crate) fn missed(&self) -> Vec<String> {
        let lines = self.lines.iter();
        let missed = lines.filter(|line| line.verdict() == Verdict::Missed);
        missed
            .map(|line| {
                let target = line.target.map_or(String::new(), |target| target.to_string());
                format!("{} {}: {}, not {target}", line.row, line.work, line.figure)
            })
            .collect()
    }
}
