//! Command line of the simulator: random schedules, one schedule step by step, and the exhaustive search.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;

use crate::report;
use crate::search::{SEARCHES, Search};
use crate::series::play_all;
use crate::world::schedules::play;

/// The number of steps printed of a failed schedule.
const TAIL: usize = 40;
/// The number of failures printed.
const SHOWN: usize = 5;

/// Plays random schedules of the production core against a model of etcd. `cargo xtask sim` builds it with optimisations.
#[derive(Debug, Parser)]
#[command(name = "etcd-locked-sim")]
struct Options {
    /// The number of schedules
    #[arg(long, value_name = "N", default_value_t = 10_000, group = "what")]
    seeds: u64,
    /// The first seed
    #[arg(long, value_name = "N", default_value_t = 0)]
    from: u64,
    /// Play one schedule and print every step
    #[arg(long, value_name = "N", group = "what")]
    seed: Option<u64>,
    /// Play every schedule of a few clients, up to a fixed number of choices
    #[arg(long, group = "what")]
    search: bool,
    /// Write the figures to this file, as Markdown
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

/// Runs what the command line selects.
pub fn command() -> ExitCode {
    let options = Options::parse();
    let report = options.report.as_deref();
    match options.seed {
        Some(seed) => replay(seed),
        None if options.search => exhaust(report),
        None => run(options.from, options.seeds, report),
    }
}

/// Plays one schedule, and prints all its steps.
fn replay(seed: u64) -> ExitCode {
    let played = play(seed, usize::MAX);
    for step in &played.trace {
        println!("{step}");
    }
    println!("seed {seed}: {} steps, {:?}", played.steps, played.tally);
    let Some(violation) = played.violation else { return ExitCode::SUCCESS };
    println!("{violation}");
    ExitCode::FAILURE
}

fn run(from: u64, seeds: u64, file: Option<&Path>) -> ExitCode {
    let series = play_all(from, seeds);
    if !write_report(&report::schedules(&series), file) {
        return ExitCode::FAILURE;
    }
    for (n, (seed, violation)) in series.violations.iter().take(SHOWN).enumerate() {
        eprintln!("\nseed {seed}: {violation}");
        if n == 0 {
            for step in play(*seed, TAIL).trace {
                eprintln!("{step}");
            }
        }
        eprintln!("play it again: cargo xtask sim --seed {seed}");
    }
    ExitCode::from(u8::from(!series.violations.is_empty()))
}

/// Plays every schedule of a few clients, up to a fixed number of choices.
fn exhaust(file: Option<&Path>) -> ExitCode {
    let searches = SEARCHES.map(|(opening, depth)| {
        let searched = Search { opening, depth }.run();
        if let Some((choices, violation)) = &searched.violation {
            eprintln!("{opening:?}, {choices:?}: {violation}");
        }
        (opening, depth, searched)
    });
    let holds = searches.iter().all(|(.., s)| s.violation.is_none());
    let written = write_report(&report::searches(&searches), file);
    ExitCode::from(u8::from(!(holds && written)))
}

/// Prints a report, and writes it to a file if one is given.
fn write_report(report: &str, file: Option<&Path>) -> bool {
    print!("{report}");
    let Some(file) = file else { return true };
    let written = std::fs::write(file, report);
    written.inspect_err(|error| eprintln!("{}: {error}", file.display())).is_ok()
}
