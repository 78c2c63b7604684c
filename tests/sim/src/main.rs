//! The simulator: production cores against an etcd, a network and a nemesis that one seed decides.
//!
//! `cargo xtask sim` builds and runs it; what it must find is in `seeded/`.

// The very files of the library. What only its engine and its face call is dead here.
#[allow(dead_code, unreachable_pub)]
#[path = "../../../runtime/src/clock.rs"]
mod clock;
#[allow(dead_code)]
#[path = "../../../runtime/src/core/mod.rs"]
mod core;
#[allow(dead_code, unreachable_pub)]
#[path = "../../../runtime/src/values/cycle.rs"]
mod cycle;
#[allow(dead_code, unreachable_pub)]
#[path = "../../../runtime/src/values/error.rs"]
mod error;
#[allow(dead_code, unreachable_pub)]
#[path = "../../../runtime/src/values/holder.rs"]
mod holder;
#[allow(dead_code, unreachable_pub, unexpected_cfgs)] // it has features, we have none
#[path = "../../../runtime/src/values/name.rs"]
mod name;
#[allow(dead_code, unreachable_pub)]
#[path = "../../../runtime/src/values/wait.rs"]
mod site;

mod report;
#[cfg(test)]
mod rules;
mod search;
mod series;
mod world;

use std::process::ExitCode;

use crate::search::{SEARCHES, Search};
use crate::series::play_all;
use crate::world::schedules::play;

const USAGE: &str = "\
usage: etcd-locked-sim [--seeds N] [--from N] [--report FILE]
       etcd-locked-sim --seed N
       etcd-locked-sim --search [--report FILE]

  --seeds N      plays so many schedules (10000)
  --from N       the first of them (0)
  --report FILE  writes the figures there, as Markdown
  --seed N       plays one, every step in words
  --search       plays every schedule of a few clients, as far as so many choices lead
";

/// The steps told of a schedule that failed.
const TAIL: usize = 40;
/// The failures told.
const TOLD: usize = 5;

fn main() -> ExitCode {
    let (mut seeds, mut from, mut one, mut report, mut search) = (10_000, 0, None, None, false);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        if arg == "--search" {
            search = true;
            continue;
        }
        let value = args.next();
        let number = value.as_deref().and_then(|v| v.parse::<u64>().ok());
        match (arg.as_str(), number) {
            ("--seeds", Some(n)) => seeds = n,
            ("--from", Some(n)) => from = n,
            ("--seed", Some(n)) => one = Some(n),
            ("--report", _) if value.is_some() => report = value,
            _ => {
                eprint!("{USAGE}");
                return ExitCode::from(2);
            }
        }
    }
    match one {
        Some(seed) => replay(seed),
        None if search => exhaust(report.as_deref()),
        None => run(from, seeds, report.as_deref()),
    }
}

/// Plays one schedule, and tells all of it.
fn replay(seed: u64) -> ExitCode {
    let played = play(seed, usize::MAX);
    for step in &played.trace {
        println!("{step}");
    }
    println!(
        "seed {seed}: {} steps, {} grants",
        played.steps, played.grants
    );
    match played.violation {
        None => ExitCode::SUCCESS,
        Some(violation) => {
            println!("{violation}");
            ExitCode::FAILURE
        }
    }
}

fn run(from: u64, seeds: u64, file: Option<&str>) -> ExitCode {
    let series = play_all(from, seeds, false, false, || {});
    if !told(&report::schedules(&series), file) {
        return ExitCode::FAILURE;
    }
    for (n, (seed, violation)) in series.violations.iter().take(TOLD).enumerate() {
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

/// Plays every schedule there is, of a few clients.
fn exhaust(file: Option<&str>) -> ExitCode {
    let searches = SEARCHES.map(|(opening, depth)| {
        let searched = Search::new(opening, depth, || {}).run();
        if let Some((choices, violation)) = &searched.violation {
            eprintln!("{opening:?}, {choices:?}: {violation}");
        }
        (opening, depth, searched)
    });
    let holds = searches.iter().all(|(.., s)| s.violation.is_none());
    let written = told(&report::searches(&searches), file);
    ExitCode::from(u8::from(!(holds && written)))
}

/// Prints a report, and writes it to a file if there is to be one.
fn told(report: &str, file: Option<&str>) -> bool {
    print!("{report}");
    match file.map(|file| std::fs::write(file, report)) {
        Some(Err(error)) => {
            eprintln!("{}: {error}", file.unwrap_or_default());
            false
        }
        _ => true,
    }
}
