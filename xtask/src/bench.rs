//! `cargo xtask bench --compile`: what the attribute costs a user while compiling (B11), and in the future's size (B12).
//! The other rows are in [`mod@speed`].
//!
//! Crates are generated below `target/compile`, in a workspace of their own, so that no feature of ours comes in by
//! unification. They are the same but for the attribute: `#[etcd_locked]` above each function, the same with a `guard`, above `impl`
//! blocks, or `#[tracing::instrument]` above each function.

mod generate;
mod speed;
mod telemetry;

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::process::output;
use crate::{Result, say, workspace};

pub(crate) use speed::speed;

const PAIRS: usize = 5;
/// `cargo check` and dev `cargo build`.
const COMMANDS: [&str; 2] = ["check", "build"];
/// What is compiled of ours, as the rows say it.
const WHAT: [&str; 3] = ["", ", with `guard`", ", of methods of annotated `impl` blocks"];
/// The most time ours may take, as a multiple of the peer's.
const MOST: f64 = 1.0;
/// The most bytes a future may grow by.
const GROWTH: usize = 64;

/// The crates that are compared: ours, and the peer's last.
fn sides() -> [&'static str; 4] {
    let [locked, guarded, methods] = generate::OURS;
    [locked, guarded, methods, generate::PEER]
}

pub(crate) fn compile() -> Result<String> {
    let bench = Bench::prepare()?;
    let mut report = Report::default();
    report.line("# What the attribute costs while compiling\n");
    report.line(format_args!(
        "Written by `cargo xtask bench --compile`, with {}.\n",
        output(Command::new(rustc()).arg("--version"))?.trim()
    ));
    bench.times(&mut report)?;
    bench.sizes(&mut report)?;

    let place = workspace::root().join("benches/COMPILE.md");
    workspace::write(&place, &report.text)?;
    print!("{}", report.text);
    if report.missed.is_empty() {
        Ok(format!("bench: ok — every target holds; {}", place.display()))
    } else {
        Err(format!("missed: {}", report.missed.join(", ")))
    }
}

#[derive(Default)]
struct Report {
    text: String,
    missed: Vec<String>,
}

impl Report {
    fn line(&mut self, line: impl std::fmt::Display) {
        // Writing to a string does not fail.
        let _ = writeln!(self.text, "{line}");
    }

    /// Begins a row with both sides, and answers how they compare.
    fn ratio(&mut self, row: &str, sides: [Vec<Duration>; 2]) -> f64 {
        let [ours, theirs] = sides.map(Spread::of);
        let ratio = ours.median / theirs.median;
        let _ = write!(self.text, "| {row} | {ours} | {theirs} | {ratio:.2} | ");
        ratio
    }

    /// Says whether a target holds, and remembers if not.
    fn holds(&mut self, row: &str, holds: bool) -> &'static str {
        if holds {
            return "holds";
        }
        self.missed.push(row.to_owned());
        "**missed**"
    }
}

struct Bench {
    folder: PathBuf,
}

impl Bench {
    /// Writes the crates and builds what they depend on.
    fn prepare() -> Result<Self> {
        let folder = workspace::root().join("target/compile");
        say::step(format_args!(
            "four crates of {} functions, below target/compile",
            generate::FUNCTIONS
        ));
        for (path, text) in generate::workspace() {
            workspace::write(folder.join(path), text)?;
        }
        // The versions we test with, and nothing to look up.
        let lock = workspace::root().join("Cargo.lock");
        workspace::copy(lock, folder.join("Cargo.lock"))?;
        let bench = Self { folder };
        for command in COMMANDS {
            for side in sides() {
                let cost = bench.run(command, side)?;
                say::note(format_args!(
                    "cargo {command} of `{side}` and what it depends on: {:.1?}",
                    cost.elapsed
                ));
            }
        }
        Ok(bench)
    }

    /// B11: all in turn, so that whatever else the machine does hits each of them.
    fn times(&self, report: &mut Report) -> Result<()> {
        report.line(format_args!(
            "## B11: a crate of {} annotated functions, dependencies built, `CARGO_INCREMENTAL=0`\n",
            generate::FUNCTIONS
        ));
        report.line(format_args!(
            "Seconds, medians of {PAIRS} runs in turn (fastest to slowest); the target is a ratio of at most {MOST:.1} in \
             elapsed time. Processor time, where the system tells it, is what a busy machine does not blur.\n"
        ));
        report.line("| | `#[etcd_locked]` | `#[tracing::instrument]` | ratio | |");
        report.line("|---|---|---|---|---|");
        for command in COMMANDS {
            say::step(format_args!("cargo {command}, {PAIRS} times each"));
            let (mut elapsed, mut processor) =
                ([(); 4].map(|()| Vec::new()), [(); 4].map(|()| Vec::new()));
            for _ in 0..PAIRS {
                for (at, side) in sides().into_iter().enumerate() {
                    self.touch(side)?;
                    let cost = self.run(command, side)?;
                    say::note(format_args!("`{side}`: {:.2?}", cost.elapsed));
                    elapsed[at].push(cost.elapsed);
                    processor[at].extend(cost.processor);
                }
            }
            let is_told = processor.iter().all(|side| side.len() == PAIRS);
            let ([elapsed @ .., theirs], [processor @ .., theirs_of_processor]) =
                (elapsed, processor);
            for ((what, elapsed), processor) in WHAT.into_iter().zip(elapsed).zip(processor) {
                let ratio =
                    report.ratio(&format!("`cargo {command}`{what}"), [elapsed, theirs.clone()]);
                let holds =
                    report.holds(&format!("B11 cargo {command}{what} ({ratio:.2})"), ratio <= MOST);
                report.line(format_args!("{holds} |"));
                if is_told {
                    report.ratio("its processor time", [processor, theirs_of_processor.clone()]);
                    report.line(" |");
                }
            }
        }
        report.line("");
        Ok(())
    }

