//! Report of the benches: `RESULTS.md`, and the part that is printed row by row.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use super::row::{Line, Outcome};
use super::{Pace, machine, plot};
use crate::Result;

pub(crate) struct Report {
    pace: Pace,
    machine: String,
    /// Largest share of the machine that other programs used before a row.
    busy: f64,
    rows: Vec<(&'static str, Outcome)>,
}

impl Report {
    pub(crate) fn begin(pace: &Pace) -> Result<Self> {
        let machine = machine::described()?;
        Ok(Self { pace: pace.clone(), machine, busy: 0.0, rows: Vec::new() })
    }

    pub(crate) fn add(&mut self, row: &'static str, busy: f64, outcome: Outcome) {
        self.busy = self.busy.max(busy);
        self.rows.push((row, outcome));
    }

    /// Returns the lines that miss their targets.
    pub(crate) fn missed(&self) -> Vec<String> {
        let missed = self.lines().filter(|(_, line)| line.is_missed());
        missed.map(|(row, line)| line.shown(row)).collect()
    }

    fn lines(&self) -> impl Iterator<Item = (&'static str, &Line)> {
        self.rows.iter().flat_map(|(row, outcome)| outcome.lines.iter().map(|line| (*row, line)))
    }

    /// Describes the machine of the measurement.
    pub(crate) fn machine(&self) -> String {
        let others = match self.busy > 0.1 {
            true => "**others kept the machine busy, so these figures are worth little**",
            false => "no other process kept the machine busy",
        };
        format!(
            "{}; {others} ({:.0} % of its processors' time, at most, before a row began)",
            self.machine,
            self.busy * 100.0
        )
    }

    /// Writes the page and its plots into the folder; returns the page's path.
    pub(crate) fn write(&self, folder: &Path) -> Result<PathBuf> {
        let (page, images) = match self.pace.short {
            true => ("SHORT.md", "plots/short"),
            false => ("RESULTS.md", "plots"),
        };
        let plots = plot::of(&self.rows)?;
        let io = |error: std::io::Error| format!("{}: {error}", folder.display());
        fs::create_dir_all(folder.join(images)).map_err(io)?;
        fs::write(folder.join(page), self.text(&plots, images)).map_err(io)?;
        for plot in &plots {
            fs::write(folder.join(images).join(plot.file), &plot.svg).map_err(io)?;
        }
        Ok(folder.join(page))
    }

    fn text(&self, plots: &[plot::Drawn], images: &str) -> String {
        let mut text = format!(
            "# What was measured\n\n\
             Written by `cargo xtask bench{}`. {}.\n\n\
             Ours and each peer in turn against the same etcd, which is fresh for each row: medians of {} rounds of {:?} (least to \
             most), and the median of each round's ratio. A call is acquire and release, confirmed, around a body that does \
             nothing but count; where processes contend, it reads and writes a counter that they share, and the bench fails if \
             that misses one.{} The reasons for missed targets are at the end of `RESULTS.md`.\n\n",
            if self.pace.short { " --short" } else { "" },
            self.machine(),
            self.pace.pairs,
            self.pace.window,
            if self.pace.short { "" } else { CLUSTER },
        );
        text += "| row | work | ours | against | theirs | figure | target | |\n|---|---|---|---|---|---|---|---|\n";
        text.extend(self.lines().map(|(row, line)| line.shown(row)));
        text += "\n";
        // Writing to a string does not fail.
        for plot in plots {
            let _ = writeln!(text, "![{}]({images}/{})", plot.title, plot.file);
        }
        text += "\n";
        for (row, outcome) in &self.rows {
            for note in &outcome.notes {
                let _ = writeln!(text, "- {row}: {note}");
            }
        }
        text + if self.pace.short { "" } else { REASONS }
    }
}

const CLUSTER: &str = " The etcd of B18 is a cluster of three, with half a millisecond each way between members, and to the workers. Another member leads in each round, for long enough that an engine has moved there.";

/// Handwritten text: rows that no command repeats, and why targets are missed.
const REASONS: &str = include_str!("reasons.md");
