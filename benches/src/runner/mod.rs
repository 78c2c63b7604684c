//! Runner: measures the rows, and reports the results.

mod alone;
mod cluster;
mod contest;
mod crew;
mod embedded;
mod endurance;
mod fences;
mod figures;
mod herd;
mod idle;
mod kills;
mod machine;
mod nested;
mod plot;
mod report;
mod row;
mod rows;
mod server;
mod side;
mod telemetry;

use std::collections::BTreeSet;
use std::fmt::Display;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::kind::Kind;
use crate::{Result, process, seconds};
use report::Report;
use rows::{ROWS, Row, SHORT};

/// Prints progress for the person at the terminal, to stderr; results go to stdout.
fn note(text: impl Display) {
    eprintln!("   {text}");
}

/// Pace: how long and how often rows are measured.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    /// True to measure all rows within five minutes, without the build. Some rows then have fewer tasks and locks; their lines say so.
    pub(crate) quick: bool,
    /// Only the rows and peers of `SHORT`.
    pub(crate) short: bool,
    /// Rounds in which ours and each peer measure in turn.
    pub(crate) pairs: usize,
    /// Length of each measurement.
    pub(crate) window: Duration,
    /// Peers to measure, during development; empty for all.
    pub(crate) peers: Vec<Kind>,
}

impl Pace {
    /// Returns the value for this pace.
    pub(crate) fn either<T>(&self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }

    /// Returns true if this peer takes part.
    pub(crate) fn meets(&self, kind: Kind) -> bool {
        self.peers.is_empty() || self.peers.contains(&kind)
    }
}

/// Prints the peers whose workers these rows need, one per line.
pub(crate) fn needs(asked: &Asked) {
    for kind in asked.kinds() {
        println!("{}", kind.word());
    }
}

pub(crate) fn main(asked: &Asked) -> Result<()> {
    process::end_all_on_interrupt()?;
    machine::allow_many_files();
    for kind in asked.kinds() {
        kind.command()?;
    }

    let pace = asked.pace();
    let mut report = Report::begin(&pace)?;
    let mut failed = Vec::new();
    for row in asked.rows() {
        let busy = machine::busy()?;
        let others = busy * 100.0;
        eprintln!("\n== {}   (others keep {others:.0} % of the machine busy)", row.id);
        match row.run(&pace) {
            Ok(outcome) => {
                outcome.lines.iter().for_each(|line| print!("{}", line.shown(row.id)));
                outcome.notes.iter().for_each(|note| println!("{}: {note}", row.id));
                report.add(row.id, busy, outcome);
            }
            Err(error) if process::interrupted() => return Err(error),
            // The other rows are still useful, but the run has failed.
            Err(error) => {
                let error = format!("{}: {error}", row.id);
                note(format_args!("failed — {error}"));
                failed.push(error);
            }
        }
    }

    println!("\n{}", report.machine());
    let missed = report.missed();
    if !failed.is_empty() {
        return Err(format!("rows that could not be measured: {}", failed.join("; ")));
    }
    if let Some(folder) = &asked.write {
        println!("{}", report.write(folder)?.display());
    }
    match missed.is_empty() {
        true => {
            println!("bench: ok — every target holds");
            Ok(())
        }
        false => Err(format!("missed:\n{}", missed.concat())),
    }
}

/// Options of the runner.
#[derive(Args)]
pub(crate) struct Asked {
    /// Only this row, such as B4; may be repeated
    #[arg(long = "row", value_name = "ROW", value_parser = find)]
    rows: Vec<&'static Row>,
    /// Fewer and shorter rounds
    #[arg(long)]
    quick: bool,
    /// B1 to B6 and B22 against current peers, in ten minutes
    #[arg(long, conflicts_with_all = ["rows", "quick", "peers"])]
    short: bool,
    /// Folder of the report, which needs all rows, or of those of `--short`
    #[arg(long, value_name = "FOLDER", conflicts_with = "rows")]
    write: Option<PathBuf>,
    /// Only these peers, for development
    #[arg(long, value_delimiter = ',')]
    peers: Vec<Kind>,
    /// Rounds in which ours and each peer measure in turn [default: 5, with --quick 2]
    #[arg(long, value_name = "N")]
    pairs: Option<NonZeroUsize>,
    /// How long each of them measures [default: 3, with --quick 0.3]
    #[arg(long, value_parser = seconds)]
    seconds: Option<Duration>,
}

impl Asked {
    fn rows(&self) -> Vec<&'static Row> {
        match self.rows.is_empty() {
            true => ROWS.iter().filter(|row| !self.short || SHORT.0.contains(&row.id)).collect(),
            false => self.rows.clone(),
        }
    }

    fn pace(&self) -> Pace {
        let (pairs, window) = match self {
            Self { quick: true, .. } => (2, 300),
            Self { short: true, .. } => (5, 1_500),
            _ => (5, 3_000),
        };
        let peers = if self.short { SHORT.1.to_vec() } else { self.peers.clone() };
        Pace {
            quick: self.quick,
            short: self.short,
            pairs: self.pairs.map_or(pairs, NonZeroUsize::get),
            window: self.seconds.unwrap_or(Duration::from_millis(window)),
            peers,
        }
    }

    /// Returns the kinds of workers that take part.
    fn kinds(&self) -> BTreeSet<Kind> {
        let (rows, pace) = (self.rows(), self.pace());
        let kinds = rows.iter().flat_map(|row| row.peers());
        kinds.filter(|kind| pace.meets(*kind)).collect()
    }
}

/// Finds a row by its label.
fn find(id: &str) -> Result<&'static Row> {
    ROWS.iter().find(|row| row.id == id).ok_or_else(|| {
        let ids: Vec<_> = ROWS.iter().map(|row| row.id).collect();
        format!("there are {}", ids.join(", "))
    })
}
