//! Runs the rows, and says what came out.

mod cluster;
mod contest;
mod crew;
mod crowd;
mod endurance;
mod fences;
mod figures;
mod herd;
mod idle;
mod inprocess;
mod kills;
mod machine;
mod memory;
mod nested;
mod pace;
mod plot;
mod probe;
mod report;
mod retention;
mod row;
mod rows;
mod say;
mod server;
mod shutdowns;
mod side;
mod site;
mod telemetry;
mod tries;
mod trips;
mod wakeups;
mod wires;

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::{Result, process, seconds};
use crew::Kind;
pub(crate) use pace::Pace;
use report::Report;
use rows::{ROWS, Row};

/// Prints whose workers these rows need, one a line.
pub(crate) fn needs(asked: &Asked) {
    for kind in asked.kinds() {
        println!("{}", kind.word());
    }
}

pub(crate) fn main(asked: &Asked) -> Result<()> {
    process::end_all_on_interrupt()?;
    machine::allow_many_files();
    for kind in asked.kinds() {
        kind.check()?;
    }

    let pace = asked.pace();
    let mut report = Report::begin(&pace)?;
    let mut failed = Vec::new();
    for row in asked.rows() {
        let busy = machine::busy()?;
        say::step(format_args!(
            "{}: {}   (others keep {:.0} % of the machine busy)",
            row.id,
            row.title,
            busy * 100.0
        ));
        match row.run(&pace) {
            Ok(outcome) => {
                print!("{}", report::printed(&outcome));
                report.add(busy, outcome);
            }
            Err(error) if process::interrupted() => return Err(error),
            // The others are worth having; but this is no result.
            Err(error) => {
                say::note(format_args!("{}: failed — {error}", row.id));
                failed.push(format!("{}: {error}", row.id));
            }
        }
    }

    println!("\n{}", report.machine());
    let missed = report.outcome().missed();
    if !failed.is_empty() {
        return Err(format!("rows that could not be measured: {}", failed.join("; ")));
    }
    if let Some(folder) = &asked.write {
        report.write(folder)?;
        println!("{}", folder.join("RESULTS.md").display());
    }
    match missed.is_empty() {
        true => {
            println!("bench: ok — every target holds");
            Ok(())
        }
        false => Err(format!("missed: {}", missed.join("; "))),
    }
}

/// The runner's options.
#[derive(Args)]
pub(crate) struct Asked {
    /// Only this row, such as B4; may be said again
    #[arg(long = "row", value_name = "ROW", value_parser = find)]
    rows: Vec<&'static Row>,
    /// Fewer and shorter rounds
    #[arg(long)]
    quick: bool,
    /// The folder of the report, which is of all rows
    #[arg(long, value_name = "FOLDER", conflicts_with = "rows")]
    write: Option<PathBuf>,
    /// Only these peers, while one works on something
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
            true => ROWS.iter().collect(),
            false => self.rows.clone(),
        }
    }

    fn pace(&self) -> Pace {
        let pace = if self.quick { Pace::quick() } else { Pace::full() };
        Pace {
            pairs: self.pairs.map_or(pace.pairs, NonZeroUsize::get),
            window: self.seconds.unwrap_or(pace.window),
            peers: self.peers.clone(),
            ..pace
        }
    }

    /// Who takes part.
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

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        asked: Asked,
    }

    fn parse(line: &str) -> Result<Asked, clap::Error> {
        let words = ["bench"].into_iter().chain(line.split_whitespace());
        Line::try_parse_from(words).map(|line| line.asked)
    }

    #[test]
    fn without_a_row_it_is_all() {
        let asked = parse("--write target --quick").unwrap();
        assert_eq!(asked.rows().len(), ROWS.len());
        assert!(asked.pace().pairs < Pace::full().pairs);
    }

    #[test]
    fn rows_are_named_one_by_one() {
        let asked = parse("--row B2' --row B13 --pairs 7 --peers ours,aetcd").unwrap();
        let ids: Vec<_> = asked.rows().iter().map(|row| row.id).collect();
        assert_eq!(ids, ["B2'", "B13"]);
        let pace = asked.pace();
        assert_eq!((pace.pairs, pace.peers), (7, vec![Kind::Ours, Kind::Python]));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for line in [
            "--row B99",
            "--row",
            "B4",
            "--pairs some",
            "--peers plain,redis",
            "--row B4 --write x",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
