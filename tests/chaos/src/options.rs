//! Options of the torture's command line, and the words of their values.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::schedule::Kind;
use crate::worker::mix::Mix;

/// Runs the library on a real cluster of three under faults, and judges what its workers did. `cargo xtask chaos` sets the etcd.
#[derive(Debug, Parser)]
#[command(name = "etcd-locked-chaos", args_conflicts_with_subcommands = true)]
pub(crate) struct Command {
    #[command(subcommand)]
    pub(crate) part: Option<Part>,
    #[command(flatten)]
    pub(crate) options: Options,
    /// Only judge these saved histories
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub(crate) judge: Vec<PathBuf>,
    /// Where to save histories
    #[arg(long, value_name = "FOLDER", default_value = "target/chaos")]
    pub(crate) keep: PathBuf,
    /// Folder whose results are rewritten, with this run
    #[arg(long, value_name = "FOLDER")]
    pub(crate) write: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Part {
    /// Make calls until a line arrives on standard input
    #[command(hide = true)]
    Worker(Worker),
}

#[derive(Debug, Clone, Args)]
pub(crate) struct Options {
    /// Length of the run, at least half a minute
    #[arg(long = "minutes", value_name = "N", value_parser = minutes, default_value = "1")]
    pub(crate) time: Duration,
    /// Kinds of calls
    #[arg(long, default_value = "all")]
    pub(crate) mix: Mix,
    /// Seed, which decides the faults and their times [default: random]
    #[arg(long, value_name = "N", default_value_t = fastrand::u64(0..1_000_000), hide_default_value = true)]
    pub(crate) seed: u64,
    /// Who makes the calls; --peer and --sabotage (a mistake that the workers make on purpose) are the same option
    #[arg(long, aliases = ["peer", "sabotage"], default_value = "etcd-locked")]
    pub(crate) who: Who,
    /// Program of a peer's workers
    #[arg(long, value_name = "FILE", required_if_eq_any([("who", "go"), ("who", "aetcd")]))]
    pub(crate) program: Option<PathBuf>,
    /// Only faults of this kind; may be repeated
    #[arg(long, value_name = "FAULT", value_parser = |word: &str| Kind::try_from(word.to_owned()))]
    pub(crate) only: Vec<Kind>,
    /// Version of the peer's client
    #[arg(long, value_name = "VERSION", default_value = "")]
    pub(crate) client: String,
}

/// Who makes the calls: the library, a peer under the same faults, or the library with a mistake that the checker must find.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Who {
    /// The library itself
    #[default]
    #[value(name = "etcd-locked")]
    #[serde(rename = "etcd-locked")]
    Ours,
    /// A mutex of the Go client, with --program
    Go,
    /// The lock of Python's aetcd, with --program
    Aetcd,
    /// The lock service of etcd's server
    LockService,
    /// `etcdctl lock` with a command
    Etcdctl,
    /// One call in a hundred takes no lock
    Unlocked,
    /// A body continues after its loss, and reports that the lock is held
    LyingRenewal,
    /// A call that has lost its lock, or did not get it in time, deletes the first key, which may be another process's
    ReleaseByName,
    /// A body runs in a separate task, which no guard stops
    NoGuard,
    /// No gate checks the lock before the polls of a body: the body is dropped only when its task is notified of the loss
    NoGate,
}

impl Who {
    pub(crate) fn is_peer(self) -> bool {
        [Self::Go, Self::Aetcd, Self::LockService, Self::Etcdctl].contains(&self)
    }

    /// Returns true if its workers make a mistake on purpose.
    pub(crate) fn is_mistaken(self) -> bool {
        self != Self::Ours && !self.is_peer()
    }
}

/// Returns the word for a value on the command line, in histories and in reports.
pub(crate) fn word(value: impl ValueEnum) -> String {
    let value = value.to_possible_value();
    value.map_or_else(String::new, |it| it.get_name().to_owned())
}

#[derive(Debug, Args)]
pub(crate) struct Worker {
    pub(crate) witness: String,
    pub(crate) process: u32,
    pub(crate) seed: u64,
    pub(crate) mix: Mix,
    pub(crate) who: Who,
}

fn minutes(text: &str) -> Result<Duration, &'static str> {
    let minutes = text.parse::<f64>().ok();
    let time = minutes.and_then(|it| Duration::try_from_secs_f64(it * 60.0).ok());
    time.map(|time| time.max(Duration::from_secs(30))).ok_or("write minutes, such as 10 or 0.5")
}
