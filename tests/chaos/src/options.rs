//! Options of the command line, and the words of their values.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::results::OURS;
use crate::schedule::Kind;
use crate::worker::mix::Mix;
use crate::worker::sabotage::Sabotage;

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

/// What the runner starts.
#[derive(Debug, Subcommand)]
pub(crate) enum Part {
    /// Make calls, until a line on standard input
    #[command(hide = true)]
    Worker(Worker),
    /// Be a body, as etcdctl starts it
    #[command(hide = true)]
    Body(Body),
}

/// What to play.
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
    /// A mistake that the workers make on purpose
    #[arg(long, conflicts_with = "peer")]
    pub(crate) sabotage: Option<Sabotage>,
    /// A peer that makes the calls
    #[arg(long)]
    pub(crate) peer: Option<Peer>,
    /// The program of the peer's workers
    #[arg(long, value_name = "FILE", requires = "peer", required_if_eq_any([("peer", "go"), ("peer", "aetcd")]))]
    pub(crate) program: Option<PathBuf>,
    /// Only faults of this kind; may be said again
    #[arg(long, value_name = "FAULT")]
    pub(crate) only: Vec<Kind>,
    /// The version of the peer's client
    #[arg(long, value_name = "VERSION", default_value = "")]
    pub(crate) client: String,
}

impl Options {
    pub(crate) fn who(&self) -> Who {
        let peer = self.peer.map_or(Who::Ours, Who::Peer);
        self.sabotage.map_or(peer, Who::Mistaken)
    }
}

/// Another way to lock, under the same faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Peer {
    /// A mutex of the Go client, by --program
    Go,
    /// The lock of Python's aetcd, by --program
    Aetcd,
    /// The lock service of etcd's server
    LockService,
    /// `etcdctl lock` with a command
    Etcdctl,
}

/// Who makes the calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Who {
    /// The library itself.
    Ours,
    /// Workers that make a mistake on purpose.
    Mistaken(Sabotage),
    Peer(Peer),
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Ours => f.write_str(OURS),
            Self::Mistaken(mistake) => f.write_str(&word(mistake)),
            Self::Peer(peer) => f.write_str(&word(peer)),
        }
    }
}

impl FromStr for Who {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        if word == OURS {
            return Ok(Self::Ours);
        }
        let mistake = <Sabotage as ValueEnum>::from_str(word, false).map(Self::Mistaken);
        mistake.or_else(|_| <Peer as ValueEnum>::from_str(word, false).map(Self::Peer))
    }
}

/// Says the word for a value: on the command line, in histories and in reports.
pub(crate) fn word(value: impl ValueEnum) -> String {
    let value = value.to_possible_value();
    value.map_or_else(String::new, |it| it.get_name().to_owned())
}

/// Arguments of a worker, in any language.
#[derive(Debug, Args)]
pub(crate) struct Worker {
    /// The witness's address
    pub(crate) witness: String,
    /// The worker's number
    pub(crate) process: u32,
    pub(crate) seed: u64,
    pub(crate) mix: Mix,
    pub(crate) who: Who,
}

/// Arguments of a body.
#[derive(Debug, Args)]
pub(crate) struct Body {
    pub(crate) witness: String,
    pub(crate) process: String,
    pub(crate) call: u64,
    pub(crate) name: String,
    /// How long it lasts
    pub(crate) millis: u64,
}

/// Reads how long to play.
fn minutes(text: &str) -> Result<Duration, &'static str> {
    let minutes = text.parse::<f64>().ok();
    let time = minutes.and_then(|it| Duration::try_from_secs_f64(it * 60.0).ok());
    time.map(|time| time.max(Duration::from_secs(30))).ok_or("write minutes, such as 10 or 0.5")
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn parse(args: &[&str]) -> Result<Command, clap::Error> {
        Command::try_parse_from(["chaos"].iter().chain(args))
    }

    #[test]
    fn the_command_line_is_consistent() {
        Command::command().debug_assert();
    }

    #[test]
    fn several_histories_are_judged() {
        let command = parse(&["--judge", "a.gz", "b.gz", "--write", "."]).expect("a command");
        assert_eq!(command.judge, [PathBuf::from("a.gz"), "b.gz".into()]);
        assert_eq!(command.write, Some(".".into()));
    }

    #[test]
    fn a_run_is_as_long_and_of_what_was_said() {
        let args = ["--minutes", "0.1", "--mix", "groups", "--only", "worker stopped"];
        let options = parse(&args).expect("a command").options;
        assert_eq!(options.time, Duration::from_secs(30));
        assert_eq!((options.mix.name, options.only), ("groups", vec![Kind::WorkerStopped]));
        let args = ["--sabotage", "release-by-name"];
        let options = parse(&args).expect("a command").options;
        assert_eq!(options.who(), Who::Mistaken(Sabotage::ReleaseByName));
    }

    #[test]
    fn each_worker_has_a_word_in_histories() {
        let mistakes = Sabotage::value_variants().iter();
        let mistakes = mistakes.map(|it| Who::Mistaken(*it));
        let peers = Peer::value_variants().iter().map(|it| Who::Peer(*it));
        for who in mistakes.chain(peers).chain([Who::Ours]) {
            assert_eq!(who.to_string().parse(), Ok(who));
        }
        assert_eq!(Who::Peer(Peer::LockService).to_string(), "lock-service");
    }

    #[test]
    fn a_peer_of_its_own_needs_its_program() {
        for peer in ["go", "aetcd"] {
            assert!(parse(&["--peer", peer]).is_err(), "{peer}");
            let command = parse(&["--peer", peer, "--program", "worker"]).expect("a command");
            assert_eq!(command.options.who().to_string(), peer);
        }
        for peer in ["lock-service", "etcdctl"] {
            assert!(parse(&["--peer", peer]).is_ok(), "{peer}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for args in [
            ["--minutes", "some"],
            ["--minutes", "-1"],
            ["--mix", "some"],
            ["--only", "rain"],
            ["--sabotage", "sleep"],
            ["--peer", "goo"],
            ["--program", "worker.py"],
        ] {
            assert!(parse(&args).is_err(), "{args:?}");
        }
    }
}
