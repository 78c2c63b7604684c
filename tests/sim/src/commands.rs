//! Commands of the simulator: schedules, one schedule in words, the exhaustive search, and the mistakes it must find.

use std::process::ExitCode;

use crate::mistakes;
use crate::report;
use crate::search::{SEARCHES, Search};
use crate::series::play_all;
use crate::world::schedules::play;

const USAGE: &str = "\
usage: etcd-locked-sim [--seeds N] [--from N] [--report FILE]
       etcd-locked-sim --seed N
       etcd-locked-sim --search [--report FILE]
       etcd-locked-sim --mistakes [--report FILE]

  --seeds N      plays so many schedules (10000)
  --from N       the first of them (0)
  --report FILE  writes the figures there, as Markdown
  --seed N       plays one, every step in words
  --search       plays every schedule of a few clients, as far as so many choices lead
  --mistakes     has cores make one mistake at a time, and finds each
";

/// Steps printed of a schedule that failed.
const TAIL: usize = 40;
/// Failures printed.
const SHOWN: usize = 5;

/// What is to be played.
#[derive(Debug, Clone, Copy)]
enum Play {
    Schedules,
    One(u64),
    Search,
    Mistakes,
}

/// Carries out what the arguments ask for; they begin after the program's name.
pub fn command(mut args: impl Iterator<Item = String>) -> ExitCode {
    let (mut seeds, mut from, mut report, mut what) = (10_000, 0, None, Play::Schedules);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--search" => what = Play::Search,
            "--mistakes" => what = Play::Mistakes,
            _ => {}
        }
        if matches!(arg.as_str(), "--search" | "--mistakes") {
            continue;
        }
        let value = args.next();
        let number = value.as_deref().and_then(|v| v.parse::<u64>().ok());
        match (arg.as_str(), number) {
            ("--seeds", Some(n)) => seeds = n,
            ("--from", Some(n)) => from = n,
            ("--seed", Some(n)) => what = Play::One(n),
            ("--report", _) if value.is_some() => report = value,
            _ => {
                eprint!("{USAGE}");
                return ExitCode::from(2);
            }
        }
    }
    match what {
        Play::One(seed) => replay(seed),
        Play::Search => exhaust(report.as_deref()),
        Play::Mistakes => seek(report.as_deref()),
        Play::Schedules => run(from, seeds, report.as_deref()),
    }
}

/// Plays one schedule, and prints all of it.
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

/// Plays every schedule of a few clients, as far as a fixed number of choices leads.
fn exhaust(file: Option<&str>) -> ExitCode {
    let searches = SEARCHES.map(|(opening, depth)| {
        let searched = Search::new(opening, depth, || {}).run();
        if let Some((choices, violation)) = &searched.violation {
            eprintln!("{opening:?}, {choices:?}: {violation}");
        }
        (opening, depth, searched)
    });
    let holds = searches.iter().all(|(.., s)| s.violation.is_none());
    let written = write_report(&report::searches(&searches), file);
    ExitCode::from(u8::from(!(holds && written)))
}

/// Has cores make each mistake, and finds it.
fn seek(file: Option<&str>) -> ExitCode {
    let sought = mistakes::seek_all();
    for found in &sought.mistakes {
        if let Some((seed, violation)) = &found.first {
            eprintln!("{:?}: seed {seed}, {violation}", found.mistake);
        }
    }
    let written = write_report(&report::mistakes(&sought), file);
    ExitCode::from(u8::from(!(sought.holds() && written)))
}

/// Prints a report, and writes it to a file if there is to be one.
fn write_report(report: &str, file: Option<&str>) -> bool {
    print!("{report}");
    match file.map(|file| std::fs::write(file, report)) {
        Some(Err(error)) => {
            eprintln!("{}: {error}", file.unwrap_or_default());
            false
        }
        _ => true,
    }
}
