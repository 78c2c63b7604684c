//! Guardian: parent of the command, which it ends before another process can acquire the lock.
//!
//! It waits for the wrapper's messages, for ends of children and for its timer, and depends neither on etcd nor on the wrapper. The
//! timer uses the boot clock, so the time of a suspended machine, or of a stopped guardian, counts too. While the guardian is stopped,
//! the wrapper kills the command.

use std::ffi::OsString;
use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, getpid, kill_process_group, setpriority_process, setsid};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};
use signal_hook::consts::SIGCHLD;
use signal_hook::low_level::pipe;

use super::link::{Message, now, receive, receive_file, send};
use super::speaker::Speaker;
use super::watch::{Due, Watch};
use super::{NAME, family, signals_for_all};

const HIGHEST_PRIORITY: i32 = -20;

/// Guards a command from its start to its end. If the guardian cannot begin or continue, the end is at once.
pub(crate) fn guardian(grace: u64, command: &[OsString]) {
    let speaker = Speaker::start(std::env::var(NAME).unwrap_or_default());
    if let Err(error) = guard(grace, command, &speaker) {
        family::end(None, &[], |_| {});
        speaker.say(format!("the guardian of the command failed: {error}"));
    }
    speaker.finish();
}

fn guard(grace: u64, command: &[OsString], speaker: &Speaker) -> io::Result<()> {
    let link = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let stdin = receive_file(&link)?;
    // In another session, the guardian does not get signals of the terminal, or signals to the wrapper's group.
    setsid()?;
    family::adopt_orphans()?;
    let (wakeup, waker) = UnixStream::pair()?;
    wakeup.set_nonblocking(true)?;
    // Handlers, because the command would inherit an ignored signal, as it should after `nohup`.
    for signal in signals_for_all().chain([SIGCHLD]) {
        pipe::register(signal, waker.try_clone()?)?;
    }
    let timer = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC)?;
    let Some((watch, early)) = watch(&link, grace)? else {
        return Ok(());
    };
    let leader = start(command, stdin)?;
    let mut guarded =
        Guarded { leader, watch, is_alone: false, why: "the lock is not being renewed", speaker };
    early.into_iter().for_each(|it| guarded.pass_on(it));
    let mut ended = None;
    let mut over = None;
    while ended.is_none() {
        over = guarded.over(&link);
        if over.is_some() {
            break;
        }
        timerfd_settime(&timer, TimerfdTimerFlags::ABSTIME, &at(guarded.watch.next()))?;
        if guarded.wait(&link, &wakeup, &timer)? {
            ended = family::reap_orphans(guarded.leader);
        }
    }
    // After the leader is reaped, its group id may belong to other processes.
    let leader = ended.is_none().then_some(guarded.leader);
    let tell = |left: &[Pid]| speaker.say(family::immortal(left));
    let (status, behind) = family::end(leader, &[], tell);
    if behind > 0 && over != Some(true) {
        speaker.say(format!(
            "the command has ended; what it left behind is killed: {behind} process(es)"
        ));
    }
    if let Some(status) = status.or(ended) {
        send(&link, Message::Ended(status));
    }
    Ok(())
}

/// Starts the command, in a separate process group.
fn start(command: &[OsString], stdin: OwnedFd) -> io::Result<Pid> {
    let own = getpid().as_raw_nonzero().to_string();
    // On this thread, which lives as long as the process: the system kills the command when the thread that started it ends.
    let child = Command::new("/proc/self/exe")
        .arg0("etcd-locked")
        .args(["launcher", "--guardian", &own, "--"])
        .args(command)
        .stdin(Stdio::from(stdin))
        .process_group(0)
        .spawn()?;
    // So that a busy machine does not delay it. After the start, or the command would inherit it. Not every user has the right.
    let _ = setpriority_process(None, HIGHEST_PRIORITY);
    Ok(Pid::from_child(&child))
}

#[derive(Debug)]
struct Guarded<'a> {
    leader: Pid,
    watch: Watch,
    /// True after the wrapper has gone.
    is_alone: bool,
    /// Reason why the command must end, for the message.
    why: &'static str,
    speaker: &'a Speaker,
}

