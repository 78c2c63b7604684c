//! The report: `RESULTS.md`, and what is printed of it row by row.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::figures::{Spread, time};
use super::row::{Line, Outcome, Point};
use super::{Pace, machine, plot};
use crate::Result;

/// Beyond this share of the machine in others' hands, figures are worth little.
const BUSY: f64 = 0.1;

pub(crate) struct Report {
    pace: Pace,
    machine: String,
    /// Before each row.
    busy: Vec<f64>,
    all: Outcome,
}

impl Report {
    pub(crate) fn begin(pace: &Pace) -> Result<Self> {
        let machine = format!(
            "{}; {}; load average {} at the start",
            machine::described()?,
            machine::disk()?,
            machine::load()
        );
        Ok(Self { pace: pace.clone(), machine, busy: Vec::new(), all: Outcome::default() })
    }

    pub(crate) fn add(&mut self, busy: f64, outcome: Outcome) {
        self.busy.push(busy);
        self.all.add(outcome);
    }

    pub(crate) fn outcome(&self) -> &Outcome {
        &self.all
    }

    /// What it was measured on.
    pub(crate) fn machine(&self) -> String {
        let busy = Spread::of(self.busy.iter().copied()).map_or(0.0, |busy| busy.most);
        let others = match busy > BUSY {
            true => "**others kept the machine busy, so these figures are worth little**",
            false => "no other process kept the machine busy",
        };
        format!(
            "{}; {others} ({:.0} % of its processors' time, at most, before a row began)",
            self.machine,
            busy * 100.0
        )
    }

    pub(crate) fn write(&self, folder: &Path) -> Result<()> {
        let plots = plot::of(&self.all.points)?;
        put(&folder.join("RESULTS.md"), &self.text(&plots))?;
        for plot in &plots {
            put(&folder.join("plots").join(plot.file), &plot.svg)?;
        }
        Ok(())
    }

    fn text(&self, plots: &[plot::Drawn]) -> String {
        let mut text = format!(
            "# What was measured\n\n\
             Written by `cargo xtask bench`. {}.\n\n\
             Ours and each peer in turn against the same etcd, which is fresh for each row: medians of {} rounds of {:?} (least to \
             most), and the median of each round's ratio. A call is acquire and release, confirmed, around a body that does \
             nothing but count; where processes contend, it reads and writes a counter that they share, and the bench fails if \
             that misses one. The etcd of B18 is a cluster of three, with half a millisecond each way between any two members, and \
             between members and workers; another member leads in each round. Reasons for missed targets are \
             at the end.\n\n",
            self.machine(),
            self.pace.pairs,
            self.pace.window,
        );
        text += "| row | work | ours | against | theirs | figure | target | |\n|---|---|---|---|---|---|---|---|\n";
        for line in &self.all.lines {
            let Line { row, work, ours, against, theirs, figure, target, .. } = line;
            let target = target.map_or(String::new(), |target| target.to_string());
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "| {row} | {work} | {ours} | {against} | {theirs} | {figure} | {target} | {} |",
                line.verdict().word()
            );
        }
        text += "\n";
        for plot in plots {
            let _ = writeln!(text, "![{}](plots/{})\n", plot.title, plot.file);
        }
        for note in &self.all.notes {
            let _ = writeln!(text, "- {note}");
        }
        text + &latencies(&self.all.points) + REASONS
    }
}

/// Rows that no command repeats, and why targets are missed; written by hand.
const REASONS: &str = include_str!("reasons.md");

/// How long calls took, of all who were compared.
fn latencies(points: &[Point]) -> String {
    let mut text = "\n## How long a call takes\n\n| row | work | | half within | 99 % | 99.9 % |\n|---|---|---|---|---|---|\n".to_owned();
    for point in points {
        let Point::Latency { row, work, kind, latency } = point else {
            continue;
        };
        let within = |share| latency.quantile(share).map_or(String::new(), time);
        let _ = writeln!(
            text,
            "| {row} | {work} | {} | {} | {} | {} |",
            kind.title(),
            within(0.5),
            within(0.99),
            within(0.999)
        );
    }
    text
}

/// A row's lines, for the terminal.
pub(crate) fn printed(outcome: &Outcome) -> String {
    let mut text = String::new();
    for line in &outcome.lines {
        let target = line.target.map_or(String::new(), |t| format!("   target {t}"));
        let _ = writeln!(
            text,
            "{:<4} {}\n     ours {}   {} {}   → {}{target} {}",
            line.row,
            line.work,
            line.ours,
            line.against,
            line.theirs,
            line.figure,
            line.verdict().word()
        );
    }
    for note in &outcome.notes {
        let _ = writeln!(text, "     {note}");
    }
    text
}

fn put(file: &Path, text: &str) -> Result<()> {
    let io = |error: std::io::Error| format!("{}: {error}", file.display());
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder).map_err(io)?;
    }
    fs::write(file, text).map_err(io)
}
