//! The thread that runs the core: the only code that awaits etcd.
//!
//! It has a current-thread tokio runtime of its own, so that a handler that blocks its executor cannot starve the renewal
//! of leases, and user futures, which only wait on channels, run on any executor.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use tokio::runtime::{Handle, Runtime};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::clock::{Alarm, Clock, Moment};
use crate::config::Config;
use crate::core::request::{Cause, Failure, Key, Request, Response};
use crate::core::{
    Acquire, Blocker, CallId, Core, Grant, Input, NAMES, Output, Refused, Release, RequestId,
    Settings,
};
use crate::cycle::Cycle;
use crate::error::LockError;
use crate::held::Held;
use crate::holder::{Author, Holder};
use crate::name::Name;
use crate::site::Wait;
use crate::tenure::{OwnedLock, Tenure};
use crate::token::Token;

mod convert;
mod endpoint;
mod errors;
mod gather;
#[cfg(feature = "testing")]
mod probe;
mod renewals;
mod target;
mod watch;
mod wire;

#[cfg(feature = "testing")]
pub(crate) use probe::{Names, WeakEngine};
use watch::Watches;
use wire::Wire;

/// How many locks one lease may take with it when it is lost, if others are to be had (rule P27).
const BODIES_PER_LEASE: usize = 1_024;

/// A handle on an engine. Clones share it; when the last is gone the engine ends.
#[derive(Debug, Clone)]
pub(crate) struct Engine(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    commands: mpsc::UnboundedSender<Command>,
    clock: Arc<dyn Clock>,
    config: Config,
    author: Author,
    last_call: AtomicU64,
    /// Its thread's, for timers of callers that have none.
    runtime: OnceLock<Handle>,
}

/// What handles tell the engine.
#[derive(Debug)]
enum Command {
    Acquire {
        acquire: Acquire,
        names: Vec<Name>,
        reply: oneshot::Sender<Result<Held, LockError>>,
    },
    Cancel {
        call: CallId,
    },
    Release {
        call: CallId,
        how: Release,
        fenced: bool,
        reply: Option<oneshot::Sender<Result<(), LockError>>>,
    },
    Warm {
        call: CallId,
        ttl_secs: i64,
        reply: oneshot::Sender<Result<(), LockError>>,
    },
    Shutdown {
        grace: Duration,
        reply: oneshot::Sender<()>,
    },
    #[cfg(feature = "testing")]
    Probe(probe::Probe),
}

/// What an engine's thread runs on: a current-thread runtime, so that nothing there is ever behind a handler.
pub(crate) fn runtime() -> io::Result<Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
}

