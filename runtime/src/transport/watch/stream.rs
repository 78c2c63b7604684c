//! Stream of all watches: the task that talks to etcd, over one stream after another (rules P16, P17).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use etcd_client::{WatchRequestSender, WatchResponse, WatchResponseStream};
use etcd_locked_core::{Event, Revision, WatchId};
use futures_util::FutureExt;
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::table::{Command, Table};
use crate::clock::{Clock, Minutely, Moment, about, by, chance, until};
use crate::transport::client::Client;
use crate::transport::convert::{MAX_ANSWER, key_value};
use crate::values::shown;

/// Time limit for opening a stream, including the first watch's confirmation.
const OPEN: Duration = Duration::from_secs(3);

/// Interval of progress requests on an open stream, which show that the stream is alive (rule P17). A response may overtake events, so it
/// says nothing about any watch.
const PERIOD: Duration = Duration::from_secs(5);

/// The first and the longest pause before another stream is opened.
const PAUSE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(5));

/// A stream that lasted this long worked, so the pauses start over.
const SOUND: Duration = Duration::from_secs(5);

/// A refusal within this time after a new token does not come from the token's age.
const RENEWED: Duration = Duration::from_secs(5);

/// Pause after a panic.
const AGAIN: Duration = Duration::from_secs(1);

/// The first and the longest pause before a refused watch is tried again.
const REFUSED: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// Length to which etcd's reason is cut, in characters.
const REASON: usize = 1_000;

/// Callback that reports events to the engine. `None` means that the first revision of the watch is compacted.
pub(crate) type Report = Arc<dyn Fn(WatchId, Option<Event>) + Send + Sync>;

/// The task that talks to etcd.
struct Stream {
    client: Arc<Client>,
    clock: Arc<dyn Clock>,
    commands: UnboundedReceiver<Command>,
    report: Report,
    table: Table,
    /// When it last received a new token.
    renewed: Option<Moment>,
    /// Limits log lines about refused watches: a revoked role concerns all of them.
    warns: Minutely,
}

/// Reason why a stream is no longer used.
enum End {
    /// Nothing is watched.
    Idle,
    /// A watch was refused, perhaps because of its token: all watches start again with a new one.
    Renew,
    /// It broke, was silent, or could not be opened.
    Broken,
    /// The engine is gone.
    Shutdown,
}

/// Starts a task on this runtime that watches as commanded, so nothing here waits for etcd. It ends when the sender is dropped.
pub(crate) fn start(
    client: Arc<Client>,
    clock: Arc<dyn Clock>,
    runtime: &Handle,
    report: Report,
) -> UnboundedSender<Command> {
    let (sender, commands) = unbounded_channel();
    let table = Table::default();
    let (renewed, warns) = (None, Minutely::default());
    runtime.spawn(Stream { client, clock, commands, report, table, renewed, warns }.run());
    sender
}

impl Stream {
    /// Runs until the engine is gone. After a panic, it continues with the same watches, because calls need them to get their locks.
    async fn run(mut self) {
        while AssertUnwindSafe(self.work()).catch_unwind().await.is_err() {
            // The panic may come from a subscriber, which this line calls again.
            let line = || tracing::error!(parent: None, code = "engine.watches_restarted", "the task that watches etcd has panicked and is restarted: report this bug with the lines before it");
            let _ = catch_unwind(AssertUnwindSafe(line));
            self.clock.sleep_until(self.clock.now() + AGAIN).await;
        }
    }

    async fn work(&mut self) {
        let mut failures = 0;
        loop {
            let opened = self.clock.now();
            match self.session().await {
                End::Shutdown => return,
                End::Renew => failures = 0,
                End::Idle => {
                    failures = 0;
                    tokio::select! {
                        command = self.commands.recv() => match command {
                            Some(command) => self.table.apply(command),
                            None => return,
                        },
                        () = until(&*self.clock, self.table.wake()) => {}
                    }
                }
                End::Broken => {
                    if self.clock.now() - opened >= SOUND {
                        failures = 0;
                    }
                    let pause = pause(PAUSE, failures, &*self.clock);
                    failures += 1;
                    self.clock.sleep_until(self.clock.now() + pause).await;
                }
            }
        }
    }

    /// Runs one etcd watch stream, with all watches that are due.
    async fn session(&mut self) -> End {
        while let Ok(command) = self.commands.try_recv() {
            self.table.apply(command);
        }
        let begun = self.table.begin(self.clock.now());
        let Some((key, options)) = begun else { return End::Idle };
        let connection = match self.client.connect().await {
            Ok(connection) => connection,
            Err(failure) => {
                tracing::debug!(?failure, "no watch stream");
                return End::Broken;
            }
        };
        // A stream begins with its first watch.
        let mut client = connection.client.watch_client().max_decoding_message_size(MAX_ANSWER);
        let opening = client.watch(key, Some(options));
        let limit = self.clock.now() + OPEN;
        let end = match by(&*self.clock, limit, pin!(opening)).await {
            Some(Ok(stream)) => {
                self.table.sent();
                let (sender, answers) = stream.split();
                let lost = connection.lost();
                self.relay(sender, answers, pin!(lost)).await
            }
            Some(Err(error)) => {
                tracing::debug!(?error, "watch stream not opened");
                End::Broken
            }
            None => End::Broken,
        };
        match end {
            End::Broken => {
                connection.lose();
                self.client.move_on(&connection.endpoint);
            }
            End::Renew => connection.lose(),
            End::Idle | End::Shutdown => {}
        }
        end
    }

