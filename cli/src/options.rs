//! Command line options, with their help texts.

#[cfg(target_os = "linux")]
use std::ffi::OsString;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;

/// Shows the locks that services take with etcd-locked, takes them away, and runs commands under locks.
///
/// It connects as the library does: with ETCD_LOCKED_ENDPOINTS and the other ETCD_LOCKED_ variables. If one of them is unset, it
/// uses etcdctl's, such as ETCDCTL_ENDPOINTS. The options below override both.
///
/// Exit status: 0 done; 1 not found, not done, or a problem found; 2 wrong use; 3 etcd is unreachable, or refuses; 4 the output
/// cannot be written (a closed pipe is not an error). `exec` has other statuses, see there.
#[derive(Debug, Parser)]
#[command(name = "etcd-locked", version, max_term_width = 110)]
pub(crate) struct Options {
    #[command(flatten)]
    pub(crate) etcd: Etcd,
    /// Print one JSON object per line (ls, who, kick and doctor). cli/JSON.md describes the fields
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options that say how to reach etcd.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Connection")]
pub(crate) struct Etcd {
    /// Endpoints of etcd, separated by commas
    #[arg(long, global = true, value_name = "URLS")]
    pub(crate) endpoints: Option<String>,
    /// Prefix of the keys of all locks [default: locks/]
    #[arg(long, global = true)]
    pub(crate) prefix: Option<String>,
    /// File with the CA certificates that etcd's certificate is checked against
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) cacert: Option<String>,
    /// File with the certificate of this client
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) cert: Option<String>,
    /// File with the key of that certificate
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) key: Option<String>,
    /// etcd user, as NAME:PASSWORD. Other users of this machine can see it on the command line, so prefer ETCD_LOCKED_USER
    /// and ETCD_LOCKED_PASSWORD_FILE
    #[arg(long, global = true, value_name = "NAME:PASSWORD")]
    pub(crate) user: Option<String>,
    /// How long to wait for a connection [default: ETCD_LOCKED_CONNECT_TIMEOUT, or 5s]
    #[arg(long, global = true, value_name = "TIME")]
    pub(crate) dial_timeout: Option<String>,
    /// How long to wait for etcd's response to a request; does not apply to `exec`
    #[arg(long, global = true, value_name = "TIME", default_value = "5s", value_parser = humantime::parse_duration)]
    pub(crate) command_timeout: Duration,
    /// Options of `exec` that override variables, as those above do.
    #[arg(skip)]
    pub(crate) ttl: Option<String>,
    #[arg(skip)]
    pub(crate) wait: Option<String>,
}

