//! Wrapper: holds the lock, renews the guardian's deadline, and passes signals on.

use std::future::IntoFuture;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use etcd_locked::{Acquire, LockError, LockGuard, LockMode, Locks, Name};
use rustix::process::Pid;
use tokio::io::Interest;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until, timeout};

use super::link::{Message, now, receive, send, send_file};
use super::options::{Exec, OnHeld, Wait};
use super::{KILLED, family, signals_for_all, status_of_signal};
use crate::connection::Connection;
use crate::failure::Failure;
use crate::options::Etcd;
use crate::say;

/// TTL where neither option nor environment has one, as in the library.
const TTL: Duration = Duration::from_secs(15);

/// The longest time that a command has between SIGTERM and SIGKILL.
const MOST_GRACE: Duration = Duration::from_secs(10);

/// How long the guardian may take to kill a command whose lock is lost. After that the wrapper does it.
const OVERDUE: Duration = Duration::from_millis(100);

const TOO_LATE: &str =
    "the lock was lost, or about to be, before the command was started: it has not run";

/// How long the end of the engine may take.
const GOODBYE: Duration = Duration::from_secs(2);

/// Runs a command under a lock; returns the exit status.
pub(crate) async fn exec(etcd: &Etcd, options: &Exec) -> Result<u8, Failure> {
    let mut signals = signals().map_err(|error| system(&error))?;
    let program = options.command.first().map(Path::new);
    let service = program.and_then(Path::file_name).unwrap_or_default();
    let service = service.to_string_lossy();
    let connection = Connection::new(etcd, &service, false)?;
    // The library has checked the variable.
    let variable = std::env::var("ETCD_LOCKED_TTL").ok();
    let configured = variable.and_then(|text| humantime::parse_duration(&text).ok());
    let ttl = options.ttl.or(configured).unwrap_or(TTL);
    let call = call(&connection.locks, options, ttl);
    let status = match options.permits {
        Some(permits) => under_lock(call.permits(permits), options, ttl, &mut signals).await,
        None if options.shared => under_lock(call.shared(), options, ttl, &mut signals).await,
        None => under_lock(call, options, ttl, &mut signals).await,
    };
    // Revokes the lease, so that no other process waits for its end.
    let _ = timeout(GOODBYE, connection.locks.shutdown(Duration::ZERO)).await;
    status
}

async fn under_lock(
    call: Acquire<Name, impl LockMode>,
    options: &Exec,
    ttl: Duration,
    signals: &mut mpsc::Receiver<i32>,
) -> Result<u8, Failure> {
    let name = &options.name;
    let answer = tokio::select! {
        biased;
        Some(signal) = signals.recv() => {
            say(format_args!("etcd-locked: `{name}`: signal {signal} while waiting for the lock"));
            return Ok(status_of_signal(signal));
        }
        answer = call.into_future() => answer,
    };
    let held = match answer {
        Ok(held) => held,
        Err(error) => return not_acquired(options, error),
    };
    let outcome = match Guardian::start(options, &held, ttl) {
        Ok(guardian) => guardian.serve(options, &held, signals).await,
        Err(error) => Err(system(&error)),
    };
    match held.release().await {
        Ok(()) => {}
        Err(LockError::Lost { cause, .. }) => {
            say(format_args!("etcd-locked: `{name}`: the lock was lost: {cause}"));
        }
        Err(error) => {
            say(format_args!("etcd-locked: `{name}`: the lock is released later: {error}"));
        }
    }
    outcome
}

fn call(locks: &Locks, options: &Exec, ttl: Duration) -> Acquire {
    let mut call = locks.lock(&options.name).ttl(ttl);
    call = match options.wait {
        _ if options.no_wait => call.try_once(),
        None => call,
        Some(Wait::Once) => call.try_once(),
        Some(Wait::Forever) => call.wait_forever(),
        Some(Wait::For(wait)) => call.wait(wait),
    };
    match options.at_least {
        Some(at_least) => call.at_least(at_least),
        None => call,
    }
}

/// Says who holds the lock; returns the exit status.
fn not_acquired(options: &Exec, error: LockError) -> Result<u8, Failure> {
    let (holder, unleased, waited) = match error {
        LockError::Held { holder, unleased, .. } => (holder, unleased, Duration::ZERO),
        LockError::Timeout { holder, unleased, waited, .. } => (holder, unleased, waited),
        LockError::InvalidName { reason, .. } => {
            return Err(Failure::Usage(format!("`{}`: {reason}", options.name)));
        }
        error => return Err(error.into()),
    };
    let mut text = match holder {
        Some(holder) => format!("is held by {holder}"),
        None => "is held".to_owned(),
    };
    if !waited.is_zero() {
        text += &format!("; it was not free within {waited:.1?}");
    }
    let for_ever = unleased.is_some();
    if let Some(key) = unleased {
        text += &format!("; the key `{key}` has no lease and never expires: delete it");
    }
    let (skipped, status) = match options.on_held {
        // A key without a lease closes the name for ever, so no other process does the work.
        OnHeld::Skip if !for_ever => (" skipped:", 0),
        OnHeld::Skip | OnHeld::Fail => ("", crate::NOTHING),
    };
    say(format_args!("etcd-locked:{skipped} `{}` {text}", options.name));
    Ok(status)
}

