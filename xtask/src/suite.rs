//! Command `cargo xtask test`: runs the test suite on every supported version of etcd, and on the embedded etcd.

use std::env;
use std::fmt::{self, Display, Formatter};
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::etcd::{self, Etcd};
use crate::options::Args;
use crate::process::Process;
use crate::{Result, outside, say, workspace};

/// Supported versions, the newest first. The whole workspace is tested on the newest.
const VERSIONS: [&str; 4] = ["3.7", "3.6", "3.5", "3.4"];

/// Name filters of the tests that depend on the server. These tests also run on the older versions.
const DEPEND_ON_SERVER: &[&str] = &[
    "exclusion::",
    "loss::",
    // Restores, restarts and changes of members.
    "restore::",
    "history::",
    "outages::",
    "no_space::",
    "members::",
    "endpoints::",
    "clusters::",
    // Authentication.
    "credentials::",
    "permissions::",
    "refused_writes::",
    "rotation::",
    // Contenders of other clients.
    "foreign::",
    "grpc_proxy::",
    // Comparison with the embedded etcd.
    "fresh::",
    "random::",
];

/// Number of test threads on an embedded etcd. These tests mostly wait, for example until leases expire, so many can wait at once.
const THREADS_ON_EMBEDDED: &str = "8";

/// Number of test threads on a real etcd. The tests mostly wait here too, but etcd's processes need the processor.
const THREADS: &str = "6";

/// Targets whose tests run on any etcd.
const PROMISES: [&str; 4] = ["--test", "it", "--test", "differential"];

pub(crate) fn test(mut args: Args) -> Result<String> {
    let (every_version, choice) = (args.flag("--every-version"), args.etcd()?);
    let args = args.rest();
    let Some(choice) = choice else { return test_on_all(every_version, &args) };
    let etcd = etcd::find(Some(&choice))?;
    say::step(format_args!("the promises, on etcd {}", etcd.version));
    let tally = count(only(suite(&etcd), &PROMISES, &args).args(&args))?;
    Ok(format!("test: ok — {tally}: the promises on etcd {}", etcd.version))
}

/// Tests on one etcd.
struct Run {
    etcd: String,
    what: &'static str,
    cargo: Command,
    /// Outcome, as the table shows it.
    outcome: String,
}

impl Run {
    fn new(etcd: &str, what: &'static str, cargo: Command) -> Self {
        Self { etcd: etcd.to_owned(), what, cargo, outcome: "not reached".to_owned() }
    }

    /// Runs the tests; returns how many passed.
    fn play(&mut self, args: &[String]) -> Result<usize> {
        say::step(format_args!("{}, on etcd {}", self.what, self.etcd));
        let begun = Instant::now();
        let tally = count(self.cargo.args(args));
        let seconds = begun.elapsed().as_secs();
        self.outcome = match &tally {
            Ok(tally) => format!("{tally}, in {seconds} s"),
            Err(error) => format!("FAILED after {seconds} s: {error}"),
        };
        tally.map(|tally| tally.run())
    }
}

fn test_on_all(every_version: bool, args: &[String]) -> Result<String> {
    let (mut etcds, mut untested) = (Vec::new(), Vec::new());
    for version in VERSIONS {
        match etcd::find(Some(&version.parse()?)) {
            Ok(etcd) => etcds.push(etcd),
            Err(reason) => untested.push(format!("   etcd {version:9} untested: {reason}")),
        }
    }
    if !untested.is_empty() {
        eprintln!("{}", untested.join("\n"));
        if every_version {
            return Err("not every version is available".to_owned());
        }
    }
    let Some((newest, older)) = etcds.split_first() else {
        return Err("no etcd is available".to_owned());
    };

    let mut runs = vec![Run::new(&newest.version, "the whole workspace", suite(newest))];
    for etcd in older {
        let mut cargo = only(suite(etcd), &PROMISES, args);
        if args.is_empty() {
            cargo.arg("--").args(DEPEND_ON_SERVER);
        }
        runs.push(Run::new(&etcd.version, "server-dependent tests", cargo));
    }
    let mut cargo = only(suite(newest), &["--test", "it"], args);
    cargo.env("LOCK_TESTS_ON", "embedded").env("RUST_TEST_THREADS", THREADS_ON_EMBEDDED);
    runs.push(Run::new("embedded", "the promises", cargo));

    let played: Result<usize> =
        runs.iter_mut().try_fold(0, |passed, run| Ok(passed + run.play(args)?));
    println!();
    for Run { etcd, what, outcome, .. } in &runs {
        println!("   etcd {etcd:9} {what:26} {outcome}");
    }
    untested.iter().for_each(|line| println!("{line}"));
    let mut last = format!("test: ok — {} tests passed", played?);
    if args.is_empty() {
        outside::test(newest)?;
        last += ", and a crate outside the workspace runs";
    }
    Ok(last)
}