impl Engine {
    /// Starts an engine that lives by this clock, on a thread that runs on what `runtime` makes there; it connects when
    /// first used.
    pub(crate) fn start(
        config: Config,
        clock: Arc<dyn Clock>,
        runtime: impl FnOnce() -> io::Result<Runtime> + Send + 'static,
    ) -> Result<Self, LockError> {
        let broken = |message: String| LockError::Config { message };
        config.check().map_err(broken)?;
        let (commands, inbox) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared {
            commands,
            clock: clock.clone(),
            config: config.clone(),
            author: Author::here(
                &rustix::system::uname().nodename().to_string_lossy(),
                &config.service,
            ),
            last_call: AtomicU64::new(0),
            runtime: OnceLock::new(),
        });
        let weak = Arc::downgrade(&shared);
        // The runtime is made where it will be dropped: on a caller's thread, which may be inside another, that would panic.
        let (started, start) = std::sync::mpsc::sync_channel(1);
        thread::Builder::new()
            .name("etcd-locked".into())
            .spawn(move || {
                let parts = Wire::new(&config, clock.clone()).and_then(|wire| {
                    let runtime = runtime().map_err(|e| format!("its runtime: {e}"))?;
                    Ok((wire, runtime))
                });
                match parts {
                    Ok((wire, runtime)) => {
                        let _ = started.send(Ok(runtime.handle().clone())); // the caller waits for it
                        let turn = Loop::new(&config, clock, wire, weak).run(inbox);
                        runtime.block_on(turn);
                    }
                    Err(message) => {
                        let _ = started.send(Err(message));
                    }
                }
            })
            .map_err(|e| broken(format!("the engine's thread does not start: {e}")))?;
        let runtime = start
            .recv()
            .unwrap_or_else(|_| Err("its thread ended".into()))
            .map_err(|message| broken(format!("the engine does not start: {message}")))?;
        let _ = shared.runtime.set(runtime); // the first
        Ok(Self(shared))
    }

    pub(crate) fn config(&self) -> &Config {
        &self.0.config
    }

    pub(crate) fn author(&self) -> &Author {
        &self.0.author
    }

    /// Whether both handles are of one engine.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(crate) fn now(&self) -> Moment {
        self.0.clock.now()
    }

    /// A timer on the engine's thread, which rings at or after `when`, to be awaited anywhere; an error, if the engine has
    /// ended. It runs until it is aborted.
    pub(crate) fn alarm(&self, when: Moment) -> Option<JoinHandle<()>> {
        let clock = self.0.clock.clone();
        let rings = async move {
            while clock.now() < when {
                clock.sleep_until(when).await;
            }
        };
        self.0.runtime.get().map(|on| on.spawn(rings))
    }

    /// Opens the default lease.
    pub(crate) async fn warm(&self) -> Result<(), LockError> {
        let (reply, answer) = oneshot::channel();
        self.send(Command::Warm {
            call: self.new_call(),
            ttl_secs: whole_secs(self.0.config.ttl),
            reply,
        })?;
        answer.await.unwrap_or(Err(LockError::ShuttingDown))
    }

    /// Queues a call for these locks, as one group (rule P13): each name once, at least one, at most [`NAMES`]. `holds`: the
    /// calls whose locks the calling task holds.
    pub(crate) fn acquire(
        &self,
        names: Vec<(Name, Key)>,
        ttl: Duration,
        wait: Wait,
        record: Arc<[u8]>,
        holds: Vec<CallId>,
    ) -> Result<(CallId, oneshot::Receiver<Result<Held, LockError>>), LockError> {
        if names.len() > NAMES {
            let message = format!(
                "{} names in one call: {NAMES} at most, because they are taken in one transaction",
                names.len()
            );
            return Err(LockError::Config { message });
        }
        let call = self.new_call();
        // Exactly as long as they are: a hundred thousand calls may wait.
        let keys = names.iter().map(|(_, key)| key.clone()).collect();
        let names = names.into_iter().map(|(name, _)| name).collect();
        let acquire = Acquire {
            call,
            names: keys,
            ttl_secs: whole_secs(ttl),
            wait,
            record,
            holds,
        };
        let (reply, answer) = oneshot::channel();
        self.send(Command::Acquire {
            acquire,
            names,
            reply,
        })?;
        Ok((call, answer))
    }

    /// The call has gone away.
    pub(crate) fn cancel(&self, call: CallId) {
        let _ = self.send(Command::Cancel { call }); // an engine that has ended has nothing to cancel
    }

    /// The body of the call has been dropped; `fenced`: what its keys say may be relied on elsewhere (rule P22).
    pub(crate) fn release(
        &self,
        call: CallId,
        how: Release,
        fenced: bool,
    ) -> Option<oneshot::Receiver<Result<(), LockError>>> {
        let confirm = how == Release::Confirmed;
        let (reply, answer) = confirm.then(oneshot::channel).unzip();
        self.send(Command::Release {
            call,
            how,
            fenced,
            reply,
        })
        .ok()?;
        answer
    }

    pub(crate) async fn shutdown(&self, grace: Duration) {
        let (reply, answer) = oneshot::channel();
        if self.send(Command::Shutdown { grace, reply }).is_ok() {
            let _ = answer.await; // or the engine has ended, which is what was wanted
        }
    }

    /// A client on connections of its own, carried by the caller's runtime.
    pub(crate) async fn client(&self) -> Result<etcd_client::Client, LockError> {
        let wire = Wire::new(&self.0.config, self.0.clock.clone())
            .map_err(|message| LockError::Config { message })?;
        wire.client().await.map_err(|failure| LockError::Backend {
            source: cause(failure),
        })
    }

    fn new_call(&self) -> CallId {
        self.0.last_call.fetch_add(1, Ordering::Relaxed)
    }

    fn send(&self, command: Command) -> Result<(), LockError> {
        self.0
            .commands
            .send(command)
            .map_err(|_| LockError::ShuttingDown)
    }
}

/// etcd counts TTLs in seconds; a part of one is rounded up.
fn whole_secs(ttl: Duration) -> i64 {
    i64::try_from(ttl.as_millis().div_ceil(1000)).unwrap_or(i64::MAX)
}

/// An exchange that may panic, in a client's code: then its outcome is unknown. Boxed, because it may move to a task after it
/// was polled, and an `async fn` around it would hold it twice.
struct Caught<F>(Pin<Box<F>>);

impl<F: Future<Output = Result<Response, Failure>>> Future for Caught<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        catch_unwind(AssertUnwindSafe(|| self.0.as_mut().poll(cx))).unwrap_or_else(|_| {
            let cause = "the exchange with etcd panicked";
            Poll::Ready(Err(Failure::Unknown(Arc::from(Box::from(cause)))))
        })
    }
}

fn cause(failure: Failure) -> Cause {
    match failure {
        Failure::Unavailable(cause) | Failure::Refused { cause, .. } | Failure::Unknown(cause) => {
            cause
        }
    }
}