/// A guardian that runs, as the wrapper sees it.
struct Guardian {
    process: Child,
    /// Children that this process had before, because it replaced a shell.
    others: Vec<Pid>,
    /// How often the guardian learns until when the lock is held.
    every: Duration,
    /// Tells when there is a message.
    readable: tokio::net::UnixStream,
    link: UnixStream,
}

impl Guardian {
    fn start(
        options: &Exec,
        held: &LockGuard<Name, impl LockMode>,
        ttl: Duration,
    ) -> io::Result<Self> {
        // For the case that the guardian dies: its children are the wrapper's then.
        family::adopt_orphans()?;
        let others = family::children().unwrap_or_default();
        let (link, other) = UnixStream::pair()?;
        let grace = (ttl / 6).min(MOST_GRACE).as_nanos();
        let process = Command::new("/proc/self/exe")
            .arg0("etcd-locked")
            .args(["guardian", "--grace-ns", &grace.to_string(), "--"])
            .args(&options.command)
            .env("ETCD_LOCKED_NAME", &options.name)
            .env("ETCD_LOCKED_TOKEN", held.token().as_i64().to_string())
            .stdin(Stdio::from(std::os::fd::OwnedFd::from(other)))
            .spawn()?;
        send_file(&link, io::stdin().as_fd())?;
        link.set_nonblocking(true)?;
        let readable = tokio::net::UnixStream::from_std(link.try_clone()?)?;
        Ok(Self { process, others, every: ttl / 20, readable, link })
    }

    /// Serves the guardian until nothing of the command is left; returns the exit status.
    async fn serve(
        mut self,
        options: &Exec,
        held: &LockGuard<Name, impl LockMode>,
        signals: &mut mpsc::Receiver<i32>,
    ) -> Result<u8, Failure> {
        let name = &options.name;
        let (status, why) = self.attend(held, signals).await;
        if let Some(why) = why {
            // It has ended, or does not do what it is for.
            let _ = self.process.kill();
            say(format_args!("etcd-locked: `{name}`: {why}"));
        }
        let text = format!("etcd-locked: `{name}`");
        let (ends, ended) = oneshot::channel();
        // Not the runtime's, whose end would wait for it.
        thread::spawn(move || {
            // What the guardian leaves is a child of this process once its end is known.
            let _ = self.process.wait();
            let tell = |left: &[Pid]| say(format_args!("{text}: {}", family::immortal(left)));
            family::end(None, &self.others, tell);
            let _ = ends.send(());
        });
        let given_up = async {
            sleep(family::SLOW).await;
            signals.recv().await
        };
        tokio::select! {
            biased;
            _ = ended => Ok(status),
            Some(signal) = given_up => {
                say(format_args!("etcd-locked: `{name}`: signal {signal}: what was killed is waited for no longer"));
                Ok(status_of_signal(signal))
            }
        }
    }

    /// Tells the guardian until when the lock is held, until it says how the command ended, or nothing more is to be expected.
    /// Returns the exit status, and why the guardian is not to end by itself.
    ///
    /// No write waits for the guardian, so one that is stopped does not hide that the lock is lost. What a full link drops is of no
    /// use: the next renewal makes up for the last, and after a loss the wrapper kills the command itself.
    async fn attend(
        &self,
        held: &LockGuard<Name, impl LockMode>,
        signals: &mut mpsc::Receiver<i32>,
    ) -> (u8, Option<&'static str>) {
        let mut tick = interval(self.every);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut lost = std::pin::pin!(held.lost());
        let mut overdue = None;
        let link = &self.link;
        let read = || receive(link);
        // First of all: the guardian starts the command by it.
        send(link, Message::Until(until(held)));
        loop {
            tokio::select! {
                message = self.readable.async_io(Interest::READABLE, read) => return match message {
                    Ok(Message::Ended(status)) => (u8::try_from(status).unwrap_or(u8::MAX), None),
                    Ok(Message::TooLate) => (crate::NOTHING, Some(TOO_LATE)),
                    _ => (KILLED, Some("the guardian does not answer any more: the command is killed")),
                },
                Some(signal) = signals.recv() => {
                    send(link, Message::Signal(signal.unsigned_abs().into()));
                }
                _ = &mut lost, if overdue.is_none() => {
                    overdue = Some(Instant::now() + OVERDUE);
                    send(link, Message::Lost);
                }
                () = sleep_until(overdue.unwrap_or_else(Instant::now)), if overdue.is_some() => {
                    return (KILLED, Some("the lock was lost: the command is killed"));
                }
                _ = tick.tick(), if overdue.is_none() => {
                    send(link, Message::Until(until(held)));
                }
            }
        }
    }
}

/// Until when the lock is held. The clock is read before: if this process is stopped in between, the answer is too early.
fn until(held: &LockGuard<Name, impl LockMode>) -> u64 {
    let now = now();
    now.saturating_add(u64::try_from(held.remaining().as_nanos()).unwrap_or(u64::MAX))
}

fn signals() -> io::Result<mpsc::Receiver<i32>> {
    let (all, signals) = mpsc::channel(16);
    for raw in signals_for_all() {
        let (mut each, all) = (signal(SignalKind::from_raw(raw))?, all.clone());
        tokio::spawn(
            async move { while each.recv().await.is_some() && all.send(raw).await.is_ok() {} },
        );
    }
    Ok(signals)
}

fn system(error: &io::Error) -> Failure {
    Failure::System(format!("the command cannot be guarded: {error}"))
}
