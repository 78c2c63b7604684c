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
/// Exit status: 0 done; 1 not found, not done, or something to mend; 2 wrong use; 3 etcd out of reach, or it refuses; 4 the output
/// cannot be written (a closed pipe is not an error). `exec` has statuses of its own, see there.
#[derive(Debug, Parser)]
#[command(name = "etcd-locked", version, max_term_width = 110)]
pub(crate) struct Options {
    #[command(flatten)]
    pub(crate) etcd: Etcd,
    /// One JSON object a line, of ls, who, kick and doctor. cli/JSON.md has the fields
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Where etcd is.
#[derive(Debug, Clone, Args)]
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
    /// User of etcd, as NAME:PASSWORD; others on this machine can see it here, so prefer ETCD_LOCKED_USER and
    /// ETCD_LOCKED_PASSWORD_FILE
    #[arg(long, global = true, value_name = "NAME:PASSWORD")]
    pub(crate) user: Option<String>,
    /// How long a connection may take to come up [default: ETCD_LOCKED_CONNECT_TIMEOUT, or 5s]
    #[arg(long, global = true, value_name = "TIME")]
    pub(crate) dial_timeout: Option<String>,
    /// How long an answer of etcd may take, other than to `exec`
    #[arg(long, global = true, value_name = "TIME", default_value = "5s", value_parser = humantime::parse_duration)]
    pub(crate) command_timeout: Duration,
    /// Options of `exec`, which stand for variables too.
    #[arg(skip)]
    pub(crate) ttl: Option<String>,
    #[arg(skip)]
    pub(crate) wait: Option<String>,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List the names that are locked: who holds each, for how long, and how many processes wait
    ///
    /// On a terminal it is a table with a header; in a pipe there are fields between tabs and no header. Calls that wait in the process
    /// of a holder put no key in etcd, so they are not counted: `etcd_locked::status()` of that process lists them.
    Ls(Ls),
    /// Show who holds a name and who waits for it, in order
    ///
    /// Each line is a key in etcd. A process has one for all its calls that wait for the name, or read under it, and none for those that
    /// wait in the process of the holder: its own status and metrics have them. In a pipe there are fields between tabs and no header.
    ///
    /// If the name is in a deadlock, that is shown too. With --json `cycle` has its names, from this one back to it; it is empty if there
    /// is none, and null where that is not known, for which standard error has the reason.
    Who {
        /// The name, as `ls` shows it
        name: String,
    },
    /// Take a lock away from its holder
    ///
    /// It asks the holder's process, which drops the body of the call that was shown and then gives up the lock: no other body runs
    /// before that, and a later call of the process keeps the lock. `--force` is for a process that does not answer. All readers of a
    /// process share one key. Of permits only those are taken that are known to be held; `--holder` names another.
    Kick(Kick),
    /// Watch the names that are locked: by waiters, hold time or contenders gone a second; look into one, and kick
    ///
    /// Keys: `/` filters, `s` sorts, the arrows select, Enter shows all contenders of a name, where the arrows scroll, and `k` takes the
    /// lock away from those that hold it, after it has asked. GONE/S counts the keys that left a name a second: released, handed to
    /// another process, lost, or given up while they waited. What a narrow terminal has no room for is left out, from the right.
    Top(Top),
    /// Run a command under a lock, and end it before another process can have that lock
    ///
    /// The command has ETCD_LOCKED_NAME and ETCD_LOCKED_TOKEN in its environment: the token grows from holder to holder, so a store can
    /// refuse the writes of one that was overtaken (`where token <= $1`). It gets the signals TERM, INT, HUP, QUIT, USR1 and USR2
    /// that etcd-locked gets.
    ///
    /// When the lock cannot be renewed, the command and its process group get SIGTERM, a sixth of the TTL (10 s at most) before
    /// the lock may no longer be relied on; then SIGKILL, with everything that it started. A guardian process does that, also when
    /// etcd-locked is stopped or killed. When an operator kicks the holder, it is SIGTERM at once, and SIGKILL after
    /// the same time; when its key is deleted, SIGKILL at once. If etcd-locked and the guardian
    /// are both killed, the system kills the command, but what that has started lives on, unless systemd or a container ends it.
    ///
    /// The lock is released when the command has ended and nothing that it started is left: what it leaves behind is killed, a daemon
    /// too, and etcd-locked says so. It has no controlling terminal, so Ctrl-Z stops etcd-locked only, and with that the lock is lost. It must not change its
    /// user: what `sudo` runs cannot be killed. Run etcd-locked as that user instead.
    ///
    /// The command gets no other variable ETCD_LOCKED_… or ETCDCTL_… of etcd-locked, since a password may be among them.
    ///
    /// Exit status: the command's, 128 + N if the signal N has ended it; 126 or 127 if it cannot be run. As long as it has not run: 64
    /// wrong use; 69 etcd out of reach, or it refuses; 71 the system refuses; 75, or `--conflict-exit-code`, not acquired, or lost before
    /// the command was started; 0 not acquired with `--on-held skip`; 128 + N ended by the signal N. etcd-locked says each of these on
    /// standard error, in a line that begins with `etcd-locked:`. Where standard error takes nothing, these lines are lost after a second.
    #[cfg(target_os = "linux")]
    Exec(Exec),
    /// The guardian of `exec`, which starts it
    #[cfg(target_os = "linux")]
    #[command(hide = true)]
    Guardian {
        /// How long before the stop time the command is asked to end, in nanoseconds
        #[arg(long)]
        grace_ns: u64,
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
    /// The launcher of `exec`'s command, which the guardian starts
    #[cfg(target_os = "linux")]
    #[command(hide = true)]
    Launcher {
        /// The guardian's process
        #[arg(long)]
        guardian: i32,
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
    /// Look for what is wrong with etcd, with rights, and with what lies below the prefix
    ///
    /// Each finding begins with `ok`, `BAD`, or `?` where this user may not see it, and the name of the check; with --json `ok` is true,
    /// false or null. What to do stands below it. Exit status: 1 if a finding is BAD. It takes 3 s, to compare clocks. It leaves nothing in
    /// etcd: the leases that it grants to time etcd's writes are revoked at once.
    Doctor {
        /// How many leases to grant and revoke, which times etcd's writes
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        probes: u32,
    },
    /// Print completions for a shell
    Completions {
        /// Which shell
        shell: Shell,
    },
    /// Print the man page
    Man,
}

impl Command {
    /// Whether it prints objects with `--json`.
    pub(crate) fn has_json(&self) -> bool {
        matches!(self, Self::Ls(_) | Self::Who { .. } | Self::Kick(_) | Self::Doctor { .. })
    }
}

#[derive(Debug, Args)]
pub(crate) struct Ls {
    /// Only names that begin with this
    #[arg(default_value = "", value_name = "BEGIN")]
    pub(crate) below: String,
    /// List again every so often, `--watch=5s`, until Ctrl-C [every 2s if no time is given]; while etcd does not answer, it says so and
    /// goes on
    #[arg(long, value_name = "EVERY", num_args = 0..=1, require_equals = true, default_missing_value = "2s", value_parser = at_least_100ms)]
    pub(crate) watch: Option<Duration>,
    /// Only names that a process of this service holds
    #[arg(long)]
    pub(crate) service: Option<String>,
    /// Only names that a process on this host holds
    #[arg(long)]
    pub(crate) host: Option<String>,
    /// Only names that have been held for at least this long, such as 10m
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = humantime::parse_duration)]
    pub(crate) held_for: Duration,
    /// What comes first: names with most waiters, or those that are held longest. Else it is the order of their keys
    #[arg(long)]
    pub(crate) sort: Option<Sort>,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(crate) enum Sort {
    Waiters,
    Held,
}

#[derive(Debug, Args)]
pub(crate) struct Kick {
    /// The name, as `ls` shows it
    pub(crate) name: String,
    /// Only the holder with this key, where there are several; `who NAME --json` shows the keys
    #[arg(long, value_name = "KEY")]
    pub(crate) holder: Option<String>,
    /// Do not ask this terminal
    #[arg(long, short)]
    pub(crate) yes: bool,
    /// Delete the key of a holder that does not answer, or does not end: its body may run on beside the next holder's
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Top {
    /// Only names that begin with this
    #[arg(default_value = "", value_name = "BEGIN")]
    pub(crate) below: String,
    /// How often etcd is read; where a read takes long, the pause after it is five times as long
    #[arg(long, default_value = "1s", value_parser = at_least_100ms)]
    pub(crate) every: Duration,
}

/// Reads the time between two reads, of which every one reads all names.
fn at_least_100ms(text: &str) -> Result<Duration, String> {
    let every = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    match every >= Duration::from_millis(100) {
        true => Ok(every),
        false => Err("100ms at least, because etcd is read as often".to_owned()),
    }
}

#[cfg(target_os = "linux")]
#[derive(Debug, Args)]
pub(crate) struct Exec {
    /// The name to lock, such as jobs/backup
    pub(crate) name: String,
    /// How long to queue: 10s, none, forever [default: ETCD_LOCKED_WAIT, or 10s]
    #[arg(long, value_name = "TIME")]
    pub(crate) wait: Option<String>,
    /// Try once, and do not queue
    #[arg(long, conflicts_with = "wait")]
    pub(crate) no_wait: bool,
    /// How long a host that has crashed blocks others: 2s to 300s [default: ETCD_LOCKED_TTL, or 30s]
    #[arg(long, value_name = "TIME")]
    pub(crate) ttl: Option<String>,
    /// Keep the name locked for this long from when the lock is acquired, also when the command ends earlier, fails, or cannot be run: so
    /// a cron line runs once, though the clocks of its hosts differ
    #[arg(long, value_parser = humantime::parse_duration, conflicts_with = "shared")]
    pub(crate) min_hold: Option<Duration>,
    /// Share the name with others that share it
    #[arg(long, conflicts_with = "permits")]
    pub(crate) shared: bool,
    /// Take one of N permits of the name
    #[arg(long, value_name = "N")]
    pub(crate) permits: Option<u16>,
    /// What to do if the lock is not acquired
    #[arg(long, value_enum, default_value_t = OnHeld::Fail)]
    pub(crate) on_held: OnHeld,
    /// Exit status if the lock is not acquired, or lost before the command is started
    #[arg(long, value_name = "N", default_value_t = 75)]
    pub(crate) conflict_exit_code: u8,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

/// What to do if the lock is not acquired.
#[cfg(target_os = "linux")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum OnHeld {
    /// Exit status 75, or what `--conflict-exit-code` says
    Fail,
    /// Exit status 0: another process does the work. As `fail`, where a key without a lease keeps the name locked for ever
    Skip,
}
