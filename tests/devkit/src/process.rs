//! Child processes, each ended by its id when its value drops and, where a program asks for it, on Ctrl-C.
//!
//! Invariant: a child is reaped only under the lock of `RUNNING`, and leaves that list in the same step. So every id in the
//! list is a child's; the system cannot have given it to a stranger.

use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

pub use rustix::process::Signal;

use crate::{Result, lock, until};

static RUNNING: Mutex<Vec<Pid>> = Mutex::new(Vec::new());
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

const POLL: Duration = Duration::from_millis(10);
/// Time that a process has, after an interrupt, to end by itself.
const GRACE: Duration = Duration::from_millis(300);
/// Time that the main thread has, after an interrupt, to drop its values.
const CLEAN_UP: Duration = Duration::from_secs(5);

/// A child process.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
}

impl Process {
    /// Starts a process; `name` is for errors.
    pub fn start(name: &str, command: &mut Command) -> Result<Self> {
        let mut running = running();
        if interrupted() {
            return Err("interrupted".to_owned());
        }
        let child = command
            .spawn()
            .map_err(|error| format!("{name} does not start: {error}"))?;
        running.push(Pid::from_child(&child));
        Ok(Self {
            name: name.to_owned(),
            child,
        })
    }

    /// Returns the child with its standard streams, as far as they are pipes.
    pub fn streams(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Returns how the process ended; `None` if it still runs.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        let mut running = running();
        let status = self
            .child
            .try_wait()
            .map_err(|error| format!("{}: {error}", self.name))?;
        if status.is_some() {
            let pid = self.pid();
            running.retain(|other| *other != pid);
        }
        Ok(status)
    }

    /// Waits until the process ends, but not longer than `limit`.
    pub fn wait(&mut self, limit: Duration) -> Result<ExitStatus> {
        let start = Instant::now();
        loop {
            if let Some(status) = self.ended()? {
                return Ok(status);
            }
            if start.elapsed() >= limit {
                return Err(format!("{} has not ended after {limit:?}", self.name));
            }
            thread::sleep(POLL);
        }
    }

    /// Asks the process to end, and waits.
    pub fn terminate(&mut self, limit: Duration) -> Result<ExitStatus> {
        self.signal(Signal::TERM);
        self.wait(limit)
    }

    /// Ends the process at once, and waits for its end.
    pub fn kill(&mut self) -> Result<()> {
        self.signal(Signal::KILL);
        self.wait(Duration::from_secs(10)).map(drop)
    }

    /// Stops the process, and returns once every thread of it has stopped: until then it goes on answering.
    pub fn stop(&mut self) -> Result<()> {
        self.signal(Signal::STOP);
        let pid = self.pid();
        let what = format!("{} is stopped", self.name);
        until(&what, Duration::from_secs(10), || is_stopped(pid))
    }

    /// Resumes a stopped process.
    pub fn cont(&mut self) {
        self.signal(Signal::CONT);
    }

    /// Returns the process id.
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Sends a signal, unless the process is known to have ended.
    pub fn signal(&mut self, signal: Signal) {
        let running = running();
        if running.contains(&self.pid()) {
            // The signal fails only for a process that has just ended.
            let _ = kill_process(self.pid(), signal);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

/// Returns whether every thread of the process is in the state T.
fn is_stopped(pid: Pid) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero()));
    let is_stopped = |task: std::fs::DirEntry| {
        // The state follows the name, which ends with the last parenthesis; a thread that has ended has no file.
        let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        stat.rsplit_once(") ")
            .is_none_or(|(_, rest)| rest.starts_with('T'))
    };
    tasks.is_ok_and(|tasks| tasks.flatten().all(is_stopped))
}

/// Runs a command in the foreground, with its output on the terminal.
pub fn run(name: &str, command: &mut Command) -> Result<()> {
    let status = Process::start(name, command)?.wait(Duration::MAX)?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("{name}: {status}"))
    }
}

/// Runs a command silently, and returns its standard output.
pub fn output(command: &mut Command) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("`{program}` does not start: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<_> = stderr
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    Err(format!(
        "`{program}` ends with {}: {}",
        output.status,
        lines[lines.len().saturating_sub(3)..].join("; ")
    ))
}

/// Makes an interrupt end every child process. The main thread then meets an error, and cleans up by its drops.
pub fn end_all_on_interrupt() -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])
        .map_err(|error| format!("no signal handler: {error}"))?;
    thread::spawn(move || {
        if signals.forever().next().is_some() {
            {
                let running = running();
                INTERRUPTED.store(true, Ordering::SeqCst);
                for pid in running.iter() {
                    let _ = kill_process(*pid, Signal::TERM);
                }
            }
            // A service that waits for an etcd that has just ended would wait for long.
            thread::sleep(GRACE);
            for pid in running().iter() {
                let _ = kill_process(*pid, Signal::KILL);
            }
            thread::sleep(CLEAN_UP);
            std::process::exit(130);
        }
    });
    Ok(())
}

/// Returns true after an interrupt by the user.
pub fn interrupted() -> bool {
    INTERRUPTED.load(Ordering::SeqCst)
}

fn running() -> MutexGuard<'static, Vec<Pid>> {
    lock(&RUNNING)
}