/// Whoever waits for a lock.
type Taker = oneshot::Sender<Result<Held, LockError>>;

/// The engine's side of things.
struct Loop {
    core: Core,
    clock: Arc<dyn Clock>,
    alarm: Alarm,
    wire: Wire,
    watches: Watches,
    handle: Weak<Shared>,
    answers: mpsc::UnboundedSender<(RequestId, Result<Response, Failure>)>,
    answered: mpsc::UnboundedReceiver<(RequestId, Result<Response, Failure>)>,
    /// Answers that needed no waiting, and no task.
    at_once: VecDeque<(RequestId, Result<Response, Failure>)>,
    waiting: BTreeMap<CallId, (Vec<Name>, Taker)>,
    held: BTreeMap<CallId, Arc<Tenure>>,
    releasing: BTreeMap<CallId, (Name, oneshot::Sender<Result<(), LockError>>)>,
    warming: BTreeMap<CallId, oneshot::Sender<Result<(), LockError>>>,
    stopping: Vec<oneshot::Sender<()>>,
    finished: bool,
}

impl Loop {
    fn new(config: &Config, clock: Arc<dyn Clock>, wire: Wire, handle: Weak<Shared>) -> Self {
        let settings = Settings {
            prefix: config.prefix.as_str().into(),
            connect_timeout: config.connect_timeout,
            bodies_per_lease: BODIES_PER_LEASE,
            seed: RandomState::new().hash_one(std::process::id()),
        };
        let (answers, answered) = mpsc::unbounded_channel();
        Self {
            core: Core::new(settings),
            watches: Watches::new(wire.clone(), clock.clone()),
            alarm: Alarm::new(clock.clone()),
            clock,
            wire,
            handle,
            answers,
            answered,
            at_once: VecDeque::new(),
            waiting: BTreeMap::new(),
            held: BTreeMap::new(),
            releasing: BTreeMap::new(),
            warming: BTreeMap::new(),
            stopping: Vec::new(),
            finished: false,
        }
    }

    async fn run(mut self, mut inbox: mpsc::UnboundedReceiver<Command>) {
        let mut orphaned = false;
        while !self.finished {
            let next = self.core.next_timeout();
            tokio::select! {
                command = inbox.recv(), if !orphaned => match command {
                    Some(command) => self.obey(command),
                    None => {
                        // Nobody is left to hold or want anything.
                        orphaned = true;
                        self.tell(Input::Shutdown { until: self.clock.now() });
                    }
                },
                Some((request, result)) = self.answered.recv() => self.tell(Input::Answer { request, result }),
                (watch, news) = self.watches.next() => self.tell(Input::Watch { watch, news }),
                () = self.alarm.at(next) => self.tell(Input::Tick),
            }
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Acquire {
                acquire,
                names,
                reply,
            } => {
                self.waiting.insert(acquire.call, (names, reply));
                self.tell(Input::Acquire(acquire));
            }
            Command::Cancel { call } => {
                self.waiting.remove(&call);
                self.tell(Input::Cancel { call });
            }
            Command::Release {
                call,
                how,
                fenced,
                reply,
            } => {
                let tenure = self.held.remove(&call);
                if let (Some(reply), Some(tenure)) = (reply, tenure) {
                    let name = tenure.first.name.clone();
                    self.releasing.insert(call, (name, reply));
                }
                self.tell(Input::Release { call, how, fenced });
            }
            Command::Warm {
                call,
                ttl_secs,
                reply,
            } => {
                self.warming.insert(call, reply);
                self.tell(Input::Warm { call, ttl_secs });
            }
            Command::Shutdown { grace, reply } => {
                self.stopping.push(reply);
                self.tell(Input::Shutdown {
                    until: self.clock.now() + grace,
                });
            }
            #[cfg(feature = "testing")]
            Command::Probe(probe) => probe.carry_out(self),
        }
    }

    /// One turn of the core's contract: one input, then all its outputs.
    fn tell(&mut self, input: Input) {
        self.core.handle(self.clock.now(), input);
        loop {
            while let Some(output) = self.core.poll() {
                self.perform(output);
            }
            // An etcd in the process has answered already.
            let Some((request, result)) = self.at_once.pop_front() else {
                return;
            };
            self.core
                .handle(self.clock.now(), Input::Answer { request, result });
        }
    }

