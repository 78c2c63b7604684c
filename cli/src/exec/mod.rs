//! `exec`: runs a command under a lock, and ends it before another process can have that lock.
//!
//! Three processes. The wrapper, which the user started, holds the lock. The guardian, in a session of its own, is the parent of
//! the command: it knows until when the lock is held, and ends the command by then, whatever has become of the wrapper. That is
//! simpler than a guardian next to the command, which would have to be armed before the command starts, and could not reap it.
//!
//! Both adopt orphans (`PR_SET_CHILD_SUBREAPER`), so what the command leaves becomes a child of its guardian, and of the wrapper
//! if the guardian dies. Each ends all its children: no process of the command outlives the lock, not even one that left its group.
//! Where the guardian dies while the wrapper is stopped, the system kills the command itself, and the wrapper the rest once it goes on.

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

/// Variables of the command: the lock's name, and a token that grows from holder to holder.
const NAME: &str = "ETCD_LOCKED_NAME";
const TOKEN: &str = "ETCD_LOCKED_TOKEN";

/// Exit status of a process that SIGKILL has ended.
const KILLED: u8 = 137;

/// Exit status of a process that this signal has ended, as shells say it.
fn status_of_signal(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(u8::MAX)
}

/// Signals that may be meant for all processes of a service: the wrapper passes them on, and the guardian has to outlive them. Not
/// those that this process ignores, which it does only if its parent had it so, as after `nohup`.
fn signals_for_all() -> impl Iterator<Item = i32> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or(0);
    let all = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2];
    all.into_iter().filter(move |signal| ignored >> (signal - 1) & 1 == 0)
}
