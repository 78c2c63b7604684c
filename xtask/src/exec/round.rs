//! Round of the show: one process has a lock and meets a fault, another one waits for that lock.

use std::fmt;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use etcd_locked_devkit::process::{Process, Signal};
use etcd_locked_devkit::{Direction, Member, Proxy, until};
use rustix::process::{Pid, kill_process};

use super::pulse::{self, Pulse, now};
use crate::Result;
use crate::workspace::failed_at;

/// TTL of all locks.
const TTL: Duration = Duration::from_secs(5);

/// Limit of each step: longer than a lease can last.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long the first command is watched after the second has begun.
const WATCHED: Duration = Duration::from_millis(500);

/// Runs a command that does not end when asked to, so that only its killer can.
const STUBBORN: &str = "trap '' TERM; exec \"$@\"";

/// A program that runs commands under locks.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Tool {
    Ours(PathBuf),
    Etcdctl(PathBuf),
}

impl Tool {
    /// A command that writes into the folder, under the lock of this name.
    fn run(&self, endpoint: &str, name: &str, folder: &Path, pulse: &[&str]) -> Result<Command> {
        fs::create_dir_all(folder).map_err(failed_at(folder))?;
        let own = std::env::current_exe().map_err(|error| error.to_string())?;
        let ttl = TTL.as_secs();
        let mut command = match self {
            Self::Ours(program) => {
                let mut command = Command::new(program);
                command.args(["exec", name, "--endpoints", endpoint, "--wait", "60s"]);
                command.args(["--ttl", &format!("{ttl}s"), "--"]);
                command
            }
            Self::Etcdctl(program) => {
                let mut command = Command::new(program);
                command.args(["--endpoints", endpoint, "lock", name]);
                command.args(["--ttl", &ttl.to_string(), "--"]);
                command.env("ETCDCTL_API", "3");
                command
            }
        };
        command.args(["sh", "-c", STUBBORN, "sh"]).arg(own);
        command.arg("pulse").arg(folder).args(pulse);
        let said = File::create(folder.with_extension("said"));
        let said = said.map_err(failed_at(folder))?;
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(said);
        Ok(command)
    }

    /// Where the keys of a name lie.
    fn keys(&self, name: &str) -> String {
        match self {
            Self::Ours(_) => format!("locks/{name}/"),
            Self::Etcdctl(_) => format!("{name}/"),
        }
    }
}

impl fmt::Display for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ours(_) => "etcd-locked exec",
            Self::Etcdctl(_) => "etcdctl lock",
        })
    }
}

/// What happens to the process that has the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fault {
    /// It is killed, and nothing else.
    Kill,
    /// It is stopped, and nothing else.
    Stop,
    /// It, its guardian and its command are stopped, and go on once another command has begun.
    Freeze,
    /// It reaches etcd no more.
    Partition,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Partition => "partition",
            Self::Stop => "SIGSTOP",
            Self::Kill => "SIGKILL",
            Self::Freeze => "all stopped, then continued",
        })
    }
}

/// What a round has shown. Times are nanoseconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    /// From the fault to the begin of the second command.
    pub(super) waited: u64,
    /// How long the first command ran after the second had begun; after a freeze, after all went on. Zero: not at all.
    pub(super) overlap: u64,
    /// The first command still ran when it was watched no more.
    pub(super) lives: bool,
}

/// Where rounds are played, several at once.
#[derive(Debug)]
pub(super) struct Place<'a> {
    pub(super) etcd: &'a Member,
    pub(super) folder: &'a Path,
}

