//! A worker's command line.

use std::path::PathBuf;
use std::time::Duration;

use super::Fault;

/// Who locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Who {
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Exclusive,
    Shared,
    Permits,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Spec {
    pub(super) who: Who,
    pub(super) work: Work,
    /// URLs of all members.
    pub(super) endpoints: Vec<String>,
    pub(super) tasks: u64,
    /// Each task goes through its share of them.
    pub(super) names: u64,
    /// The first name's number.
    pub(super) first: u64,
    /// How long to count.
    pub(super) window: Duration,
    /// Of the lease, if not the default.
    pub(super) ttl: Option<Duration>,
    /// Whether nested calls hold an outer lock.
    pub(super) outer: bool,
    /// Of single tries.
    pub(super) mode: Mode,
    /// A file that counts the calls of all processes.
    pub(super) witness: Option<PathBuf>,
}

impl Spec {
    pub(super) fn parse(args: &[String]) -> Result<Self, Fault> {
        let mut spec = Self {
            who: Who::Ours,
            work: Work::Calls,
            endpoints: Vec::new(),
            tasks: 1,
            names: 1,
            first: 0,
            window: Duration::from_secs(1),
            ttl: None,
            outer: false,
            mode: Mode::Exclusive,
            witness: None,
        };
        let (pairs, rest) = args.as_chunks::<2>();
        for [option, value] in pairs {
            let seconds = || value.parse().map(Duration::from_secs_f64);
            match option.as_str() {
                "--peer" => {
                    spec.who = match value.as_str() {
                        "ours" => Who::Ours,
                        "background" => Who::Background,
                        "plain" => Who::Plain,
                        "watching" => Who::Watching,
                        "service" => Who::Service,
                        "raw" => Who::Raw,
                        "stored" => Who::Stored,
                        "guarded" => Who::Guarded,
                        "mutex" => Who::Mutex,
                        _ => return Err(format!("there is no peer `{value}` here").into()),
                    }
                }
                "--work" => {
                    spec.work = match value.as_str() {
                        "calls" => Work::Calls,
                        "hold" => Work::Hold,
                        "take" => Work::Take,
                        "distinct" => Work::Distinct,
                        "waiters" => Work::Waiters,
                        "nested" => Work::Nested,
                        "tries" => Work::Tries,
                        "shutdown" => Work::Shutdown,
                        "retained" => Work::Retained,
                        _ => return Err(format!("there is no work `{value}`").into()),
                    }
                }
                "--endpoint" => spec.endpoints = value.split(',').map(str::to_owned).collect(),
                "--tasks" => spec.tasks = value.parse()?,
                "--names" => spec.names = value.parse()?,
                "--first" => spec.first = value.parse()?,
                "--seconds" => spec.window = seconds()?,
                "--ttl" => spec.ttl = Some(seconds()?),
                "--outer" => spec.outer = value.parse()?,
                "--mode" => {
                    spec.mode = match value.as_str() {
                        "exclusive" => Mode::Exclusive,
                        "shared" => Mode::Shared,
                        "permits" => Mode::Permits,
                        _ => return Err(format!("there is no mode `{value}`").into()),
                    }
                }
                "--witness" => spec.witness = Some(value.into()),
                _ => return Err(format!("a worker has no option `{option}`").into()),
            }
        }
        match rest {
            [] => Ok(spec),
            [option, ..] => Err(format!("`{option}` has no value").into()),
        }
    }

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
    use super::*;

    fn parse(line: &str) -> Result<Spec, Fault> {
        Spec::parse(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
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
