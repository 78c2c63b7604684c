//! Command `exec`: runs a command under a lock, and ends it before another process can acquire that lock.
//!
//! It uses three processes. The user starts the wrapper, which holds the lock. The guardian, in a separate session, is the parent of
//! the command. It knows until when the lock is held, and ends the command by then, whether the wrapper runs or not. That is
//! simpler than a guardian next to the command, which would have to be armed before the command starts, and could not reap it.
//!
//! Both adopt orphans (`PR_SET_CHILD_SUBREAPER`). So orphans of the command become children of the guardian, or of the wrapper if
//! the guardian dies. Each ends all its children: no process of the command outlives the lock, not even one that left its group.
//! If the guardian dies while the wrapper is stopped, the system kills the command, and the wrapper kills the rest when it continues.

mod family;
mod guardian;
mod launcher;
mod link;
mod speaker;
mod watch;
mod wrapper;

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};

pub(crate) use self::guardian::guardian;
pub(crate) use self::launcher::launcher;
pub(crate) use self::wrapper::exec;

/// Environment variables of the command: the lock's name, and a token that grows from holder to holder.
const NAME: &str = "ETCD_LOCKED_NAME";
const TOKEN: &str = "ETCD_LOCKED_TOKEN";

/// Exit status of a process that SIGKILL ended.
const KILLED: u8 = 137;

/// Returns the exit status of a process that this signal ended, as in shells.
fn status_of_signal(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(u8::MAX)
}

/// Returns the signals that may be sent to all processes of a service: the wrapper passes them on, and the guardian must survive them.
/// Leaves out those that this process ignores, which it inherits from its parent, as after `nohup`.
fn signals_for_all() -> impl Iterator<Item = i32> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or(0);
    let all = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2];
    all.into_iter().filter(move |signal| ignored >> (signal - 1) & 1 == 0)
}
