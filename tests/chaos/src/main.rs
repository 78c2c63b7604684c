//! Torture of the whole library on a real cluster, run by `cargo xtask chaos`.

mod checker;
mod clock;
mod crew;
mod history;
mod login;
mod nemesis;
mod options;
mod report;
mod results;
mod run;
mod schedule;
mod stalls;
mod witness;
mod worker;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use etcd_locked_devkit::Result;

use self::history::{Event, What};
use self::options::{Command, Part};
use self::report::Report;
use self::witness::Witness;

/// Number of violations that are listed.
const LISTED: usize = 100;

fn main() -> ExitCode {
    let command = Command::parse();
    let well = match &command.part {
        Some(Part::Worker(worker)) => worker::run(worker).map(|()| true),
        None => carry_out(&command),
    };
    match well {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("chaos: failed — {error}");
            ExitCode::FAILURE
        }
    }
}

/// Plays or judges; returns true if no promise was broken.
fn carry_out(command: &Command) -> Result<bool> {
    // Checked first, because a run whose figures cannot be kept would waste its time.
    command.write.as_deref().map_or(Ok(Vec::new()), results::kept)?;
    let (played, histories) = match &command.judge[..] {
        [] => play(command).map(|(played, file)| (played, vec![file]))?,
        histories => (Ok(()), histories.to_vec()),
    };
    let mut well = true;
    for file in histories {
        let events =
            history::read(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        println!("{}", file.display());
        well &= judge(command, &events)?;
    }
    command.write.as_deref().map_or(Ok(()), results::write)?;
    played.map(|()| well)
}

/// Plays a run; returns how it ended, and the file that keeps its history.
fn play(command: &Command) -> Result<(Result<()>, PathBuf)> {
    etcd_locked_devkit::process::end_all_on_interrupt()?;
    let witness = Witness::start().map_err(|error| format!("no witness: {error}"))?;
    let played = run::play(&command.options, &witness);
    if let Err(error) = &played {
        let error = error.clone();
        witness.record(What::Failed { error });
    }
    Ok((played, keep(&command.keep, &witness.history())?))
}

/// Judges a history, and prints the verdicts.
fn judge(command: &Command, events: &[Event]) -> Result<bool> {
    let verdicts = checker::judge(events);
    let report = Report::of(events, &verdicts);
    println!("\n{}\n{}", report.faults_text(), report.measured_text());
    if let Some(folder) = &command.write {
        results::keep(folder, &report)?;
    }
    if verdicts.violations.is_empty() {
        if !report.error.is_empty() {
            println!("ended before its time: {}", report.error);
            return Ok(false);
        }
        println!(
            "chaos: ok — {} calls, {} served, {} faults in {:.0} s on etcd {}, seed {}: 0 violations",
            report.calls,
            report.served,
            report.faults(),
            report.seconds,
            report.run.etcd,
            report.run.seed
        );
        return Ok(true);
    }
    for (breach, many) in verdicts.counts() {
        println!("VIOLATED {many} times: {breach}");
    }
    let start = events.first().map_or(0, |event| event.at);
    for violation in verdicts.violations.iter().take(LISTED) {
        println!("{}", violation.line(start));
    }
    let (many, seed) = (verdicts.violations.len(), report.run.seed);
    println!("chaos: failed — {many} violations, seed {seed}");
    Ok(false)
}

/// Keeps a history in a file; returns its path.
fn keep(folder: &Path, events: &[Event]) -> Result<PathBuf> {
    let Some(What::Run(run)) = events.first().map(|event| &event.what) else {
        return Err("a history without its run".to_owned());
    };
    let file = folder.join(run.id() + ".jsonl.gz");
    let kept = fs::create_dir_all(folder).and_then(|()| history::write(&file, events));
    kept.map(|()| file).map_err(|error| format!("{}: {error}", folder.display()))
}