    fn perform(&mut self, output: Output) {
        match output {
            Output::Send { id, request } => self.exchange(id, request),
            Output::Watch {
                id,
                prefix,
                from,
                puts,
            } => self.watches.add(id, prefix, from, puts),
            Output::Unwatch { id } => self.watches.remove(id),
            Output::Granted(grant) => self.hand_over(grant),
            Output::Refused { call, why } => {
                if let Some((names, reply)) = self.waiting.remove(&call) {
                    let name = names.into_iter().nth(why.name()); // the one it is about, or the first
                    let _ = reply.send(Err(refusal(why, name)));
                } else if let Some(reply) = self.warming.remove(&call) {
                    let _ = reply.send(Err(refusal(why, None)));
                }
            }
            Output::Lost { call, cause } => {
                if let Some(tenure) = self.held.get(&call) {
                    tracing::warn!(lock = %tenure.first.name, %cause, "a lock was lost: its body is dropped");
                    tenure.lose(cause);
                }
            }
            Output::Released { call, result } => {
                if let Some((name, reply)) = self.releasing.remove(&call) {
                    let _ = reply.send(result.map_err(|why| refusal(why, Some(name))));
                }
            }
            Output::Ready { call } => {
                if let Some(reply) = self.warming.remove(&call) {
                    let _ = reply.send(Ok(()));
                }
            }
            Output::Finished => {
                self.finished = true;
                for reply in self.stopping.drain(..) {
                    let _ = reply.send(());
                }
            }
        }
    }

    fn exchange(&mut self, id: RequestId, request: Request) {
        let wire = self.wire.clone();
        // Should it panic, the core must still get its answer, or it waits for ever.
        let mut exchange = Caught(Box::pin(async move { wire.exchange(request).await }));
        if self.wire.answers_at_once() {
            let mut nobody = Context::from_waker(Waker::noop()); // whose task, if it needs one, polls it anew
            if let Poll::Ready(result) = Pin::new(&mut exchange).poll(&mut nobody) {
                self.at_once.push_back((id, result));
                return;
            }
        }
        let answers = self.answers.clone();
        tokio::spawn(async move {
            let _ = answers.send((id, exchange.await)); // the engine may have ended
        });
    }

    /// The `Held` travels through the reply: if nobody takes it, its drop releases the lock (rule P26).
    fn hand_over(&mut self, grant: Grant) {
        let Grant {
            call,
            owned,
            deadline,
        } = grant;
        let waiting = self.waiting.remove(&call);
        let (Some((names, reply)), Some(shared)) = (waiting, self.handle.upgrade()) else {
            return self.tell_later(call);
        };
        let mut locks = names.into_iter().zip(owned).map(|(name, owned)| OwnedLock {
            name,
            key: owned.key,
            created: owned.created,
            token: Token::new(owned.revision, owned.handover),
        });
        let Some(first) = locks.next() else {
            return self.tell_later(call); // a call has a name
        };
        let others = locks.collect();
        let tenure = Arc::new(Tenure::new(first, others, deadline, self.clock.clone()));
        self.held.insert(call, tenure.clone());
        let _ = reply.send(Ok(Held::new(tenure, Engine(shared), call)));
    }

    /// Nobody is there to take the lock: gives it back.
    fn tell_later(&mut self, call: CallId) {
        self.core.handle(
            self.clock.now(),
            Input::Release {
                call,
                how: Release::Unheard,
                fenced: false,
            },
        );
    }
}

fn refusal(why: Refused, name: Option<Name>) -> LockError {
    let record = |holder: Option<Arc<[u8]>>| holder.and_then(|json| Holder::from_json(&json));
    match (why, name) {
        (Refused::Held { holder, .. }, Some(name)) => LockError::Held {
            name,
            holder: record(holder),
        },
        (Refused::Timeout { holder, waited, .. }, Some(name)) => LockError::Timeout {
            name,
            holder: record(holder),
            waited,
        },
        (Refused::Deadlock { cycle, .. }, Some(name)) => LockError::Deadlock {
            name,
            cycle: Cycle::of(cycle.iter().map(|blocker| {
                let Blocker { key, record } = blocker;
                (key.clone(), Holder::from_json(record))
            })),
        },
        (Refused::Lost { cause }, Some(name)) => LockError::Lost { name, cause },
        (Refused::PermissionDenied(source), name) => LockError::PermissionDenied { name, source },
        (Refused::SessionDenied(source), _) => LockError::PermissionDenied { name: None, source },
        (Refused::Backend(source), _) => LockError::Backend { source },
        // Only named calls are refused for the other reasons.
        (
            Refused::ShuttingDown
            | Refused::Held { .. }
            | Refused::Timeout { .. }
            | Refused::Deadlock { .. }
            | Refused::Lost { .. },
            _,
        ) => LockError::ShuttingDown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_in_an_exchange_is_an_answer() {
        let panics = async { panic!("in the client's code") };
        match Caught(Box::pin(panics)).await {
            Err(Failure::Unknown(cause)) => assert!(cause.to_string().contains("panicked")),
            other => panic!("{other:?}"),
        }
        let revoked = Caught(Box::pin(async { Ok(Response::Revoked) })).await;
        assert!(matches!(revoked, Ok(Response::Revoked)), "{revoked:?}");
    }
}