    /// Sends requests and reports responses until the stream ends. Without watches it stays open, because names come and go.
    async fn relay(
        &mut self,
        mut sender: WatchRequestSender,
        mut answers: WatchResponseStream,
        mut lost: Pin<&mut impl Future<Output = ()>>,
    ) -> End {
        let mut period_over =
            self.clock.sleep_until(self.clock.now() + about(PERIOD, &*self.clock));
        loop {
            let next = self.table.next();
            tokio::select! {
                command = self.commands.recv() => match command {
                    Some(command) => self.table.apply(command),
                    None => return End::Shutdown,
                },
                // Concurrently with the responses, not before them: etcd may stop reading until its responses are read.
                sent = self.table.send(next, &mut sender), if next.is_some() => match sent {
                    Ok(()) => self.table.sent(),
                    Err(_) => return End::Broken,
                },
                answer = answers.message() => match answer {
                    Ok(Some(answer)) => {
                        self.table.silent = 0;
                        if let Some(end) = self.take(&answer) {
                            return end;
                        }
                    }
                    Ok(None) => return End::Broken,
                    Err(error) => {
                        tracing::debug!(?error, "watch stream broke");
                        return End::Broken;
                    }
                },
                // Pings end a connection to a frozen endpoint. Progress requests end a stream that is dead on a live connection. An
                // exchange may notice earlier than both.
                () = period_over.as_mut() => {
                    if !self.table.period() {
                        tracing::debug!("watch stream is silent");
                        return End::Broken;
                    }
                    period_over = self.clock.sleep_until(self.clock.now() + about(PERIOD, &*self.clock));
                }
                () = lost.as_mut() => return End::Broken,
                () = until(&*self.clock, self.table.wake()) => self.table.resume(self.clock.now()),
            }
        }
    }

    /// Reports the response; returns an end if the response ends the stream.
    fn take(&mut self, answer: &WatchResponse) -> Option<End> {
        let (given, refused) = (answer.watch_id(), answer.canceled());
        // None for a watch that this side cancelled, and for progress, which has the id -1.
        let id = match answer.created() {
            true => self.table.confirm(given, refused)?,
            false => *self.table.wired.get(&given)?,
        };
        let watch = self.table.watches.get_mut(&id)?;
        if answer.canceled() && answer.compact_revision() > 0 {
            (self.report)(id, None);
            self.table.remove(id);
        } else if answer.canceled() {
            // Without the key, whose values may be personal data.
            let reason = shown(answer.cancel_reason(), REASON);
            let refusals = watch.refusals;
            watch.refusals += 1;
            tracing::debug!(%reason, refusals, "etcd refuses a watch");
            let now = self.clock.now();
            // A stream keeps the token with which it was opened, so a first refusal may only mean that the token has expired.
            let source = &self.client.means.terms.keyring.source;
            let is_new = self.renewed.is_some_and(|at| now - at < RENEWED);
            if refusals == 0 && source.authenticates() && !is_new {
                self.renewed = Some(now);
                return Some(End::Renew);
            }
            if self.warns.is_due(now) {
                tracing::warn!(
                    code = "etcd.watches_denied",
                    %reason,
                    "etcd refuses watches, so locks are handed over late: give the user read permission"
                );
            }
            let pause = pause(REFUSED, refusals, &*self.clock);
            self.table.pause(id, now + pause);
        } else {
            watch.refusals = 0;
            let revision = answer.header().and_then(|it| Revision::new(it.revision()));
            watch.from = watch.from.or(revision); // confirmed, so it misses nothing after this revision
            for (revision, event) in answer.events().iter().filter_map(event) {
                watch.from = watch.from.max(Some(revision));
                (self.report)(id, Some(event));
            }
        }
        None
    }
}

/// Returns an event with its revision. etcd-client panics on unknown event types. So a deletion is recognised not by its type, but by the
/// lack of a create revision.
fn event(event: &etcd_client::Event) -> Option<(Revision, Event)> {
    let kv = event.kv()?;
    let revision = Revision::new(kv.mod_revision())?;
    let event = match kv.create_revision() {
        0 => Event::Delete { key: kv.key().to_vec(), revision },
        _ => Event::Put(key_value(kv.clone())?),
    };
    Some((revision, event))
}

/// Returns the pause after this number of failures: doubled each time, and half of it random, so that a fleet does not return in step.
fn pause((first, longest): (Duration, Duration), failures: u32, clock: &dyn Clock) -> Duration {
    let whole = first.saturating_mul(1 << failures.min(16)).min(longest);
    whole / 2 + whole * chance(clock) / 2000
}
