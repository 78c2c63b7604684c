//! What a row comes to: lines of the table, points of the plots.

use super::figures::{Spread, Target, number};
use crate::Result;
use crate::kind::Kind;
use crate::latency::Latency;

/// A line of the table.
#[derive(Debug)]
pub(crate) struct Line {
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

    /// Compares medians of what was not measured in pairs.
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

    /// As the table has it, under this row.
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
    /// In which plot, whose, and where.
    pub(crate) points: Vec<(&'static str, Kind, (f64, f64))>,
    /// How long calls took, by work.
    pub(crate) latencies: Vec<(String, Kind, Latency)>,
    /// What else is to be said of it.
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