impl Place<'_> {
    /// Plays a round; `number` makes its name, and when the fault comes.
    pub(super) fn play(&self, tool: &Tool, fault: Fault, number: usize) -> Result<Seen> {
        let folders = ["one", "other"].map(|it| self.folder.join(format!("{number}-{it}")));
        let seen = self.meet(tool, fault, number, &folders);
        seen.map_err(|error| {
            let said = folders.map(|it| fs::read_to_string(it.with_extension("said")));
            let said = said.map(Result::unwrap_or_default);
            let [one, other] = said.each_ref().map(|it| it.trim());
            format!("{error}\n     the first process said: {one}\n     the second: {other}")
        })
    }

    fn meet(
        &self,
        tool: &Tool,
        fault: Fault,
        number: usize,
        [one, other]: &[PathBuf; 2],
    ) -> Result<Seen> {
        let name = format!("show/{number}");
        // The first process's way to etcd.
        let proxy = Proxy::start(self.etcd.address())?;
        // It is over long before, if it is ended.
        let mut first = tool.run(&proxy.endpoint(), &name, one, &["120000", "--pair"])?;
        let mut first = Process::start("the first process", &mut first)?;
        until("the first command", PATIENCE, || pulse::read(one).len() == 2)?;
        let first_command = Pids(pulse::read(one).iter().map(|it| it.pid).collect());

        let mut second = tool.run(&self.etcd.endpoint(), &name, other, &["20"])?;
        let _second = Process::start("the second process", &mut second)?;
        let (gateway, below) = (self.etcd.gateway(), tool.keys(&name));
        until("the second process's key", PATIENCE, || {
            gateway.keys(&below).is_ok_and(|keys| keys.len() == 2)
        })?;
        // At any time between two renewals.
        let third = TTL.as_millis() as u64 / 3;
        thread::sleep(Duration::from_millis(number as u64 * 137 % third));

        let at = now();
        let mut all = first_command.0.clone();
        match fault {
            Fault::Partition => {
                proxy.cut(Direction::Requests);
                proxy.cut(Direction::Answers);
            }
            Fault::Stop => first.stop()?,
            Fault::Kill => first.signal(Signal::KILL),
            Fault::Freeze => {
                all.extend(children(first.pid()));
                all.push(first.pid());
                all.sort_by_key(|pid| pid.as_raw_nonzero());
                all.dedup();
                // In every order, one after the other.
                all.rotate_left(number % 4);
                signal(&all, Signal::STOP);
            }
        }
        until("the second command", PATIENCE, || !pulse::read(other).is_empty())?;
        let second = pulse::read(other);
        let begun = second.first().map_or(0, |it| it.begun);
        if begun < at {
            return Err(format!("{name}: the second command began before the fault"));
        }
        let mut from = begun;
        if fault == Fault::Freeze {
            from = now();
            signal(&all, Signal::CONT);
        }
        thread::sleep(WATCHED);
        let last = pulse::read(one).iter().map(|it: &Pulse| it.last).max();
        Ok(Seen {
            waited: begun - at,
            overlap: last.unwrap_or(0).saturating_sub(from),
            lives: first_command.0.iter().any(|pid| lives(*pid)),
        })
    }
}

/// Processes of a command, which end with the round.
struct Pids(Vec<Pid>);

impl Drop for Pids {
    fn drop(&mut self) {
        let left: Vec<_> = self.0.iter().copied().filter(|pid| lives(*pid)).collect();
        signal(&left, Signal::KILL);
    }
}

fn signal(pids: &[Pid], signal: Signal) {
    for pid in pids {
        // It fails for one that has ended.
        let _ = kill_process(*pid, signal);
    }
}

/// State and parent of a process; `None`: there is none.
fn stat(pid: Pid) -> Option<(char, Pid)> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut rest = rest.split(' ');
    let state = rest.next()?.chars().next()?;
    Some((state, Pid::from_raw(rest.next()?.parse().ok()?)?))
}

fn lives(pid: Pid) -> bool {
    stat(pid).is_some_and(|(state, _)| !"ZX".contains(state))
}

fn children(parent: Pid) -> Vec<Pid> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|it| Pid::from_raw(it.file_name().to_str()?.parse().ok()?));
    pids.filter(|pid| stat(*pid).is_some_and(|(_, of)| of == parent)).collect()
}
