//! Child processes, each ended by its id when its value drops and, if a program enables that, on Ctrl-C.
//!
//! Invariant: a child is reaped only under the lock of `RUNNING`, and leaves that list in the same step. So every id in the
//! list is a child's; the system cannot have reused it for another process.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, WaitId, WaitIdOptions, kill_process, kill_process_group, waitid};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

pub use rustix::process::Signal;

use crate::{Result, lock, until};

static RUNNING: Mutex<Vec<Target>> = Mutex::new(Vec::new());
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

const POLL: Duration = Duration::from_millis(10);
/// Time that a process has, after an interrupt, to end by itself.
const GRACE: Duration = Duration::from_millis(300);
/// Time that the main thread has, after an interrupt, to drop its values.
const CLEAN_UP: Duration = Duration::from_secs(5);

/// Target of a signal: a child, or the process group that it leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Target {
    pid: Pid,
    leads: bool,
}

impl Target {
    /// Sends a signal. This fails only for a process that has just ended.
    fn send(self, signal: Signal) {
        let _ = match self.leads {
            true => kill_process_group(self.pid, signal),
            false => kill_process(self.pid, signal),
        };
    }
}

/// Output of a server that prints.
pub type Printed = BufReader<ChildStdout>;

/// Child process.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    target: Target,
}

impl Process {
    /// Starts a process; `name` is for errors.
    pub fn start(name: &str, command: &mut Command) -> Result<Self> {
        Self::spawn(name, command, false)
    }

    /// Starts a server that first prints `listening on http://…`. Returns that address, and the output, which must be kept open.
    pub fn listening(name: &str, command: &mut Command) -> Result<(Self, String, Printed)> {
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut process = Self::start(name, command)?;
        let stdout = process.streams().stdout.take();
        let mut stdout = BufReader::new(stdout.ok_or_else(|| format!("{name} has no output"))?);
        let mut line = String::new();
        let read = stdout.read_line(&mut line);
        read.map_err(|error| format!("{name}: {error}"))?;
        let address = line.trim().strip_prefix("listening on http://");
        let address =
            address.ok_or_else(|| format!("{name} has not come up; its reason is above"))?;
        Ok((process, address.to_owned(), stdout))
    }

    /// Starts a process that leads a new group: the processes that it starts get its signals, and end with it.
    pub fn lead(name: &str, command: &mut Command) -> Result<Self> {
        Self::spawn(name, command.process_group(0), true)
    }

    fn spawn(name: &str, command: &mut Command, leads: bool) -> Result<Self> {
        let mut running = running();
        if interrupted() {
            return Err("interrupted".to_owned());
        }
        let child = command.spawn().map_err(|error| format!("{name} does not start: {error}"))?;
        let target = Target { pid: Pid::from_child(&child), leads };
        running.push(target);
        Ok(Self { name: name.to_owned(), child, target })
    }

    /// Returns the child with those of its standard streams that are pipes.
    pub fn streams(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Returns how the process ended; `None` if it still runs.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        let mut running = running();
        let target = self.target;
        if target.leads && running.contains(&target) {
            // Until the leader is reaped, the system does not reuse its id for another group.
            let unreaped = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
            let ended = waitid(WaitId::Pid(target.pid), unreaped)
                .map_err(|error| format!("{}: {error}", self.name))?;
            if ended.is_none() {
                return Ok(None);
            }
            target.send(Signal::KILL);
        }
        let status = self.child.try_wait().map_err(|error| format!("{}: {error}", self.name))?;
        if status.is_some() {
            running.retain(|other| *other != target);
        }
        Ok(status)
    }

    /// Waits until the process ends, at most for `limit`.
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

    /// Sends SIGTERM to the process, and waits for its end.
    pub fn terminate(&mut self, limit: Duration) -> Result<ExitStatus> {
        self.signal(Signal::TERM);
        self.wait(limit)
    }

    /// Ends the process at once, and waits for its end.
    pub fn kill(&mut self) -> Result<()> {
        self.signal(Signal::KILL);
        self.wait(Duration::from_secs(10)).map(drop)
    }

    /// Stops the process, and returns after all of its threads have stopped, because until then it still responds.
    pub fn stop(&mut self) -> Result<()> {
        self.signal(Signal::STOP);
        let Target { pid, leads } = self.target;
        let process = Path::new("/proc").join(pid.as_raw_nonzero().to_string());
        let what = format!("{} is stopped", self.name);
        until(&what, Duration::from_secs(10), || match leads {
            true => group(pid).all(|member| states(&member).all(|state| IDLE.contains(state))),
            false => process.is_dir() && states(&process).all(|state| state == STOPPED),
        })
    }

