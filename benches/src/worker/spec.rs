//! A worker's options.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, ValueEnum};

use crate::seconds;

/// Who locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Who {
    /// An annotated function.
    Ours,
    /// One that is released in the background.
    Background,
    /// etcd-client, a transaction and a deletion by hand.
    Plain,
    /// etcd-client, a transaction, a watch and a deletion by hand.
    Watching,
    /// The lock service of etcd's server.
    Service,
    /// Puts and deletions in bundles, which lock nothing: bare keys.
    Raw,
    /// The same, with all that etcd has to keep of a lock of ours.
    Stored,
    /// The same, with all that makes our transactions safe.
    Guarded,
    /// A mutex of tokio: what tasks cost that wait for nothing of ours.
    Mutex,
}

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Work {
    /// Lock and unlock, one after another, in every task.
    Calls,
    /// Takes all names and keeps them.
    Hold,
    /// Takes one name, once.
    Take,
    /// As many names as there are, each once.
    Distinct,
    /// As many tasks as there are wait at once.
    Waiters,
    /// Every task holds a lock of its own, or none, and waits for one hot name.
    Nested,
    /// As many single tries as there are tasks, at once.
    Tries,
    /// Takes all names, and shuts the engine down.
    Shutdown,
    /// As many names as there are, each once, with `at_least`.
    Retained,
}

/// What is tried for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    Exclusive,
    Shared,
    Permits,
}

#[derive(Clone, Debug, PartialEq, Args)]
pub(crate) struct Spec {
    #[arg(long = "peer", value_enum, default_value_t = Who::Ours)]
    pub(super) who: Who,
    #[arg(long, value_enum, default_value_t = Work::Calls)]
    pub(super) work: Work,
    /// URLs of all members
    #[arg(long = "endpoint", value_name = "URLS", value_delimiter = ',')]
    pub(super) endpoints: Vec<String>,
    #[arg(long, default_value_t = 1)]
    pub(super) tasks: u64,
    /// Each task goes through its share of them
    #[arg(long, default_value_t = 1)]
    pub(super) names: u64,
    /// The first name's number
    #[arg(long, default_value_t = 0)]
    pub(super) first: u64,
    /// How long to count
    #[arg(long = "seconds", value_name = "SECONDS", value_parser = seconds, default_value = "1")]
    pub(super) window: Duration,
    /// Of the lease, if not the default
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(super) ttl: Option<Duration>,
    /// Whether nested calls hold an outer lock
    #[arg(long, action = ArgAction::Set, default_value_t = false)]
    pub(super) outer: bool,
    /// Of single tries
    #[arg(long, value_enum, default_value_t = Mode::Exclusive)]
    pub(super) mode: Mode,
    /// A file that counts the calls of all processes
    #[arg(long, value_name = "FILE")]
    pub(super) witness: Option<PathBuf>,
}

impl Spec {
    pub(super) fn config(&self) -> etcd_locked::Config {
        let config = etcd_locked::Config::new(&self.endpoints);
        match self.ttl {
            Some(ttl) => config.ttl(ttl),
            None => config,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        spec: Spec,
    }

    fn parse(line: &str) -> Result<Spec, clap::Error> {
        let words = ["worker"].into_iter().chain(line.split(' '));
        Line::try_parse_from(words).map(|line| line.spec)
    }

    #[test]
    fn a_line_says_who_does_what() {
        let spec = parse("--peer raw --tasks 1024 --seconds 0.5 --ttl 10").unwrap();
        assert_eq!((spec.who, spec.work), (Who::Raw, Work::Calls));
        assert_eq!((spec.tasks, spec.names), (1024, 1));
        assert_eq!(spec.window, Duration::from_millis(500));
        assert_eq!(spec.ttl, Some(Duration::from_secs(10)));
    }

    #[test]
    fn members_of_a_cluster_are_separated_by_commas() {
        let spec = parse("--endpoint http://a:1,http://b:2").unwrap();
        assert_eq!(spec.endpoints, ["http://a:1", "http://b:2"]);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for line in ["--peer redis", "--tasks many", "--tasks", "--colour red"] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
