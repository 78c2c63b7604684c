//! Wrapper of `exec`: holds the lock, renews the guardian's deadline, and passes signals on.

use std::future::IntoFuture;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use etcd_locked::{Acquire, LockError, LockGuard, LockMode, LossCause, Name};
use rustix::process::Pid;
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::signal::unix::SignalKind;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};

use super::link::{Message, now, pair, receive, send, send_file};
use super::speaker::Speaker;
use super::{KILLED, NAME, TOKEN, family, signals_for_all, status_of_signal};
use crate::connection::{Connection, value};
use crate::failure::Failure;
use crate::options::{Etcd, Exec, OnHeld};
use crate::signals;

/// Longest time that a command has between SIGTERM and SIGKILL.
const MOST_GRACE: Duration = Duration::from_secs(10);

/// How long the guardian may take to kill a command whose lock is lost. After that the wrapper does it.
const OVERDUE: Duration = Duration::from_millis(100);

const TOO_LATE: &str =
    "the lock was lost, or about to be lost, before the command started: it has not run";

/// How long the engine's shutdown may take.
const GOODBYE: Duration = Duration::from_secs(2);

/// Runs a command under a lock; returns the exit status.
pub(crate) async fn exec(etcd: &Etcd, options: &Exec) -> Result<u8, Failure> {
    let kinds = signals_for_all().map(SignalKind::from_raw);
    let signals = signals(kinds).map_err(|error| system(&error))?;
    let program = options.command.first().map(Path::new);
    let service = program.and_then(Path::file_name).unwrap_or_default();
    let service = service.to_string_lossy();
    let wait = options.wait.clone().or(options.no_wait.then(|| "none".to_owned()));
    let etcd = Etcd { wait, ttl: options.ttl.clone(), ..etcd.clone() };
    let connection = Connection::new(&etcd, &service, false)?;
    let mut call = connection.locks.lock(&options.name);
    if let Some(min_hold) = options.min_hold {
        call = call.min_hold(min_hold);
    }
    // The library has checked the value, and uses the same default.
    let ttl = value(&etcd, "ETCD_LOCKED_TTL");
    let ttl = ttl
        .and_then(|text| humantime::parse_duration(&text).ok())
        .unwrap_or(Duration::from_secs(30));
    let mut run = Run { options, ttl, signals, speaker: Speaker::start(options.name.clone()) };
    let status = match options.permits {
        Some(permits) => run.under_lock(call.permits(permits)).await,
        None if options.shared => run.under_lock(call.shared()).await,
        None => run.under_lock(call).await,
    };
    // Revokes the lease, so that no other process has to wait until it expires.
    let _ = timeout(GOODBYE, connection.locks.shutdown(Duration::ZERO)).await;
    run.speaker.finish();
    status
}

/// Command before or while it runs.
struct Run<'a> {
    options: &'a Exec,
    ttl: Duration,
    signals: mpsc::Receiver<i32>,
    speaker: Speaker,
}

impl Run<'_> {
    /// Returns how long the command has between SIGTERM and SIGKILL.
    fn grace(&self) -> Duration {
        (self.ttl / 6).min(MOST_GRACE)
    }

    async fn under_lock(&mut self, call: Acquire<Name, impl LockMode>) -> Result<u8, Failure> {
        let answer = tokio::select! {
            biased;
            Some(signal) = self.signals.recv() => {
                self.speaker.say(format!("signal {signal} while waiting for the lock"));
                return Ok(status_of_signal(signal));
            }
            answer = call.into_future() => answer,
        };
        let held = match answer {
            Ok(held) => held,
            Err(error) => return self.not_acquired(error),
        };
        let outcome = match Guardian::start(self, &held) {
            Ok(guardian) => Ok(guardian.serve(self, &held).await),
            Err(error) => Err(system(&error)),
        };
        match held.release().await {
            Ok(()) => {}
            Err(LockError::Lost { cause, .. }) => {
                self.speaker.say(format!("the lock was lost: {cause}"));
            }
            Err(error) => self.speaker.say(format!("released later: {}", Failure::from(error))),
        }
        outcome
    }

    /// Prints who holds the lock; returns the exit status.
    fn not_acquired(&self, error: LockError) -> Result<u8, Failure> {
        let (holder, unleased, waited) = match error {
            LockError::Held { holder, unleased, .. } => (holder, unleased, Duration::ZERO),
            LockError::Timeout { holder, unleased, waited, .. } => (holder, unleased, waited),
            LockError::InvalidName { reason, .. } => {
                return Err(Failure::Usage(format!("`{}`: {reason}", self.options.name)));
            }
            error => return Err(error.into()),
        };
        // A key without a lease locks the name forever, so no other process does the work.
        let skipped = self.options.on_held == OnHeld::Skip && unleased.is_none();
        let mut text = if skipped { "skipped: it is held" } else { "it is held" }.to_owned();
        if let Some(holder) = holder {
            text += &format!(" by {holder}");
        }
        if !waited.is_zero() {
            text += &format!("; it was not free within {waited:.1?}");
        }
        if let Some(key) = unleased {
            text += &format!("; the key `{key}` has no lease and never expires: delete it");
        }
        self.speaker.say(text);
        Ok(if skipped { 0 } else { self.options.conflict_exit_code })
    }
}

