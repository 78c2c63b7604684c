//! Options of the command line.

use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;

/// Shows the locks that services take with etcd-locked, and takes them away.
///
/// It connects as the library does: by ETCD_LOCKED_ENDPOINTS and the other variables, where these are unset by ETCDCTL_ENDPOINTS
/// and the others of etcdctl, or by the options below.
///
/// Exit status: 0 done; 1 not found, not done, or something to mend; 2 wrong use; 3 etcd out of reach.
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

/// Options of `doctor`.
#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// How many reads to time
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) probes: u32,
}
