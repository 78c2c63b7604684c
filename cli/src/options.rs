//! Options of the command line.

#[cfg(target_os = "linux")]
use std::ffi::OsString;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;

/// Shows the locks that services take with etcd-locked, takes them away, and runs commands under them.
///
/// It connects as the library does: by ETCD_LOCKED_ENDPOINTS and the other variables, where these are unset by ETCDCTL_ENDPOINTS
/// and the others of etcdctl, or by the options below.
///
/// Exit status: 0 done; 1 not found, not done, or something to mend; 2 wrong use; 3 etcd out of reach. `exec` has that of its
/// command, once that runs.
#[derive(Debug, Parser)]
#[command(name = "etcd-locked", version, max_term_width = 110)]
pub(crate) struct Options {
    #[command(flatten)]
    pub(crate) etcd: Etcd,
    /// One JSON object a line.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Where etcd is.
#[derive(Debug, Args)]
#[command(next_help_heading = "Connection")]
pub(crate) struct Etcd {
    /// Endpoints, separated by commas
    #[arg(long, global = true, value_name = "URLS")]
    pub(crate) endpoints: Option<String>,
    /// What the keys of all locks begin with [default: locks/]
    #[arg(long, global = true)]
    pub(crate) prefix: Option<String>,
    /// File with the certificates of the authorities
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) cacert: Option<String>,
    /// File with the certificate of this client
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) cert: Option<String>,
    /// File with its key
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) key: Option<String>,
    /// User of etcd, as NAME:PASSWORD; others on this machine can see it here, so prefer ETCD_LOCKED_USER
    #[arg(long, global = true, value_name = "NAME:PASSWORD")]
    pub(crate) user: Option<String>,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List the names that are locked: who holds each, for how long, and how many wait
    Ls(Ls),
    /// Show who holds a name and who waits for it, in order
    Who(Who),
    /// Take a lock away from its holder
    Kick(Kick),
    /// Watch the names that are locked: by waiters, hold time or hand-overs a second; look into one, and kick
    ///
    /// Keys: `/` filters, `s` sorts, the arrows select, Enter shows all contenders of a name, and there `k` takes the lock away from
    /// those that hold it, after it has asked. Hand-overs are those from process to process.
    Top(Top),
    /// Run a command under a lock, and end it before another process can have that lock
    ///
    /// The command has ETCD_LOCKED_NAME and ETCD_LOCKED_TOKEN in its environment: the token grows from holder to holder, so a store can
    /// refuse the writes of one that was overtaken (`where token <= $1`). It gets the signals TERM, INT, HUP, QUIT, USR1 and USR2
    /// that etcd-locked gets.
    ///
    /// When the lock cannot be renewed, the command and its process group get SIGTERM, a sixth of the TTL (10 s at most) before
    /// the lock may no longer be relied on; then SIGKILL, with everything that it started. A guardian process does that, also when
    /// etcd-locked is stopped or killed. When an operator has taken the lock away, it is SIGKILL at once.
    ///
    /// The lock is released when the command has ended and nothing that it started is left: what it leaves behind is killed, a daemon
    /// too. It has no controlling terminal, so Ctrl-Z stops etcd-locked only, and with that the lock is lost. It must not change its
    /// user: what `sudo` runs cannot be killed. Run etcd-locked as that user instead.
    ///
    /// Exit status: the command's, 128 + N if the signal N has ended it; 126 or 127 if it cannot be run. As long as it has not run: 0
    /// not acquired with `--on-held skip`; 1 not acquired, or lost before the command was started; 2 wrong use; 3 etcd out of reach;
    /// 128 + N ended by the signal N. etcd-locked says each of these on standard error, in a line that begins with `etcd-locked:`.
    #[cfg(target_os = "linux")]
    Exec(Exec),
    /// The guardian of `exec`, which starts it
    #[cfg(target_os = "linux")]
    #[command(hide = true)]
    Guardian(Guardian),
    /// Look for what is wrong with etcd, with rights, and with what lies below the prefix
    Doctor(Doctor),
    /// Print completions for a shell
    Completions {
        /// Which shell
        shell: Shell,
    },
    /// Print the man page
    Man,
}

/// Options of `ls`.
#[derive(Debug, Args)]
pub(crate) struct Ls {
    /// Only names that begin with this
    #[arg(default_value = "", value_name = "BEGIN")]
    pub(crate) below: String,
    /// List again every so often, until Ctrl-C
    #[arg(long, value_name = "EVERY", num_args = 0..=1, default_missing_value = "2s", value_parser = humantime::parse_duration)]
    pub(crate) watch: Option<Duration>,
}

/// Options of `who`.
#[derive(Debug, Args)]
pub(crate) struct Who {
    /// The name, as `ls` shows it
    pub(crate) name: String,
}

/// Options of `kick`.
#[derive(Debug, Args)]
pub(crate) struct Kick {
    /// The name, as `ls` shows it
    pub(crate) name: String,
    /// Only the holder with this key, where there are several
    #[arg(long = "holder", value_name = "KEY")]
    pub(crate) key: Option<String>,
    /// Do not ask
    #[arg(long, short)]
    pub(crate) yes: bool,
}

/// Options of `exec`.
#[cfg(target_os = "linux")]
#[derive(Debug, Args)]
pub(crate) struct Exec {
    /// The name to lock, such as jobs/backup
    pub(crate) name: String,
    /// How long to queue [default: ETCD_LOCKED_WAIT, or 10s]
    #[arg(long, value_parser = humantime::parse_duration)]
    pub(crate) wait: Option<Duration>,
    /// Try once, and do not queue
    #[arg(long, conflicts_with = "wait")]
    pub(crate) no_wait: bool,
    /// How long a host that has crashed blocks others: 2s to 300s [default: ETCD_LOCKED_TTL, or 15s]
    #[arg(long, value_parser = humantime::parse_duration)]
    pub(crate) ttl: Option<Duration>,
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

/// What to do if the lock is not acquired.
#[cfg(target_os = "linux")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum OnHeld {
    /// Exit status 1
    Fail,
    /// Exit status 0: another process does the work
    Skip,
}

/// Options of the guardian.
#[cfg(target_os = "linux")]
#[derive(Debug, Args)]
pub(crate) struct Guardian {
    /// How long before the stop time the command is asked to end, in nanoseconds
    #[arg(long)]
    pub(crate) grace_ns: u64,
    #[arg(last = true, required = true)]
    pub(crate) command: Vec<OsString>,
}

/// Options of `top`.
#[derive(Debug, Args)]
pub(crate) struct Top {
    /// Only names that begin with this
    #[arg(default_value = "", value_name = "BEGIN")]
    pub(crate) below: String,
    /// How often etcd is read; where a read takes long, the pause after it is five times as long
    #[arg(long, default_value = "1s", value_parser = at_least_100ms)]
    pub(crate) every: Duration,
}

/// Reads the time between two reads; every one reads all names.
fn at_least_100ms(text: &str) -> Result<Duration, String> {
    let every = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    match every >= Duration::from_millis(100) {
        true => Ok(every),
        false => Err("100ms at least, because etcd is read as often".to_owned()),
    }
}

/// Options of `doctor`.
#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// How many reads to time
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) probes: u32,
}
