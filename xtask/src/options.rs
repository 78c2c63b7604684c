//! Options of the command line.

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::etcd::{Choice, Etcd};
use crate::examples::Row;
use crate::{Result, say};

/// Brings what this machine lacks, then runs tests, demo, examples, simulator and benchmarks.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", max_term_width = 110)]
#[command(after_help = "\
Missing tools are brought into target/tools; ETCD_BIN chooses an etcd of your own, ETCDCTL_BIN its etcdctl.
`cargo xtask <COMMAND> --help` has the options of a command.")]
pub(crate) struct Options {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run three order services on a stock that is too small: without the lock, then with it
    Demo,
    /// Run the test suite: all on etcd 3.7, the promises on 3.4 and an embedded one, what depends on the server on 3.5 and 3.6
    ///
    /// With --etcd it runs the promises alone, on that etcd.
    Test {
        #[command(flatten)]
        asked: Asked,
        /// Fail if one of these versions is not available, instead of leaving it untested
        #[arg(long, conflicts_with = "etcd")]
        every_version: bool,
        /// Arguments of `cargo test`, such as a part of the tests' names
        #[arg(allow_hyphen_values = true)]
        args: Vec<String>,
        /// Arguments of the tests' own programs
        #[arg(last = true)]
        own: Vec<String>,
    },
    /// Run the systems of the literature and the services, each example with its checks, on real etcd
    Examples {
        /// Only these
        #[arg(ignore_case = true, value_name = "ROW")]
        rows: Vec<Row>,
    },
    /// Play random schedules (10000) of the production core against an etcd in process
    Sim {
        /// Play and search all, and find the bugs it must find; writes tests/sim/RESULTS.md
        #[arg(long)]
        write: bool,
        /// Arguments of the simulator: `--seeds N` plays so many schedules, `--seed N` one of them, every step in words, `--search`
        /// every schedule of a few clients, as far as so many choices lead; `-- --help` has them all
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Torture worker processes on a cluster of three, with faults of processes, members and connections; a checker judges
    ///
    /// Without --etcd it is of the newest version, 3.7.
    Chaos(Chaos),
    /// Measure every row of performance, ours and the peers one after the other; writes benches/RESULTS.md and plots
    ///
    /// B18 is on a cluster of three with half a millisecond between any two, B19 counts what a release sets off, B20 compares programs
    /// with and without spans and metrics.
    Bench(Bench),
    /// Build the book, check its links and run its examples; brings mdBook
    Book,
    /// Pack what is published, and build a crate and the command line from the packed form
    Package,
    /// Find or bring etcd, and print the variable that tests read, as a shell assignment
    Etcd {
        /// As for --etcd: `newest`, a version such as 3.7 or 3.5.35, or the path of an etcd
        choice: Option<Choice>,
    },
    /// Run the protoc that a crate carries (`xtask/protoc` prefers the machine's)
    #[command(disable_help_flag = true)]
    Protoc {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
}

/// Which etcd to use.
#[derive(Debug, Args)]
pub(crate) struct Asked {
    /// The etcd: `newest` (3.7), a version such as 3.4 or 3.5.35, or the path of an etcd
    #[arg(long, value_name = "CHOICE")]
    pub(crate) etcd: Option<Choice>,
}

impl Asked {
    /// Finds the etcd that was asked for, else the one of this machine.
    pub(crate) fn find(&self) -> Result<Etcd> {
        say::step("etcd");
        self.etcd.as_ref().map_or_else(Etcd::find, Choice::find)
    }
}

/// Options of `chaos`.
#[derive(Debug, Args)]
pub(crate) struct Chaos {
    #[command(flatten)]
    pub(crate) asked: Asked,
    /// How long, in minutes: a half at least [default: 1]
    #[arg(long, value_name = "N")]
    minutes: Option<f64>,
    /// Which calls: all, exclusive, together, groups or hasty [default: all]
    #[arg(long, value_name = "NAME")]
    pub(crate) mix: Option<String>,
    /// Number that decides which faults come when [default: any]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Only this kind of fault, such as "worker stopped"; may be said again
    #[arg(long, value_name = "FAULT")]
    only: Vec<String>,
    /// A mistake that our workers make on purpose
    #[arg(long, value_name = "NAME")]
    sabotage: Option<String>,
    /// Whose calls are tortured instead of ours: the same ones, as far as it has them
    #[arg(long)]
    pub(crate) peer: Option<Peer>,
    /// Where histories are kept [default: target/chaos]
    #[arg(long, value_name = "FOLDER", value_parser = absolute)]
    keep: Option<PathBuf>,
    /// Only judge histories that were kept
    #[arg(long, value_name = "FILE", num_args = 1.., value_parser = absolute)]
    judge: Vec<PathBuf>,
    /// Use the program that `cargo xtask test` has built: sooner there, and slower
    #[arg(long)]
    pub(crate) unoptimised: bool,
    /// Keep the figures: writes tests/chaos/RESULTS.md and its plot
    #[arg(long, conflicts_with = "unoptimised")]
    pub(crate) write: bool,
}

impl Chaos {
    /// Whether nothing is to be played.
    pub(crate) fn judges(&self) -> bool {
        !self.judge.is_empty()
    }

    /// The arguments of its runner: the options that were given here.
    pub(crate) fn args(&self) -> Vec<String> {
        let peer = self.peer.and_then(|peer| peer.to_possible_value());
        [
            passed_on("minutes", self.minutes),
            passed_on("mix", self.mix.as_ref()),
            passed_on("seed", self.seed),
            passed_on("only", &self.only),
            passed_on("sabotage", self.sabotage.as_ref()),
            passed_on("peer", peer.iter().map(|peer| peer.get_name())),
            passed_on("keep", self.keep.iter().map(|it| it.display())),
            passed_on("judge", self.judge.iter().map(|it| it.display())),
        ]
        .concat()
    }
}

/// A peer of `chaos`.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Peer {
    /// concurrency.Mutex of the Go client
    Go,
    /// The lock of Python's aetcd
    Aetcd,
    /// The lock service of etcd's server, by etcd-client
    LockService,
    /// `etcdctl lock` with a command
    Etcdctl,
}

/// Options of `bench`.
#[derive(Debug, Args)]
pub(crate) struct Bench {
    #[command(flatten)]
    pub(crate) asked: Asked,
    /// Only this row, such as B4; may be said again
    #[arg(long = "row", value_name = "ROW")]
    pub(crate) rows: Vec<String>,
    /// In less than five minutes and smaller; writes to target/bench
    #[arg(long)]
    pub(crate) quick: bool,
    /// Only these peers, separated by commas, such as go,plain
    #[arg(long)]
    peers: Option<String>,
    /// Rounds in which ours and each peer measure in turn [default: 5, with --quick 2]
    #[arg(long, value_name = "N")]
    pairs: Option<NonZeroUsize>,
    /// How long each of them measures [default: 3, with --quick 0.3]
    #[arg(long)]
    seconds: Option<f64>,
    /// Only what the attribute costs in compile time and in bytes; writes benches/COMPILE.md
    #[arg(long, exclusive = true)]
    pub(crate) compile: bool,
}

impl Bench {
    /// The arguments of its runner: the options that were given here.
    pub(crate) fn args(&self) -> Vec<String> {
        [
            passed_on("row", &self.rows),
            self.quick.then(|| "--quick".to_owned()).into_iter().collect(),
            passed_on("peers", self.peers.as_ref()),
            passed_on("pairs", self.pairs),
            passed_on("seconds", self.seconds),
        ]
        .concat()
    }
}

/// A path that is the same for a program that runs elsewhere.
fn absolute(path: &str) -> std::io::Result<PathBuf> {
    std::path::absolute(path)
}

/// An option of another program, with each of these values.
fn passed_on<T: ToString>(option: &str, values: impl IntoIterator<Item = T>) -> Vec<String> {
    let said = |value: T| [format!("--{option}"), value.to_string()];
    values.into_iter().flat_map(said).collect()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use clap::error::ErrorKind;

    use super::*;
    use crate::suite;

    fn parse(line: &str) -> Result<Command, ErrorKind> {
        let words = ["xtask"].into_iter().chain(line.split_whitespace());
        let options = Options::try_parse_from(words).map_err(|error| error.kind());
        options.map(|it| it.command)
    }

    #[test]
    fn the_command_line_is_consistent() {
        Options::command().debug_assert();
    }

    #[test]
    fn other_programs_get_their_arguments_as_they_are() {
        for (command, passed) in [
            ("test --etcd newest", "--test it fifo -- --nocapture"),
            ("test --etcd=newest", "-- --ignored"),
            ("test", "-p etcd-locked-core fifo --help -- --etcd newest"),
            ("test --every-version", "fifo"),
            ("sim --write", "--seeds 7"),
            (
                "chaos --etcd 3.4",
                "--minutes 0.5 --mix all --seed 925 --peer lock-service --judge /a.gz --judge /b.gz",
            ),
            ("bench", "--row B18 --quick --peers go,plain --pairs 1 --seconds 0.5"),
            ("protoc", "--version"),
            ("protoc", "-h --include_imports -oout -I . --help a.proto"),
        ] {
            let line = format!("{command} {passed}");
            let found = match parse(&line) {
                Ok(Command::Test { args, own, asked, every_version }) => {
                    assert_eq!(asked.etcd.is_some(), command.contains("--etcd"));
                    assert_eq!(every_version, command.contains("--every-version"));
                    suite::joined(args, own)
                }
                Ok(Command::Sim { args, .. }) => args,
                Ok(Command::Chaos(chaos)) => chaos.args(),
                Ok(Command::Bench(bench)) => bench.args(),
                Ok(Command::Protoc { args }) => {
                    args.into_iter().filter_map(|it| it.into_string().ok()).collect()
                }
                other => panic!("{line}: {other:?}"),
            };
            assert_eq!(found.join(" "), passed);
        }
    }

    #[test]
    fn an_etcd_may_be_named_behind_other_options() {
        let Ok(Command::Chaos(chaos)) = parse("chaos --minutes 10 --keep DIR --etcd newest") else {
            panic!("not chaos");
        };
        assert_eq!(chaos.asked.etcd, "newest".parse().ok());
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (line, kind) in [
            ("", ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand),
            ("tests", ErrorKind::InvalidSubcommand),
            ("demo now", ErrorKind::UnknownArgument),
            ("etcd latest", ErrorKind::ValueValidation),
            ("test --every-version --etcd 3.7", ErrorKind::ArgumentConflict),
            ("examples s4 S99", ErrorKind::InvalidValue),
            ("chaos --peer redis", ErrorKind::InvalidValue),
        ] {
            assert_eq!(parse(line).err(), Some(kind), "{line}");
        }
    }
}