    /// Resumes a stopped process.
    pub fn cont(&mut self) {
        self.signal(Signal::CONT);
    }

    /// Returns the process id.
    pub fn pid(&self) -> Pid {
        self.target.pid
    }

    /// Sends a signal, unless the process is known to have ended.
    pub fn signal(&mut self, signal: Signal) {
        let running = running();
        if running.contains(&self.target) {
            self.target.send(signal);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

const STOPPED: char = 'T';
/// States in which a thread of a stopped group does not run its program: stopped, ended, or asleep in a system call at whose end
/// it stops, such as that of a parent whose child was stopped before its `exec`.
const IDLE: &str = "TZXD";

/// Returns the processes of a group, as folders of the system.
fn group(leader: Pid) -> impl Iterator<Item = PathBuf> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let leader = leader.as_raw_nonzero().to_string();
    processes.map(|process| process.path()).filter(move |process| {
        // The state, the parent, the group.
        stat(process).is_some_and(|rest| rest.split(' ').nth(2) == Some(leader.as_str()))
    })
}

/// Returns the state of every thread of a process; nothing if the process has ended.
fn states(process: &Path) -> impl Iterator<Item = char> {
    let tasks = fs::read_dir(process.join("task")).into_iter().flatten().flatten();
    tasks.filter_map(|task| stat(&task.path())?.chars().next())
}

/// Returns the system's line about a process or thread, from its state onwards.
fn stat(folder: &Path) -> Option<String> {
    let stat = fs::read_to_string(folder.join("stat")).ok()?;
    // The state follows the name, which ends with the last parenthesis.
    let (_, rest) = stat.rsplit_once(") ")?;
    Some(rest.to_owned())
}

/// Runs a command in the foreground, with its output on the terminal.
pub fn run(name: &str, command: &mut Command) -> Result<()> {
    let status = Process::start(name, command)?.wait(Duration::MAX)?;
    if status.success() { Ok(()) } else { Err(format!("{name}: {status}")) }
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
    let lines: Vec<_> = stderr.lines().filter(|line| !line.trim().is_empty()).collect();
    Err(format!(
        "`{program}` ends with {}: {}",
        output.status,
        lines[lines.len().saturating_sub(3)..].join("; ")
    ))
}

/// Returns what a process has written: its standard output, then its standard error.
pub fn text(output: &Output) -> String {
    let texts = [&output.stdout, &output.stderr];
    texts.map(|text| String::from_utf8_lossy(text)).concat()
}

/// Makes an interrupt end every child process. The main thread then gets an error, and its drops clean up.
pub fn end_all_on_interrupt() -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])
        .map_err(|error| format!("no signal handler: {error}"))?;
    thread::spawn(move || {
        if signals.forever().next().is_some() {
            {
                let running = running();
                INTERRUPTED.store(true, Ordering::SeqCst);
                for target in running.iter() {
                    target.send(Signal::TERM);
                }
            }
            // A service that waits for an etcd that has just ended would wait long.
            thread::sleep(GRACE);
            for target in running().iter() {
                target.send(Signal::KILL);
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

fn running() -> MutexGuard<'static, Vec<Target>> {
    lock(&RUNNING)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn becomes(child: &Path, is: impl Fn(char) -> bool) {
        let holds = || states(child).all(&is);
        until("the child's state", Duration::from_secs(10), holds).expect("the child's state");
    }

    #[test]
    fn a_group_stops_goes_on_and_ends_with_its_leader() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "sleep 600 & echo $!; wait"]).stdout(Stdio::piped());
        let mut leader = Process::lead("a shell", &mut shell).expect("a shell");
        let stdout = leader.streams().stdout.take().expect("a pipe");
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).expect("a line");
        let child = Path::new("/proc").join(line.trim());
        assert!(child.is_dir());
        leader.stop().expect("it stops");
        becomes(&child, |state| state == STOPPED);
        leader.cont();
        becomes(&child, |state| state != STOPPED);
        kill_process(leader.pid(), Signal::KILL).expect("the leader alone is killed");
        leader.wait(Duration::from_secs(10)).expect("the leader's end is seen");
        // A child that no process reaps has the state Z.
        becomes(&child, |state| "ZX".contains(state));
    }
}