/// Subcommands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List the names that are locked: who holds each, for how long, and how many processes wait
    ///
    /// On a terminal it prints a table with a header; in a pipe, fields separated by tabs, without a header. Calls that wait in the
    /// process of a holder do not put a key in etcd, so they are not counted: `etcd_locked::status()` of that process lists them.
    Ls(Ls),
    /// Show who holds a name and who waits for it, in order
    ///
    /// Each line is a key in etcd. A process has one key for all its calls that wait for the name, or that share it as readers. Calls that
    /// wait in the process of the holder do not have a key: that process's status and metrics show them. In a pipe it prints fields
    /// separated by tabs, without a header. If the name is in a deadlock, that is shown too. With --json, `cycle` lists the names of
    /// the deadlock, from this one back to it. It is empty if there is none, and null if that is unknown; standard error says why.
    Who {
        /// The name, as `ls` shows it
        name: String,
    },
    /// Take a lock away from its holder
    ///
    /// It sends a request to the holder's process. That process drops the body of the call that was shown, and then gives up the lock. No
    /// other body runs before that, and a later call of the process keeps its lock. `--force` is for a process that does not respond. All
    /// readers of a process share one key. Of permits, only those known to be held are taken; `--holder` selects another one.
    Kick(Kick),
    /// Watch the locked names live, sorted by waiters, hold time or contenders gone per second; inspect one, and kick its holders
    ///
    /// Keys: `/` filters, `s` sorts, the arrows select, and Enter shows all contenders of a name. There the arrows scroll, and `k` takes
    /// the lock away from its holders, after a confirmation. GONE/S counts the keys that left a name per second: released, handed to
    /// another process, lost, or given up while they waited. A narrow terminal shows fewer columns, leaving them out from the right.
    Top(Top),
    /// Run a command under a lock, and end it before another process can acquire that lock
    ///
    /// The command has ETCD_LOCKED_NAME and ETCD_LOCKED_TOKEN in its environment. The token grows from holder to holder, so a store can
    /// refuse writes of an earlier holder (`where token <= $1`). etcd-locked passes on the signals TERM, INT, HUP, QUIT, USR1 and USR2.
    ///
    /// If the lock cannot be renewed, the command and its process group get SIGTERM, a sixth of the TTL (at most 10 s) before the lock
    /// can no longer be relied on. Then they get SIGKILL, with everything that the command started. A guardian process does this, even
    /// if etcd-locked is stopped or killed. If an operator kicks the holder, the command gets SIGTERM at once, and SIGKILL after the
    /// same time. If its key is deleted, it gets SIGKILL at once. If etcd-locked and the guardian are both killed, the system kills the
    /// command, but processes that the command started live on, unless systemd or a container ends them.
    ///
    /// When the command has ended, etcd-locked kills the processes that it left behind, daemons too, reports that, and releases the
    /// lock. The command does not have a controlling terminal, so Ctrl-Z stops only etcd-locked, and the lock is lost. The command must
    /// not change its user, because etcd-locked cannot kill what `sudo` runs. Run etcd-locked as that user instead.
    ///
    /// The command does not inherit other ETCD_LOCKED_ and ETCDCTL_ variables, because they may hold a password.
    ///
    /// Exit status: the command's, or 128 + N if the signal N ended it; 126 or 127 if it cannot be run. If the command was not started:
    /// 64 wrong use; 69 etcd is unreachable, or refuses; 71 the system refuses; 75, or `--conflict-exit-code`, not acquired, or lost
    /// before the command was started; 0 not acquired with `--on-held skip`; 128 + N ended by the signal N. etcd-locked reports each of
    /// these on standard error, in a line that begins with `etcd-locked:`. If standard error is blocked for a second, these lines are lost.
    #[cfg(target_os = "linux")]
    Exec(Exec),
    /// Guardian of `exec`; `exec` starts it
    #[cfg(target_os = "linux")]
    #[command(hide = true)]
    Guardian {
        /// How long before the stop time the command gets SIGTERM, in nanoseconds
        #[arg(long)]
        grace_ns: u64,
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
    /// Launcher of `exec`'s command; the guardian starts it
    #[cfg(target_os = "linux")]
    #[command(hide = true)]
    Launcher {
        /// Process id of the guardian
        #[arg(long)]
        guardian: i32,
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
    /// Check etcd, the user's rights, and the keys below the prefix for problems
    ///
    /// Each finding begins with `ok`, `BAD`, or `?` if it cannot be determined, and the name of the check. With --json, `ok` is true, false
    /// or null. The remedy is printed below it. Exit status: 1 if a finding is BAD. It takes 3 s, because it compares clocks. It leaves
    /// nothing in etcd: it revokes at once the leases that it grants to time etcd's writes.
    Doctor {
        /// How many leases to grant and revoke, to time etcd's writes
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
    /// Returns true if the command has `--json`.
    pub(crate) fn has_json(&self) -> bool {
        matches!(self, Self::Ls(_) | Self::Who { .. } | Self::Kick(_) | Self::Doctor { .. })
    }
}

#[derive(Debug, Args)]
pub(crate) struct Ls {
    /// Only names that begin with this
    #[arg(default_value = "", value_name = "BEGIN")]
    pub(crate) below: String,
    /// List again at this interval, such as `--watch=5s`, until Ctrl-C [2s if no time is given]; reports when etcd does not respond, and
    /// continues
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
    /// Names to list first: those with most waiters, or those held longest [default: in the order of their keys]
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
    /// Only the holder with this key, if there are several; `who NAME --json` shows the keys
    #[arg(long, value_name = "KEY")]
    pub(crate) holder: Option<String>,
    /// Do not ask for confirmation
    #[arg(long, short)]
    pub(crate) yes: bool,
    /// Delete the key of a holder that does not respond or does not end: its body may keep running beside the next holder's
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Top {
    /// Only names that begin with this
    #[arg(default_value = "", value_name = "BEGIN")]
    pub(crate) below: String,
    /// How often to read etcd; if a read is slow, the pause after it is at least five times as long
    #[arg(long, default_value = "1s", value_parser = at_least_100ms)]
    pub(crate) every: Duration,
}

/// Parses the time between two reads of all names.
fn at_least_100ms(text: &str) -> Result<Duration, String> {
    let every = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    match every >= Duration::from_millis(100) {
        true => Ok(every),
        false => Err("at least 100ms, because every interval reads all names from etcd".to_owned()),
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
    /// How long a crashed host blocks others: 2s to 300s [default: ETCD_LOCKED_TTL, or 30s]
    #[arg(long, value_name = "TIME")]
    pub(crate) ttl: Option<String>,
    /// Keep the name locked for at least this long after the lock is acquired, even if the command ends earlier, fails, or cannot be run.
    /// So a cron line runs on one host, although the clocks of the hosts differ
    #[arg(long, value_parser = humantime::parse_duration, conflicts_with = "shared")]
    pub(crate) min_hold: Option<Duration>,
    /// Share the name with other readers, which use `--shared` too
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
    /// Exit status 75, or that of `--conflict-exit-code`
    Fail,
    /// Exit status 0: another process does the work. Like `fail` if a key without a lease keeps the name locked forever
    Skip,
}