impl Guarded<'_> {
    /// Waits for a message, a signal or the timer. Returns true after a signal.
    fn wait(
        &self,
        link: &UnixStream,
        mut wakeup: &UnixStream,
        timer: &OwnedFd,
    ) -> io::Result<bool> {
        let all = [timer.as_fd(), wakeup.as_fd(), link.as_fd()];
        let mut all = all.map(|it| PollFd::from_borrowed_fd(it, PollFlags::IN));
        // A link whose other end has gone would always be ready.
        let polled = if self.is_alone { 2 } else { 3 };
        rustix::io::retry_on_intr(|| poll(&mut all[..polled], None))?;
        let mut woken = Vec::new();
        // It fails when nothing is left to read; the bytes read so far stay.
        let _ = wakeup.read_to_end(&mut woken);
        Ok(!woken.is_empty())
    }

    /// Takes the actions that are due. Returns `None` while the command runs, and then whether it had to be killed.
    fn over(&mut self, link: &UnixStream) -> Option<bool> {
        while !self.is_alone {
            match receive(link) {
                Ok(Message::Until(stop)) => self.watch.extend(stop),
                Ok(Message::Within(time)) => self.end("an operator takes the lock away", time),
                Ok(Message::Signal(signal)) => self.pass_on(signal),
                // Only the guardian sends these.
                Ok(Message::TooLate | Message::Ended(_)) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => {
                    self.is_alone = true;
                    self.end("etcd-locked itself has ended", self.watch.grace);
                }
            }
        }
        if family::has_ended(self.leader) {
            return Some(false);
        }
        let now = now();
        match self.watch.due(now) {
            Due::Nothing => None,
            Due::Ask => {
                self.signal(Signal::TERM);
                let left = Duration::from_nanos(self.watch.stop.saturating_sub(now));
                self.speaker.say(format!(
                    "{}: the command gets SIGTERM, and SIGKILL in {left:.1?}",
                    self.why
                ));
                None
            }
            Due::Kill => {
                self.signal(Signal::KILL);
                self.speaker.say("the command is killed");
                Some(true)
            }
        }
    }

    fn end(&mut self, why: &'static str, within: u64) {
        self.why = why;
        self.watch.end(now().saturating_add(within));
    }

    fn pass_on(&self, signal: i32) {
        if let Some(signal) = Signal::from_named_raw(signal) {
            self.signal(signal);
        }
    }

    /// Sends a signal to the command's group. Its leader is not reaped yet, so the group id is still the command's.
    fn signal(&self, signal: Signal) {
        let _ = kill_process_group(self.leader, signal);
    }
}

/// Waits for the first stop time. Also returns the signals that came before it. Returns `None` if the command must not be started;
/// the wrapper knows why.
fn watch(link: &UnixStream, grace: u64) -> io::Result<Option<(Watch, Vec<i32>)>> {
    // Waits for the first message. Anything other than a stop time means that the wrapper has gone, or is about to.
    let Ok(Message::Until(mut stop)) = receive(link) else {
        return Ok(None);
    };
    link.set_nonblocking(true)?;
    let mut early = Vec::new();
    // On a busy machine the guardian begins late, and the wrapper may have renewed the lock since its first message.
    while Watch::new(stop, grace).due(now()) != Due::Nothing {
        match receive(link) {
            Ok(Message::Until(renewed)) => stop = stop.max(renewed),
            Ok(Message::Signal(signal)) => early.push(signal),
            _ => {
                send(link, Message::TooLate);
                return Ok(None);
            }
        }
    }
    Ok(Some((Watch::new(stop, grace), early)))
}

/// Returns a timer's setting for this moment.
fn at(nanos: u64) -> Itimerspec {
    // A setting of zero would disarm the timer.
    let when = Timespec::try_from(Duration::from_nanos(nanos.max(1)));
    Itimerspec { it_interval: Timespec::default(), it_value: when.unwrap_or_default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::link::pair;

    #[test]
    fn command_is_started_only_under_a_lock_that_lasts() {
        let grace = 1_000_000_000_000;
        let (soon, later) = (Message::Until(now()), Message::Until(now() + 2 * grace));
        for (messages, early) in [
            (&[soon][..], None),
            (&[Message::Until(now() + grace / 2)], None),
            (&[soon, Message::Signal(15), later], Some(vec![15])),
        ] {
            let (near, far) = pair().expect("a pair");
            near.set_nonblocking(true).expect("a socket");
            messages.iter().for_each(|it| send(&near, *it));
            let started = watch(&far, grace).expect("no error");
            let too_late = matches!(receive(&near), Ok(Message::TooLate));
            assert_eq!(started.map(|(_, early)| early), early);
            assert_eq!(too_late, early.is_none());
        }
    }
}