/// Counts of tests.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tally {
    /// Tests that cargo counts as passed, including those that were left out.
    passed: usize,
    ignored: usize,
    /// Tests that did not run and printed the reason.
    left_out: usize,
}

impl Tally {
    /// Returns the number of tests that ran and passed.
    fn run(&self) -> usize {
        self.passed.saturating_sub(self.left_out)
    }

    /// Counts a line of output: the result of a target, or of a test that is left out.
    fn add(&mut self, line: &str) {
        if let Some(counts) = line.strip_prefix("test result:") {
            let of = |what: &str| {
                let (before, _) = counts.split_once(what)?;
                before.split_whitespace().last()?.parse::<usize>().ok()
            };
            self.passed += of(" passed").unwrap_or(0);
            self.ignored += of(" ignored").unwrap_or(0);
        } else if line.contains(" left out: ") {
            self.left_out += 1;
        }
    }
}

impl Display for Tally {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let (run, left_out) = (self.run(), self.ignored + self.left_out);
        write!(out, "{run:4} passed, {left_out:3} left out")
    }
}

/// Runs `cargo test` with its output on the terminal, and counts its tests.
fn count(cargo: &mut Command) -> Result<Tally> {
    let mut tests = Process::start("cargo test", cargo.stdout(Stdio::piped()))?;
    let stdout = tests.streams().stdout.take();
    let mut stdout = BufReader::new(stdout.ok_or("cargo test has no output")?);
    let (mut tally, mut line) = (Tally::default(), Vec::new());
    let io = |error: io::Error| format!("cargo test: {error}");
    while stdout.read_until(b'\n', &mut line).map_err(io)? > 0 {
        io::stdout().write_all(&line).map_err(io)?;
        tally.add(&String::from_utf8_lossy(&line));
        line.clear();
    }
    let status = tests.wait(Duration::MAX)?;
    match status.success() {
        true => Ok(tally),
        false => Err(format!("cargo test: {status}")),
    }
}

/// Restricts `cargo test` to these targets, unless the arguments name others.
fn only(mut cargo: Command, targets: &[&str], args: &[String]) -> Command {
    if !args.iter().any(|arg| arg == "--test") {
        cargo.args(targets);
    }
    cargo
}

/// Returns the command that tests the whole workspace with all features on this etcd.
///
/// For a single package cargo would compile the same crates with other features, and leave out examples of the docs.
fn suite(etcd: &Etcd) -> Command {
    let mut cargo = workspace::cargo();
    cargo
        .args(["test", "--workspace", "--all-features"])
        .env_remove("LOCK_TESTS_ON")
        .env("ETCD_BIN", &etcd.server);
    if env::var_os("RUST_TEST_THREADS").is_none() {
        cargo.env("RUST_TEST_THREADS", THREADS);
    }
    cargo
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_tests_that_leave_themselves_out() {
        let mut tally = Tally::default();
        for line in [
            "running 9 tests",
            "test history::one ... ok",
            "test history::two ... left out: an embedded etcd makes no snapshot",
            "test result: ok. 7 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out; finished in 12.08s",
        ] {
            tally.add(line);
        }
        assert_eq!(tally, Tally { passed: 7, ignored: 2, left_out: 1 });
        assert_eq!(tally.to_string(), "   6 passed,   3 left out");
    }

    #[test]
    fn every_name_filter_matches_a_module() {
        let folders = ["tests/it", "tests/differential"].map(|it| workspace::root().join(it));
        let modules =
            folders.map(|folder| workspace::entries(&folder).expect("the modules")).concat();
        for part in DEPEND_ON_SERVER {
            let named = |path: &std::path::PathBuf| {
                path.file_stem().is_some_and(|it| format!("{}::", it.display()).contains(part))
            };
            assert!(modules.iter().any(named), "`{part}` chooses no test");
        }
    }
}
