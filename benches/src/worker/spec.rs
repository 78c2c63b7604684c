//! Options of a worker process.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, ValueEnum};

use crate::kind::Kind;
use crate::seconds;

/// Kind of work; see the functions in `worker`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Work {
    Calls,
    Hold,
    Take,
    Distinct,
    Waiters,
    Nested,
    Tries,
    Shutdown,
    Retained,
}

/// Mode of single tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    Exclusive,
    Shared,
    Permits,
}

#[derive(Clone, Debug, PartialEq, Args)]
pub(crate) struct Spec {
    #[arg(long = "peer", value_enum, default_value_t = Kind::Ours)]
    pub(super) kind: Kind,
    #[arg(long, value_enum, default_value_t = Work::Calls)]
    pub(super) work: Work,
    /// URLs of all members
    #[arg(long = "endpoint", value_name = "URLS", value_delimiter = ',')]
    pub(super) endpoints: Vec<String>,
    #[arg(long, default_value_t = 1)]
    pub(super) tasks: u64,
    /// Number of names; each task uses its share of them
    #[arg(long, default_value_t = 1)]
    pub(super) names: u64,
    /// Number of the first name
    #[arg(long, default_value_t = 0)]
    pub(super) first: u64,
    /// How long to count
    #[arg(long = "seconds", value_name = "SECONDS", value_parser = seconds, default_value = "1")]
    pub(super) window: Duration,
    /// TTL of the lease, if not the default
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(super) ttl: Option<Duration>,
    /// User who takes the locks, if etcd requires one; the password is the same
    #[arg(long)]
    pub(super) user: Option<String>,
    /// Whether nested calls hold an outer lock
    #[arg(long, action = ArgAction::Set, default_value_t = false)]
    pub(super) outer: bool,
    /// Mode of single tries
    #[arg(long, value_enum, default_value_t = Mode::Exclusive)]
    pub(super) mode: Mode,
    /// File that counts the calls of all processes
    #[arg(long, value_name = "FILE")]
    pub(super) witness: Option<PathBuf>,
}

impl Spec {
    pub(super) fn config(&self) -> etcd_locked::Config {
        let mut config = etcd_locked::Config::new(&self.endpoints);
        if let Some(user) = &self.user {
            config = config.user(user, user);
        }
        if let Some(ttl) = self.ttl {
            config = config.ttl(ttl);
        }
        config
    }
}
