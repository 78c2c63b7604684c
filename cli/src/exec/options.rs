//! Options of `exec`.

use std::ffi::OsString;
use std::time::Duration;

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct Exec {
    /// The name to lock, such as jobs/backup
    pub(crate) name: String,
    /// How long to queue: 10s, none, forever [default: ETCD_LOCKED_WAIT, or 10s]
    #[arg(long, value_parser = wait)]
    pub(crate) wait: Option<Wait>,
    /// Try once, and do not queue
    #[arg(long, conflicts_with = "wait")]
    pub(crate) no_wait: bool,
    /// How long a host that has crashed blocks others: 2s to 300s [default: ETCD_LOCKED_TTL, or 15s]
    #[arg(long, value_parser = ttl)]
    pub(crate) ttl: Option<Duration>,
    /// Keep the name locked for this long from when the lock is acquired, also when the command ends earlier, fails, or cannot be run: so
    /// a cron line runs once, though the clocks of its hosts differ
    #[arg(long, value_parser = humantime::parse_duration, conflicts_with = "shared")]
    pub(crate) at_least: Option<Duration>,
    /// Share the name with others that share it
    #[arg(long, conflicts_with = "permits")]
    pub(crate) shared: bool,
    /// Take one of N permits of the name
    #[arg(long, value_name = "N")]
    pub(crate) permits: Option<u16>,
    /// What to do if the lock is not acquired
    #[arg(long, value_enum, default_value_t = OnHeld::Fail)]
    pub(crate) on_held: OnHeld,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

/// How long a command queues for its lock.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Wait {
    Once,
    For(Duration),
    Forever,
}

/// Reads how long to queue, in the words of `ETCD_LOCKED_WAIT`.
fn wait(text: &str) -> Result<Wait, String> {
    match text {
        "none" => Ok(Wait::Once),
        "forever" => Ok(Wait::Forever),
        _ => match humantime::parse_duration(text) {
            Ok(Duration::ZERO) => Ok(Wait::Once),
            Ok(wait) => Ok(Wait::For(wait)),
            Err(error) => Err(format!("{error}; write a time such as 10s, none, or forever")),
        },
    }
}

/// Reads the TTL of a lease, within the bounds that the library has.
fn ttl(text: &str) -> Result<Duration, String> {
    let ttl = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    match (Duration::from_secs(2)..=Duration::from_secs(300)).contains(&ttl) {
        true => Ok(ttl),
        false => Err("from 2s to 300s".to_owned()),
    }
}

/// What to do if the lock is not acquired.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum OnHeld {
    /// Exit status 1
    Fail,
    /// Exit status 0: another process does the work. 1, where a key without a lease keeps the name locked for ever
    Skip,
}