/// Guardian that runs, as the wrapper sees it.
struct Guardian {
    process: Child,
    /// Children that this process already had, because it replaced a shell.
    others: Vec<Pid>,
    /// Interval at which the guardian gets the lock's current end.
    every: Duration,
    link: UnixStream,
}

impl Guardian {
    fn start(run: &Run<'_>, held: &LockGuard<Name, impl LockMode>) -> io::Result<Self> {
        // If the guardian dies, its children become the wrapper's.
        family::adopt_orphans()?;
        let others = family::children().unwrap_or_default();
        let (link, other) = pair()?;
        let grace = run.grace().as_nanos();
        let mut process = Command::new("/proc/self/exe");
        // The command must not see how to reach etcd, and the password.
        for (variable, _) in std::env::vars_os() {
            let name = variable.as_encoded_bytes();
            if name.starts_with(b"ETCD_LOCKED_") || name.starts_with(b"ETCDCTL_") {
                process.env_remove(&variable);
            }
        }
        let process = process
            .arg0("etcd-locked")
            .args(["guardian", "--grace-ns", &grace.to_string(), "--"])
            .args(&run.options.command)
            .env(NAME, &run.options.name)
            .env(TOKEN, held.token().as_i64().to_string())
            .stdin(Stdio::from(std::os::fd::OwnedFd::from(other)))
            .spawn()?;
        send_file(&link, io::stdin().as_fd())?;
        link.set_nonblocking(true)?;
        let link = UnixStream::from_std(link)?;
        Ok(Self { process, others, every: run.ttl / 20, link })
    }

    /// Serves the guardian until no process of the command is left; returns the exit status.
    async fn serve(mut self, run: &mut Run<'_>, held: &LockGuard<Name, impl LockMode>) -> u8 {
        let (status, why) = self.attend(run, held).await;
        if let Some(why) = why {
            // It has ended, or does not do its work.
            let _ = self.process.kill();
            run.speaker.say(why);
        }
        let voice = run.speaker.texts.clone();
        // The lock is kept while any process of the command lives, whichever signals come.
        let _ = spawn_blocking(move || {
            // After the guardian's end is known, its children are children of this process.
            let _ = self.process.wait();
            family::end(None, &self.others, |left| _ = voice.send(family::immortal(left)));
        })
        .await;
        status
    }

    /// Sends the guardian the lock's current end at intervals, until it reports how the command ended, or fails to.
    /// Returns the exit status; and, if the guardian must be killed, the reason.
    ///
    /// Writes do not block, so a stopped guardian does not hide that the lock is lost. A full link may drop messages: the next renewal
    /// makes up for a dropped one, and after a loss the wrapper kills the command itself.
    async fn attend(
        &self,
        run: &mut Run<'_>,
        held: &LockGuard<Name, impl LockMode>,
    ) -> (u8, Option<&'static str>) {
        let mut tick = interval(self.every);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut lost = std::pin::pin!(held.lost());
        let mut overdue = None;
        let link = &self.link;
        let read = || receive(link);
        // The first message, because the guardian starts the command on it.
        send(link, Message::Until(until(held)));
        loop {
            tokio::select! {
                message = link.async_io(Interest::READABLE, read) => return match message {
                    Ok(Message::Ended(status)) => (status, None),
                    Ok(Message::TooLate) => (run.options.conflict_exit_code, Some(TOO_LATE)),
                    _ => (KILLED, Some("the guardian does not answer any more: the command is killed")),
                },
                Some(signal) = run.signals.recv() => send(link, Message::Signal(signal)),
                cause = &mut lost, if overdue.is_none() => {
                    // A lock that an operator takes away is held until the command has ended, which may use its grace time.
                    let time = match cause {
                        LossCause::Kicked => run.grace(),
                        _ => Duration::ZERO,
                    };
                    overdue = Some(Instant::now() + time + OVERDUE);
                    send(link, Message::Within(nanos(time)));
                }
                () = sleep_until(overdue.unwrap_or_else(Instant::now)), if overdue.is_some() => {
                    return (KILLED, Some("the lock was lost: the command is killed"));
                }
                _ = tick.tick(), if overdue.is_none() => send(link, Message::Until(until(held))),
            }
        }
    }
}

/// Returns until when the lock is held. Reads the clock first: if this process is stopped in between, the result is too early.
fn until(held: &LockGuard<Name, impl LockMode>) -> u64 {
    let now = now();
    now.saturating_add(nanos(held.remaining()))
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn system(error: &io::Error) -> Failure {
    Failure::System(format!("the command cannot be guarded: {error}"))
}
