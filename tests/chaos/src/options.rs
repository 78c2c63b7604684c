//! Options of the command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};

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
    /// A peer that makes the calls: lock-service, etcdctl, or that of --program
    #[arg(long, value_name = "NAME")]
    pub(crate) peer: Option<String>,
    /// The program of the peer's workers
    #[arg(long, value_name = "FILE", requires = "peer")]
    pub(crate) program: Option<PathBuf>,
    /// Only faults of this kind; may be said again
    #[arg(long, value_name = "FAULT", value_parser = PossibleValuesParser::new(Kind::words()).try_map(|word| Kind::named(&word).ok_or("no kind")))]
    pub(crate) only: Vec<Kind>,
    /// The version of the peer's client
    #[arg(long, value_name = "VERSION", default_value = "")]
    pub(crate) client: String,
}

impl Options {
    /// The mistake or the peer, as histories name it.
    pub(crate) fn who(&self) -> Option<String> {
        let mistake = self.sabotage.and_then(|it| it.to_possible_value());
        let mistake = mistake.map(|it| it.get_name().to_owned());
        mistake.or_else(|| self.peer.clone())
    }
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
    /// A mistake, a peer, or "none"
    pub(crate) who: String,
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
    time.map(|time| time.max(Duration::from_secs(30)))
        .ok_or("write minutes, such as 10 or 0.5")
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
        let args = [
            "--minutes",
            "0.1",
            "--mix",
            "groups",
            "--only",
            "worker stopped",
        ];
        let options = parse(&args).expect("a command").options;
        assert_eq!(options.time, Duration::from_secs(30));
        assert_eq!(
            (options.mix.name, options.only),
            ("groups", vec![Kind::WorkerStopped])
        );
        let args = ["--sabotage", "release-by-name"];
        let options = parse(&args).expect("a command").options;
        assert_eq!(options.who().as_deref(), Some("release-by-name"));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for args in [
            ["--minutes", "some"],
            ["--minutes", "-1"],
            ["--mix", "some"],
            ["--only", "rain"],
            ["--sabotage", "sleep"],
            ["--program", "worker.py"],
        ] {
            assert!(parse(&args).is_err(), "{args:?}");
        }
    }
}
