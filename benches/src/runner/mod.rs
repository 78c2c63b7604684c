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
use std::path::PathBuf;

use crate::{Result, process};
use crew::Kind;
pub(crate) use pace::Pace;
use report::Report;
use rows::{ROWS, Row};

const USAGE: &str = "\
usage: bench [--row B4]… [--quick] [--write FOLDER] [--peers plain,raw] [--pairs 5] [--seconds 3]
       bench needs …
       bench worker --peer ours --work calls --tasks 1 --names 1 --endpoint URL,URL --seconds 1

`cargo xtask bench` brings what the peers need, and says where it is.";

/// Prints whose workers these rows need, one a line.
pub(crate) fn needs(args: &[String]) -> Result<()> {
    let asked = Asked::parse(args)?;
    for kind in asked.peers() {
        println!("{}", kind.word());
    }
    Ok(())
}

pub(crate) fn main(args: &[String]) -> Result<()> {
    let asked = Asked::parse(args)?;
    process::end_all_on_interrupt()?;
    machine::allow_many_files();
    for kind in asked.peers() {
        kind.check()?;
    }

    let mut report = Report::begin(&asked.pace)?;
    let mut failed = Vec::new();
    for row in &asked.rows {
        let busy = machine::busy()?;
        say::step(format_args!(
            "{}: {}   (others keep {:.0} % of the machine busy)",
            row.id,
            row.title,
            busy * 100.0
        ));
        match row.run(&asked.pace) {
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
        return Err(format!(
            "rows that could not be measured: {}",
            failed.join("; ")
        ));
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

/// The runner's command line.
struct Asked {
    rows: Vec<&'static Row>,
    pace: Pace,
    /// Where the report goes, if it is all rows.
    write: Option<PathBuf>,
}

impl Asked {
    /// Who takes part.
    fn peers(&self) -> BTreeSet<Kind> {
        let peers = self.rows.iter().flat_map(|row| row.peers());
        peers.filter(|kind| self.pace.meets(*kind)).collect()
    }

    fn parse(args: &[String]) -> Result<Self> {
        let mut asked = Self {
            rows: Vec::new(),
            pace: Pace::full(),
            write: None,
        };
        if args.iter().any(|arg| arg == "--quick") {
            asked.pace = Pace::quick();
        }
        let mut args = args.iter().filter(|arg| *arg != "--quick");
        while let Some(option) = args.next() {
            let nonsense = || format!("cannot make sense of `{option}`\n\n{USAGE}");
            let value = args.next().ok_or_else(nonsense)?;
            match option.as_str() {
                "--row" => asked.rows.push(find(value)?),
                "--write" => asked.write = Some(value.into()),
                "--peers" => asked.pace.peers = Some(value.split(',').map(str::to_owned).collect()),
                "--pairs" => asked.pace.pairs = value.parse().map_err(|_| nonsense())?,
                "--seconds" => asked.pace.set_window(value).ok_or_else(nonsense)?,
                _ => return Err(nonsense()),
            }
        }
        if !asked.rows.is_empty() && asked.write.is_some() {
            return Err("a report is of all rows; leave out --row or --write".to_owned());
        }
        if asked.rows.is_empty() {
            asked.rows = ROWS.iter().collect();
        }
        Ok(asked)
    }
}

fn find(id: &str) -> Result<&'static Row> {
    ROWS.iter().find(|row| row.id == id).ok_or_else(|| {
        let ids: Vec<_> = ROWS.iter().map(|row| row.id).collect();
        format!("there is no row `{id}`; there are {}", ids.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Asked> {
        let args: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
        Asked::parse(&args)
    }

    #[test]
    fn without_a_row_it_is_all() {
        let asked = parse("--write target --quick").unwrap();
        assert_eq!(asked.rows.len(), ROWS.len());
        assert!(asked.pace.pairs < Pace::full().pairs);
    }

    #[test]
    fn rows_are_named_one_by_one() {
        let asked = parse("--row B2' --row B13 --pairs 7").unwrap();
        let ids: Vec<_> = asked.rows.iter().map(|row| row.id).collect();
        assert_eq!(ids, ["B2'", "B13"]);
        assert_eq!(asked.pace.pairs, 7);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for line in [
            "--row B99",
            "--row",
            "B4",
            "--pairs some",
            "--row B4 --write x",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