    /// B12: as the sizes program says, one line a body.
    fn sizes(&self, report: &mut Report) -> Result<()> {
        say::step("sizes of futures");
        let mut cargo = self.cargo("run");
        let printed = output(cargo.args(["--quiet", "--package", generate::SIZES]))?;
        report.line("## B12: size of the future, in bytes\n");
        report.line(format_args!(
            "The target is at most {GROWTH} more than without the attribute.\n"
        ));
        report.line("| body | plain | annotated | more | |");
        report.line("|---|---|---|---|---|");
        for line in printed.lines() {
            let unreadable = || format!("the sizes program says `{line}`");
            let mut cells = line.split('\t');
            let mut cell = || cells.next().ok_or_else(unreadable);
            let (body, plain, annotated) = (cell()?, cell()?, cell()?);
            let number = |cell: &str| cell.parse::<usize>().map_err(|_| unreadable());
            let more = number(annotated)?.saturating_sub(number(plain)?);
            let holds = report.holds(&format!("B12 {body} (+{more})"), more <= GROWTH);
            report.line(format_args!("| {body} | {plain} | {annotated} | {more} | {holds} |"));
        }
        Ok(())
    }

    /// Makes cargo compile a crate again, and only that.
    fn touch(&self, peer: &str) -> Result<()> {
        let file = self.folder.join(peer).join("lib.rs");
        workspace::write(&file, workspace::read(&file)?)
    }

    /// How long cargo takes for a crate.
    fn run(&self, command: &str, peer: &str) -> Result<Cost> {
        let mut cargo = self.cargo(command);
        let (start, before) = (Instant::now(), processor_time());
        output(cargo.args(["--quiet", "--package", peer]))?;
        Ok(Cost {
            elapsed: start.elapsed(),
            processor: processor_time()
                .zip(before)
                .and_then(|(after, before)| after.checked_sub(before)),
        })
    }

    fn cargo(&self, command: &str) -> Command {
        let mut cargo = workspace::cargo();
        cargo
            .arg(command)
            .arg("--manifest-path")
            .arg(self.folder.join("Cargo.toml"))
            .arg("--target-dir")
            .arg(self.folder.join("target"))
            .env("CARGO_INCREMENTAL", "0");
        // What would change the code of one side only, or of neither.
        for flags in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS"] {
            cargo.env_remove(flags);
        }
        cargo
    }
}

/// What one run of cargo took.
struct Cost {
    elapsed: Duration,
    processor: Option<Duration>,
}

/// Of all processes we have waited for, and those they have, if this is a Linux: `cutime` and `cstime` of proc(5).
fn processor_time() -> Option<Duration> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    let (_, fields) = stat.rsplit_once(") ")?; // past the name, which may hold anything
    let ticks = fields.split(' ').skip(13).take(2);
    let ticks: u64 = ticks.map(str::parse::<u64>).sum::<std::result::Result<_, _>>().ok()?;
    Some(Duration::from_millis(ticks * 10)) // a hundred a second on every Linux
}

/// Several times of one thing.
struct Spread {
    fastest: f64,
    median: f64,
    slowest: f64,
}

impl Spread {
    fn of(mut times: Vec<Duration>) -> Self {
        times.sort();
        let seconds = |at: usize| times.get(at).map_or(f64::NAN, Duration::as_secs_f64);
        Self {
            fastest: seconds(0),
            median: seconds(times.len() / 2),
            slowest: seconds(times.len().saturating_sub(1)),
        }
    }
}

impl std::fmt::Display for Spread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { fastest, median, slowest } = self;
        write!(f, "{median:.2} ({fastest:.2} to {slowest:.2})")
    }
}

fn rustc() -> std::ffi::OsString {
    std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_one() {
        let spread = Spread::of([3, 1, 2, 9, 8].map(Duration::from_secs).to_vec());
        assert_eq!(spread.to_string(), "3.00 (1.00 to 9.00)");
    }

    #[test]
    fn a_missed_target_is_remembered() {
        let mut report = Report::default();
        assert_eq!(report.holds("one", true), "holds");
        assert_eq!(report.holds("two", false), "**missed**");
        assert_eq!(report.missed, ["two"]);
    }
}
