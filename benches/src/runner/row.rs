//! Row as a result: lines of the table, and points of the plots.

use super::figures::{Spread, Target, number};
use crate::Result;
use crate::kind::Kind;
use crate::latency::Latency;

/// Line of the table.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) work: String,
    pub(crate) ours: String,
    /// What it is compared with.
    pub(crate) against: String,
    pub(crate) theirs: String,
    /// Figure that has the target.
    pub(crate) figure: String,
    /// Number in that figure.
    pub(crate) measured: f64,
    pub(crate) target: Option<Target>,
}

impl Line {
    /// Compares ours with theirs, round by round.
    pub(crate) fn pairs(
        work: impl Into<String>,
        ours: &[f64],
        against: impl Into<String>,
        theirs: &[f64],
        show: fn(f64) -> String,
        target: impl Into<Option<Target>>,
    ) -> Result<Self> {
        let (ratio, theirs) = (Spread::ratio(ours, theirs)?, Spread::of(theirs)?);
        Ok(Self {
            figure: format!("{} ×", ratio.shown(number)),
            measured: ratio.median,
            ..Self::medians(work, Spread::of(ours)?, against, theirs, show, target)
        })
    }

    /// Compares medians of values that were not measured in pairs.
    pub(crate) fn medians(
        work: impl Into<String>,
        ours: impl Into<Spread>,
        against: impl Into<String>,
        theirs: impl Into<Spread>,
        show: fn(f64) -> String,
        target: impl Into<Option<Target>>,
    ) -> Self {
        let (ours, theirs) = (ours.into(), theirs.into());
        let measured = ours.median / theirs.median;
        Self {
            work: work.into(),
            ours: ours.shown(show),
            against: against.into(),
            theirs: theirs.shown(show),
            figure: format!("{} ×", number(measured)),
            measured,
            target: target.into(),
        }
    }

    pub(crate) fn is_missed(&self) -> bool {
        self.target.is_some_and(|target| !target.holds(self.measured))
    }

    /// Returns it as a line of the table, under this row.
    pub(crate) fn shown(&self, row: &str) -> String {
        let Self { work, ours, against, theirs, figure, target, .. } = self;
        let target = target.map_or(String::new(), |target| target.to_string());
        let verdict = match self.target {
            Some(_) if self.is_missed() => "**missed**",
            Some(_) => "holds",
            None => "",
        };
        format!(
            "| {row} | {work} | {ours} | {against} | {theirs} | {figure} | {target} | {verdict} |\n"
        )
    }
}

#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) lines: Vec<Line>,
    /// Points: the plot, the peer, and the coordinates.
    pub(crate) points: Vec<(&'static str, Kind, (f64, f64))>,
    /// Latencies of calls, by work.
    pub(crate) latencies: Vec<(String, Kind, Latency)>,
    /// Notes about the row.
    pub(crate) notes: Vec<String>,
}

impl Outcome {
    pub(crate) fn of(lines: impl IntoIterator<Item = Line>) -> Self {
        Self { lines: lines.into_iter().collect(), ..Self::default() }
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.lines.extend(other.lines);
        self.points.extend(other.points);
        self.latencies.extend(other.latencies);
        self.notes.extend(other.notes);
    }
}
