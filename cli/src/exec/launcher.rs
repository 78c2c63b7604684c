//! Launcher: makes the system kill it when the guardian dies, and becomes the command.
//!
//! A guardian that is killed cannot kill the command, and neither can a wrapper that is stopped. A process can request this only for
//! itself. The request stays in force in the program that the process becomes, unless that changes its user. Its children lack it.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;

use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
use signal_hook::consts::SIGPIPE;

use super::KILLED;
use crate::output::say;

/// Exit statuses of a command that does not exist, or that cannot be run, as in shells.
const NOT_FOUND: u8 = 127;
const NOT_RUNNABLE: u8 = 126;

/// Becomes the command. Returns the exit status if that fails.
pub(crate) fn launcher(guardian: i32, command: &[OsString]) -> u8 {
    let Some((program, arguments)) = command.split_first() else {
        return NOT_FOUND;
    };
    let error = match set_parent_process_death_signal(Some(Signal::KILL)) {
        // The guardian died before the request.
        Ok(()) if getppid() != Pid::from_raw(guardian) => return KILLED,
        Ok(()) => Command::new(program).args(arguments).exec(),
        Err(error) => error.into(),
    };
    // A failed `exec` leaves SIGPIPE at its deadly default, and standard error may be a closed pipe.
    let _ = signal_hook::flag::register(SIGPIPE, Arc::default());
    let program = program.to_string_lossy();
    say(format_args!("etcd-locked: `{program}` cannot be run: {error}"));
    match error.kind() {
        ErrorKind::NotFound => NOT_FOUND,
        _ => NOT_RUNNABLE,
    }
}
