//! Family of a command: its process, everything it started, and the orphans among them, which this process adopts.

use std::fs;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, WaitStatus, getpid, kill_process,
    kill_process_group, set_child_subreaper, wait, waitid, waitpid,
};

use super::status_of_signal;

/// Pauses between two reads of the processes that were killed: the first, and the longest.
const PAUSE: Duration = Duration::from_millis(5);
const MOST_PAUSE: Duration = Duration::from_millis(100);

/// Time after which processes that have not died are named.
pub(super) const SLOW: Duration = Duration::from_secs(1);

/// Makes this process the new parent of its children's orphans.
pub(super) fn adopt_orphans() -> io::Result<()> {
    Ok(set_child_subreaper(Some(getpid()))?)
}

/// Returns true if a child has ended. The child stays unreaped, so that the system does not reuse its id for a process or group.
pub(super) fn has_ended(child: Pid) -> bool {
    let unreaped = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    !matches!(waitid(WaitId::Pid(child), unreaped), Ok(None))
}

/// Reaps adopted children that have ended, while the leader runs. Returns the leader's exit status if it ended meanwhile and was
/// reaped too.
pub(super) fn reap_orphans(leader: Pid) -> Option<u8> {
    // No safe call returns the id of a child without reaping it, and reading `/proc` for each one would be slow.
    while !has_ended(leader) {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((child, ended))) if child == leader => return Some(status_of(ended)),
            Ok(Some(_)) => {}
            Ok(None) | Err(_) => break,
        }
    }
    None
}

/// Kills all children but the spared ones, and their children, and waits for their end. `leader` leads a group, which is killed as a
/// whole first. `tell` is called once, with processes that do not die soon. Returns the leader's exit status, and the number of
/// other children seen at first.
pub(super) fn end(
    leader: Option<Pid>,
    spared: &[Pid],
    tell: impl Fn(&[Pid]),
) -> (Option<u8>, usize) {
    if let Some(leader) = leader {
        // This fails only if no process of the group is left.
        let _ = kill_process_group(leader, Signal::KILL);
    }
    let mut status = None;
    let mut pause = PAUSE;
    let begun = Instant::now();
    let mut told = false;
    let mut seen_at_first = None;
    loop {
        // The list of children is not always readable. If none is spared, `waitpid` still shows that there are none.
        let seen = children();
        let mut doomed = seen.clone().unwrap_or_default();
        doomed.retain(|child| !spared.contains(child));
        let besides = doomed.iter().filter(|child| Some(**child) != leader);
        let others = *seen_at_first.get_or_insert(besides.count());
        let mut reaped = Vec::new();
        if doomed.is_empty() && spared.is_empty() {
            match wait(WaitOptions::NOHANG) {
                Err(Errno::CHILD) => return (status, others),
                any => reaped.push(any),
            }
        } else if doomed.is_empty() {
            if seen.is_some() {
                return (status, others);
            }
            reaped.push(Ok(None));
        }
        for child in &doomed {
            let _ = kill_process(*child, Signal::KILL);
        }
        // A process that is slow to die does not delay the others.
        reaped.extend(doomed.iter().map(|child| waitpid(Some(*child), WaitOptions::NOHANG)));
        let mut remain = false;
        for one in reaped {
            match one {
                Ok(Some((child, ended))) if Some(child) == leader => {
                    status = Some(status_of(ended));
                }
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => remain = true,
            }
        }
        // The system moves a child's children to this process before it reports the child's end, so there may be new ones.
        if remain {
            thread::sleep(pause);
            pause = (pause * 2).min(MOST_PAUSE);
            if !told && begun.elapsed() > SLOW {
                told = true;
                tell(&doomed);
            }
        }
    }
}

/// Words the message about processes that do not die.
pub(super) fn immortal(left: &[Pid]) -> String {
    let pids: Vec<_> = left.iter().map(|pid| pid.as_raw_pid().to_string()).collect();
    format!(
        "waiting for killed processes that still run, because they wait for a disk or belong to another user: process {}",
        pids.join(" ")
    )
}

fn status_of(ended: WaitStatus) -> u8 {
    match (ended.exit_status(), ended.terminating_signal()) {
        (Some(status), _) => u8::try_from(status).unwrap_or(u8::MAX),
        (None, Some(signal)) => status_of_signal(signal),
        (None, None) => u8::MAX,
    }
}

/// Returns the children of this process, ended ones too; `None` if unreadable. Not every kernel has `/proc/self/task/*/children`.
pub(super) fn children() -> Option<Vec<Pid>> {
    let own = getpid().as_raw_nonzero().to_string();
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let children = processes.filter_map(|process| {
        let pid: i32 = process.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(process.path().join("stat")).ok()?;
        // After the name, which ends with the last parenthesis: the state, the parent.
        let (_, rest) = stat.rsplit_once(") ")?;
        (rest.split(' ').nth(1)? == own).then(|| Pid::from_raw(pid))?
    });
    Some(children.collect())
}
