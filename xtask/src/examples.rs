//! `cargo xtask examples`: runs every example with its check, several at a time, and prints a line for each.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use clap::builder::PossibleValue;
use tempfile::TempDir;

use crate::etcd::Etcd;
use crate::process::Process;
use crate::{Result, peers, say, workspace};

/// An example: label, title, and the module of the target `systems` with its tests.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row(&'static str, &'static str, &'static str);

const ROWS: &[Row] = &[
    Row("S0", "four conditions", "four_conditions"),
    Row("S1", "jetcd clients", "jetcd_clients"),
    Row("S2", "smallest revision", "smallest_revision"),
    Row("S3", "lock service", "lock_service"),
    Row("S4", "transaction lock", "transaction_lock"),
    Row("S5", "watchdog", "watchdog"),
    Row("S6", "zookeeper recipe", "zookeeper"),
    Row("S7", "etcdsync", "etcdsync"),
    Row("axum", "a service", "shop_axum"),
    Row("tonic", "a service", "shop_tonic"),
    Row("actix", "a service", "shop_actix"),
    Row("interop", "other languages", "interop"),
    Row("members", "cluster membership", "members"),
    Row("alarms", "etcd at its quota", "alarms"),
    Row("job", "one replica of three", "nightly"),
    Row("leader", "long holder, cut off", "leader"),
];

impl ValueEnum for Row {
    fn value_variants<'a>() -> &'a [Self] {
        ROWS
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.0).help(self.1))
    }
}

/// Number of rows at a time. Rows mostly wait, but some of them for leases of two seconds.
const AT_ONCE: usize = 4;

/// Limit of a row, longer than any single test takes before it gives up by itself.
const LIMIT: Duration = Duration::from_secs(240);

/// Runs these rows, or all.
pub(crate) fn examples(chosen: &[Row]) -> Result<String> {
    let rows = if chosen.is_empty() { ROWS } else { chosen };
    say::step("etcd");
    let etcd = Etcd::find()?;
    let current = Etcd::find_current(&etcd);
    let best = current.as_ref().unwrap_or(&etcd);
    say::step("building the examples (the first time takes a minute or two)");
    let tests = build()?;
    every_test_has_a_row(&tests)?;

    say::step(format_args!(
        "{} rows, each on etcd {} of its own",
        rows.len(),
        etcd.version
    ));
    let scratch =
        tempfile::tempdir().map_err(|error| format!("no temporary directory: {error}"))?;
    let run = |row: Row| {
        let mut command = Command::new(&tests);
        command
            .current_dir(workspace::root())
            .args([
                &format!("{}::", row.2),
                "--test-threads=4",
                "--include-ignored",
                "--show-output",
            ])
            .envs(brought(row)?)
            .env("RUST_BACKTRACE", "0") // the printed and the expected lines are enough
            .envs(etcd.variables(best));
        run(row, command, &scratch)
    };
    let failed = run_all(rows, run);
    if failed.is_empty() {
        let count = rows.len();
        return Ok(format!("examples: ok — {count} rows, each as it should be"));
    }
    for (row, output) in &failed {
        eprintln!("\n== {} {}\n{}", row.0, row.1, output.trim_end());
    }
    let failed: Vec<_> = failed.iter().map(|(row, _)| row.0).collect();
    Err(format!("{} is not as it should be", failed.join(", ")))
}

/// Brings what a row needs and not every machine has. The tests that need it are ignored elsewhere.
fn brought(row: Row) -> Result<Vec<(&'static str, PathBuf)>> {
    if row.0 != "interop" {
        return Ok(Vec::new());
    }
    let go = peers::go("examples/interop/go", "contender")?;
    let python = peers::python()?;
    Ok(vec![
        ("INTEROP_GO", go.program),
        ("INTEROP_PYTHON", python.interpreter),
        ("INTEROP_PYTHON_PACKAGES", python.packages),
    ])
}

/// Builds the tests and the examples, and returns the tests' executable.
fn build() -> Result<PathBuf> {
    let options = ["--package", "etcd-locked-examples", "--test", "systems"];
    workspace::build_test(&options, "systems")
}

/// Refuses a module of tests that is in no row: it would not be run, and its absence would not be noticed.
fn every_test_has_a_row(tests: &Path) -> Result<()> {
    let listed = crate::process::output(Command::new(tests).args(["--list", "--format=terse"]))?;
    let lost = listed.lines().find(|test| {
        let module = test.split("::").next().unwrap_or_default();
        ROWS.iter().all(|row| row.2 != module)
    });
    match lost {
        Some(test) => Err(format!("no row of xtask/src/examples.rs has `{test}`")),
        None => Ok(()),
    }
}

/// Runs all rows and prints their lines in order, each as early as the order allows. Returns failed rows with their output.
fn run_all(rows: &[Row], run: impl Fn(Row) -> Result<()> + Sync) -> Vec<(Row, String)> {
    let next = Mutex::new(rows.iter().copied().enumerate());
    let (done, ended) = channel();
    let work = |done: Sender<(usize, Result<()>)>| {
        loop {
            let taken = next.lock().ok().and_then(|mut next| next.next());
            let Some((at, row)) = taken else { return };
            say::note(format_args!("{} begins: {}", row.0, row.1));
            let begun = Instant::now();
            let result = run(row);
            let verdict = if result.is_ok() {
                "as it should be"
            } else {
                "NOT as it should be"
            };
            say::note(format_args!(
                "{} {verdict}, after {:.0} s",
                row.0,
                begun.elapsed().as_secs_f64()
            ));
            if done.send((at, result)).is_err() {
                return;
            }
        }
    };
    let title = rows.iter().map(|row| row.1.len()).max().unwrap_or(0);
    let label = rows.iter().map(|row| row.0.len()).max().unwrap_or(0);
    let mut results: Vec<Option<Result<()>>> = rows.iter().map(|_| None).collect();
    let mut printed = 0;
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            let (work, done) = (&work, done.clone());
            scope.spawn(move || work(done));
        }
        drop(done);
        for (at, result) in ended {
            results[at] = Some(result);
            while let Some(Some(result)) = results.get(printed) {
                let verdict = if result.is_ok() { "ok" } else { "FAILED" };
                println!(
                    "{:label$}  {:title$}  {verdict}",
                    rows[printed].0, rows[printed].1
                );
                printed += 1;
            }
        }
    });
    let results = rows.iter().copied().zip(results.into_iter().flatten());
    results
        .filter_map(|(row, result)| Some((row, result.err()?)))
        .collect()
}

/// Runs one row; the error is its whole output.
fn run(row: Row, mut command: Command, scratch: &TempDir) -> Result<()> {
    let io = |error: std::io::Error| format!("no place for the output of {}: {error}", row.0);
    let path = scratch.path().join(row.2);
    let output = File::create(&path).map_err(io)?;
    command
        .stdin(Stdio::null())
        .stdout(output.try_clone().map_err(io)?)
        .stderr(output);
    let status = Process::start(row.2, &mut command)?.wait(LIMIT);
    let printed = fs::read_to_string(&path).map_err(io)?;
    match status {
        Ok(status) if status.success() && !printed.contains("\nrunning 0 tests") => {
            for left_out in printed
                .lines()
                .filter(|line| line.starts_with("left out: "))
            {
                say::note(format_args!("{} {left_out}", row.0));
            }
            Ok(())
        }
        Ok(status) if status.success() => Err(format!("there is no test `{}::…`", row.2)),
        Ok(_) => Err(printed),
        Err(error) => Err(format!("{error}\n{printed}")),
    }
}
