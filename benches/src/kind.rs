//! Kind of worker: which locks it takes, and which program it is.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::ValueEnum;

use crate::Result;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Kind {
    Ours,
    /// Ours, released in the background.
    Background,
    Go,
    /// etcd-client, a transaction and a deletion by hand.
    Plain,
    /// By hand with a watch, for processes that wait for each other.
    Watching,
    /// The lock service of etcd's server.
    Service,
    #[value(name = "aetcd")]
    Python,
    /// etcd-client, and our transactions by hand, on a multi-thread runtime, as our callers use.
    Guarded,
    /// The same on a current-thread runtime.
    Single,
    /// Tasks that wait for a tokio mutex.
    Mutex,
    /// Ours on the embedded etcd, without spans and metrics.
    Bare,
    /// Ours on the embedded etcd, with spans and metrics, but without a subscriber or a recorder.
    Unobserved,
    /// Ours on the embedded etcd, with a subscriber and a recorder that do nothing.
    Observed,
    /// Transactions, fenced and not.
    Fenced,
}

impl Kind {
    /// Returns its word in options.
    pub(crate) fn word(self) -> String {
        let word = self.to_possible_value();
        word.map_or_else(String::new, |word| word.get_name().to_owned())
    }

    /// Returns its name in the report.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Ours => "etcd-locked",
            Self::Background => "etcd-locked, released in the background",
            Self::Go => "Go `concurrency`",
            Self::Plain => "etcd-client by hand",
            Self::Watching => "etcd-client by hand, with an open watch",
            Self::Service => "etcd's lock service",
            Self::Python => "Python `aetcd`",
            Self::Guarded => "our transactions by hand",
            Self::Single => "our transactions by hand, on one thread",
            Self::Mutex => "tokio's mutex",
            Self::Bare => "without spans and metrics",
            Self::Unobserved => "spans and metrics, unobserved",
            Self::Observed => "spans and metrics, observed",
            Self::Fenced => "fenced transactions",
        }
    }

    /// Returns the command that starts its worker; fails if that cannot run here.
    pub(crate) fn command(self) -> Result<Command> {
        let variable = match self {
            Self::Go => "BENCH_GO_PEER",
            Self::Python => "BENCH_PYTHON_PACKAGES",
            Self::Bare => "BENCH_BARE",
            Self::Unobserved | Self::Observed => "BENCH_OBSERVED",
            Self::Fenced => "BENCH_FENCED",
            _ => {
                let mut own = Command::new(env::current_exe().map_err(|error| error.to_string())?);
                own.arg("worker");
                return Ok(own);
            }
        };
        let made = env::var_os(variable).map(PathBuf::from).filter(|path| path.exists());
        let made = made.ok_or_else(|| {
            format!("{variable} does not name what `cargo xtask bench` makes for {}", self.title())
        })?;
        if self != Self::Python {
            return Ok(Command::new(made));
        }
        let python = env::var_os("BENCH_PYTHON").unwrap_or_else(|| "python3".into());
        let mut command = Command::new(python);
        command
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/python/worker.py"))
            .env("PYTHONPATH", made);
        Ok(command)
    }
}
