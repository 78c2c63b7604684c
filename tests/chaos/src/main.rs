//! Torture of the whole library on a real cluster: `cargo xtask chaos`.

mod checker;
mod clock;
mod crew;
mod history;
mod login;
mod nemesis;
mod options;
mod plot;
mod report;
mod results;
mod run;
mod schedule;
mod stalls;
mod timeline;
mod witness;
mod worker;

use std::error::Error;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use etcd_locked_devkit::Result;

use self::history::{Event, Run, What};
use self::options::{Command, Part, Who, Worker, word};
use self::report::Report;
use self::witness::Witness;
use self::worker::etcdctl;

/// How many violations are shown call by call.
const SHOWN: usize = 3;
/// How many more are listed, one line each.
const LISTED: usize = 100;

fn main() -> ExitCode {
    let command = Command::parse();
    match &command.part {
        Some(Part::Worker(worker)) => return work(worker),
        Some(Part::Body(body)) => return ended("body", etcdctl::run_body(body)),
        None => {}
    }
    match carry_out(&command) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("chaos: failed — {error}");
            ExitCode::FAILURE
        }
    }
}

fn work(worker: &Worker) -> ExitCode {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let done = match runtime {
        Ok(runtime) => runtime.block_on(worker::work(worker)),
        Err(error) => Err(error.into()),
    };
    ended("worker", done)
}

/// The exit status of a worker or a body.
fn ended(who: &str, done: std::result::Result<(), Box<dyn Error>>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{who}: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Plays or judges; tells whether nothing was violated.
fn carry_out(command: &Command) -> Result<bool> {
    let done = match &command.judge[..] {
        [] => {
            // A run whose figures could not be kept is not worth its time.
            command.write.as_deref().map_or(Ok(()), results::check)?;
            play(command)
        }
        files => judge_all(command, files),
    };
    // A run that ended in an error is counted too.
    let written = command.write.as_deref().map_or(Ok(()), results::write);
    done.and_then(|well| written.map(|()| well))
}

fn judge_all(command: &Command, files: &[PathBuf]) -> Result<bool> {
    let mut well = true;
    for file in files {
        let events = history::read(file).map_err(|error| format!("{}: {error}", file.display()))?;
        println!("{}", file.display());
        well &= judge(command, &events)?;
    }
    Ok(well)
}

fn play(command: &Command) -> Result<bool> {
    etcd_locked_devkit::process::end_all_on_interrupt()?;
    let witness = Witness::start().map_err(|error| format!("no witness: {error}"))?;
    let played = run::play(&command.options, &witness);
    if let Err(error) = &played {
        let error = error.clone();
        witness.record(What::Failed { error });
    }
    let events = witness.history();
    // What is kept first is not lost if it cannot be judged.
    println!("its history: {}", keep(command, &events)?);
    let judged = judge(command, &events);
    played.and(judged)
}

/// Judges a history, and says what it comes to.
fn judge(command: &Command, events: &[Event]) -> Result<bool> {
    let verdicts = checker::judge(events);
    let report = Report::of(events, &verdicts);
    println!("\n{}", report.text());
    if let Some(folder) = &command.write {
        results::keep(folder, &report, events)?;
    }
    if verdicts.violations.is_empty() {
        if !report.error.is_empty() {
            println!("ended before its time: {}", report.error);
            return Ok(false);
        }
        println!(
            "chaos: ok — {} calls, {} served, {} faults in {:.0} s on etcd {}: 0 violations",
            report.calls(),
            report.served(),
            report.faults(),
            report.seconds,
            report.run.etcd
        );
        return Ok(true);
    }
    for (breach, many) in verdicts.counts() {
        println!("VIOLATED {many} times: {}", word(breach));
    }
    for violation in verdicts.violations.iter().take(SHOWN) {
        let short = timeline::shortened(events, violation);
        println!("\n{}", timeline::lines(&short, violation));
    }
    for violation in verdicts.violations.iter().skip(SHOWN).take(LISTED) {
        println!("{}", timeline::summary(events, violation));
    }
    println!("the same schedule again: {}", again(&report.run));
    println!("chaos: failed — {} violations", verdicts.violations.len());
    Ok(false)
}

/// Keeps a history in a file; returns its path.
fn keep(command: &Command, events: &[Event]) -> Result<String> {
    let run = events.iter().find_map(|event| match &event.what {
        What::Run(run) => Some(run.id()),
        _ => None,
    });
    let run = run.ok_or("a history without its run")?;
    let file = command.keep.join(run + ".jsonl.gz");
    let wrong = |error| format!("{}: {error}", file.display());
    fs::create_dir_all(&command.keep).map_err(wrong)?;
    history::write(&file, events).map_err(wrong)?;
    Ok(file.display().to_string())
}

/// The command that plays a run's schedule once more.
fn again(run: &Run) -> String {
    let (seed, mix, minutes) = (run.seed, &run.mix, run.seconds as f64 / 60.0);
    let mut command = format!("cargo xtask chaos --seed {seed} --mix {mix} --minutes {minutes:.1}");
    match run.who.parse() {
        Ok(Who::Ours) => {}
        Ok(Who::Mistaken(mistake)) => command += &format!(" --sabotage {}", word(mistake)),
        _ => command += &format!(" --peer {}", run.who),
    }
    if !run.etcd.is_empty() {
        command += &format!(" --etcd {}", run.etcd);
    }
    for kind in &run.only {
        command += &format!(" --only \"{kind}\"");
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_whose_figures_do_not_mix_is_not_played() {
        let folder = std::env::temp_dir().join(format!("chaos-{}", std::process::id()));
        let keep = folder.join("keep");
        fs::create_dir_all(folder.join("runs")).expect("a folder");
        fs::write(folder.join("runs/old.json"), "{}").expect("a run");
        let args = ["chaos".as_ref(), "--write".as_ref(), folder.as_os_str()];
        let keeps = ["--keep".as_ref(), keep.as_os_str()];
        let refused = carry_out(&Command::parse_from(args.iter().chain(&keeps)));
        let played = keep.exists();
        fs::remove_dir_all(&folder).expect("a folder of its own");
        let refused = refused.expect_err("a refusal");
        assert!(!played && refused.ends_with(": old.json"), "{refused}");
    }

    #[test]
    fn a_schedule_is_played_again_with_its_options() {
        let run = Run {
            seed: 7,
            mix: "exclusive".to_owned(),
            etcd: "3.5.16".to_owned(),
            who: "go".to_owned(),
            seconds: 90,
            only: vec!["leader frozen".to_owned()],
            ..Run::default()
        };
        assert_eq!(
            again(&run),
            "cargo xtask chaos --seed 7 --mix exclusive --minutes 1.5 --peer go --etcd 3.5.16 --only \"leader frozen\""
        );
    }
}
