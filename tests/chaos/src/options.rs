//! Options of the command line, and the words of their values.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::schedule::Kind;
use crate::worker::mix::Mix;

/// Tortures the library on a real cluster of three, and judges what its workers did. `cargo xtask chaos` says where etcd is.
#[derive(Debug, Parser)]
#[command(name = "etcd-locked-chaos", args_conflicts_with_subcommands = true)]
pub(crate) struct Command {
    #[command(subcommand)]
    pub(crate) part: Option<Part>,
    #[command(flatten)]
    pub(crate) options: Options,
    /// Only judge histories that were kept
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub(crate) judge: Vec<PathBuf>,
    /// Where histories are kept
    #[arg(long, value_name = "FOLDER", default_value = "target/chaos")]
    pub(crate) keep: PathBuf,
    /// The folder whose results are written anew, with this run
    #[arg(long, value_name = "FOLDER")]
    pub(crate) write: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Part {
    /// Make calls, until a line on standard input
    #[command(hide = true)]
    Worker(Worker),
}

#[derive(Debug, Clone, Args)]
pub(crate) struct Options {
    /// How long: half a minute at least
    #[arg(long = "minutes", value_name = "N", value_parser = minutes, default_value = "1")]
    pub(crate) time: Duration,
    /// Which calls
    #[arg(long, default_value = "all")]
    pub(crate) mix: Mix,
    /// Number that decides which faults come when [default: any]
    #[arg(long, value_name = "N", default_value_t = fastrand::u64(0..1_000_000), hide_default_value = true)]
    pub(crate) seed: u64,
    /// Who makes the calls: also --peer, or --sabotage for a mistake that the workers make on purpose
    #[arg(long, aliases = ["peer", "sabotage"], default_value = "etcd-locked")]
    pub(crate) who: Who,
    /// The program of a peer's workers
    #[arg(long, value_name = "FILE", required_if_eq_any([("who", "go"), ("who", "aetcd")]))]
    pub(crate) program: Option<PathBuf>,
    /// Only faults of this kind; may be said again
    #[arg(long, value_name = "FAULT", value_parser = |word: &str| Kind::try_from(word.to_owned()))]
    pub(crate) only: Vec<Kind>,
    /// The version of the peer's client
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
    /// A mutex of the Go client, by --program
    Go,
    /// The lock of Python's aetcd, by --program
    Aetcd,
    /// The lock service of etcd's server
    LockService,
    /// `etcdctl lock` with a command
    Etcdctl,
    /// One call in a hundred takes no lock
    Unlocked,
    /// A body goes on after its loss, and says that the lock is held
    LyingRenewal,
    /// A call that has lost its lock, or was not given it in time, deletes the first key, which another process may have put
    ReleaseByName,
    /// A body runs in a task of its own, which no guard stops
    NoGuard,
    /// Nothing stands before the polls of a body: it is dropped only once its task learns of the loss
    NoGate,
}

impl Who {
    pub(crate) fn is_peer(self) -> bool {
        [Self::Go, Self::Aetcd, Self::LockService, Self::Etcdctl].contains(&self)
    }

    /// Tells whether its workers make a mistake on purpose.
    pub(crate) fn is_mistaken(self) -> bool {
        self != Self::Ours && !self.is_peer()
    }
}

/// Says the word for a value: on the command line, in histories and in reports.
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
