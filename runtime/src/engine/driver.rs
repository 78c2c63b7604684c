//! Driver: turns commands and events into inputs of the core, and the core's outputs into exchanges, watches and answers.

use std::collections::{BTreeMap, VecDeque};
#[cfg(feature = "testing")]
use std::fmt;
use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use etcd_locked_core::{
    Acquire, Blocker, CallId, Core, Failure, Grant, Input, Mode, Output, Refused, Release, Request,
    RequestId, Response, Settings,
};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::unconstrained;

use super::combiner::{Combiner, Machine};
use super::ownership::{OwnedLock, OwnedLocks, Ownership, Releaser, Reply};
use crate::clock::{Alarm, Clock, Moment};
use crate::metrics;
use crate::transport::client::Client;
use crate::transport::watch::{StreamEvent, Submit, Watches};
use crate::values::config::Config;
use crate::values::cycle::Cycle;
use crate::values::error::{LockError, LossCause};
use crate::values::holder::Holder;
use crate::values::name::Name;
use crate::values::token::Token;

/// How many locks one session may take with it when it is lost, if others are to be had (rule P27).
const BODIES_PER_SESSION: usize = 1_024;
/// How many predecessors are watched, before it is the last of them alone: of 16 processes that served 6 to 8 % fewer a second.
const NEAR: usize = 16;

/// How much longer than an exchange a call waits for etcd: so the exchange fails first, and says which endpoint it was, and why.
const GRACE: Duration = Duration::from_millis(250);

/// What enters the engine.
#[derive(Debug)]
pub(super) enum Message {
    Command(Command),
    Event(Event),
}

/// What a handle on the engine submits.
#[derive(Debug)]
pub(super) enum Command {
    Acquire {
        acquire: Acquire,
        names: Vec<Name>,
        reply: Taker,
    },
    Cancel {
        call: CallId,
    },
    Release {
        call: CallId,
        how: Release,
        fenced: bool,
        reply: Option<Reply>,
    },
    Keep {
        call: CallId,
        until: Moment,
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
    /// The last handle has gone, so no call holds or wants a lock any more.
    Orphaned,
    #[cfg(feature = "testing")]
    Inspect(Inspection),
}

/// What etcd or the clock submits, by way of the engine's tasks.
#[derive(Debug)]
pub(super) enum Event {
    Answer {
        request: RequestId,
        result: Result<Response, Failure>,
    },
    Watch(StreamEvent),
    /// Time has passed.
    Time,
}

/// A function of the test kit that reads the driver.
#[cfg(feature = "testing")]
pub(super) struct Inspection(pub(super) Box<dyn FnOnce(&mut Driver) + Send>);

#[cfg(feature = "testing")]
impl fmt::Debug for Inspection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Inspection")
    }
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

/// Where a call waits for its locks.
type Taker = oneshot::Sender<Result<Ownership, LockError>>;

/// The core, and what its inputs and outputs refer to.
pub(super) struct Driver {
    pub(super) core: Core,
    pub(super) clock: Arc<dyn Clock>,
    /// Wakes the engine's thread when a timer of the core is due.
    alarm: Arc<Alarm>,
    /// Where exchanges are awaited.
    runtime: Handle,
    client: Client,
    watches: Watches,
    /// The driver itself, for tasks that submit answers and for ownerships that submit releases.
    combiner: Weak<Combiner<Self>>,
    /// Answers that needed no waiting, and no task.
    at_once: VecDeque<(RequestId, Result<Response, Failure>)>,
    pub(super) waiting: BTreeMap<CallId, (Vec<Name>, Mode, Taker)>,
    pub(super) held: BTreeMap<CallId, Arc<OwnedLocks>>,
    releasing: BTreeMap<CallId, (Name, Reply)>,
    warming: BTreeMap<CallId, oneshot::Sender<Result<(), LockError>>>,
    stopping: Vec<oneshot::Sender<()>>,
    finished: bool,
}

impl Driver {
    /// `on`: where exchanges are awaited, and the alarm of the core's timers.
    pub(super) fn new(
        config: &Config,
        clock: Arc<dyn Clock>,
        client: Client,
        on: (Handle, Arc<Alarm>),
        combiner: Weak<Combiner<Self>>,
    ) -> Self {
        let settings = Settings {
            prefix: config.prefix.as_str().into(),
            connect_timeout: config.connect_timeout.saturating_add(GRACE),
            bodies_per_session: BODIES_PER_SESSION,
            near: NEAR,
            max_waiters: config.max_waiters,
            seed: RandomState::new().hash_one(std::process::id()),
        };
        let (runtime, alarm) = on;
        let driver = combiner.clone();
        let submit: Submit = Arc::new(move |event| {
            if let Some(driver) = driver.upgrade() {
                driver.tell(Message::Event(Event::Watch(event)));
            }
        });
        Self {
            core: Core::new(settings),
            watches: Watches::new(client.clone(), clock.clone(), runtime.clone(), submit),
            clock,
            alarm,
            runtime,
            client,
            combiner,
            at_once: VecDeque::new(),
            waiting: BTreeMap::new(),
            held: BTreeMap::new(),
            releasing: BTreeMap::new(),
            warming: BTreeMap::new(),
            stopping: Vec::new(),
            finished: false,
        }
    }

    /// One step of the core's contract: one input, then all its outputs.
    pub(super) fn step(&mut self, input: Input) {
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

    fn carry_out(&mut self, command: Command) {
        match command {
            Command::Acquire {
                acquire,
                names,
                reply,
            } => {
                let waiting = (names, acquire.mode, reply);
                self.waiting.insert(acquire.call, waiting);
                self.step(Input::Acquire(acquire));
            }
            Command::Cancel { call } => {
                self.waiting.remove(&call);
                self.step(Input::Cancel { call });
            }
            Command::Release {
                call,
                how,
                fenced,
                reply,
            } => {
                let locks = self.held.remove(&call);
                if let (Some(reply), Some(locks)) = (reply, locks) {
                    let name = locks.first.name.clone();
                    self.releasing.insert(call, (name, reply));
                }
                self.step(Input::Release { call, how, fenced });
            }
            Command::Keep { call, until } => self.step(Input::Keep { call, until }),
            Command::Warm {
                call,
                ttl_secs,
                reply,
            } => {
                self.warming.insert(call, reply);
                self.step(Input::Warm { call, ttl_secs });
            }
            Command::Shutdown { grace, reply } => {
                self.stopping.push(reply);
                self.step(Input::Shutdown {
                    until: self.clock.now() + grace,
                });
            }
            Command::Orphaned => self.step(Input::Shutdown {
                until: self.clock.now(),
            }),
            #[cfg(feature = "testing")]
            Command::Inspect(inspection) => (inspection.0)(self),
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
            Output::Granted(grant) => self.grant(grant),
            Output::Refused { call, why } => {
                if let Some((names, _, reply)) = self.waiting.remove(&call) {
                    let name = names.into_iter().nth(why.name()); // the refused one, or the first
                    effect(|| reply.send(Err(refusal(why, name))));
                } else if let Some(reply) = self.warming.remove(&call) {
                    effect(|| reply.send(Err(refusal(why, None))));
                }
            }
            Output::Lost { call, cause } => {
                if let Some(locks) = self.held.get(&call) {
                    effect(|| locks.lose(cause));
                    effect(|| {
                        // Of no span: this may run on the thread of another call.
                        tracing::warn!(parent: None, lock = %locks.first.name, %cause, "a lock was lost: its body is dropped, unless it is to continue");
                        metrics::lost(&locks.first.name, cause);
                    });
                }
            }
            Output::Released { call, result } => {
                if let Some((name, reply)) = self.releasing.remove(&call) {
                    effect(|| match &result {
                        Ok(()) => tracing::debug!(parent: None, lock = %name, "released"),
                        Err(_) => tracing::debug!(parent: None, lock = %name, "not released yet"),
                    });
                    effect(|| reply.send(result.map_err(|why| refusal(why, Some(name)))));
                }
            }
            Output::Ready { call } => {
                if let Some(reply) = self.warming.remove(&call) {
                    effect(|| reply.send(Ok(())));
                }
            }
            Output::Finished => {
                self.finished = true;
                for reply in self.stopping.drain(..) {
                    effect(|| reply.send(()));
                }
            }
        }
    }

    fn exchange(&mut self, id: RequestId, request: Request) {
        let client = self.client.clone();
        // Should it panic, the core must still get its answer, or it waits for ever.
        let mut exchange = Caught(Box::pin(async move { client.exchange(request).await }));
        if self.client.answers_at_once() {
            let _here = self.runtime.enter(); // its timers are not the caller's
            let mut once = Context::from_waker(Waker::noop()); // its task, if it needs one, polls it anew
            if let Poll::Ready(result) = Pin::new(&mut unconstrained(&mut exchange)).poll(&mut once)
            {
                self.at_once.push_back((id, result));
                return;
            }
        }
        let combiner = self.combiner.clone();
        self.runtime.spawn(async move {
            let (request, result) = (id, exchange.await);
            if let Some(combiner) = combiner.upgrade() {
                combiner.tell(Message::Event(Event::Answer { request, result }));
            }
        });
    }

    /// Sends the ownership through the reply: if the caller has gone, its drop releases the locks (rule P26).
    fn grant(&mut self, grant: Grant) {
        let Grant {
            call,
            owned,
            deadline,
        } = grant;
        let Some((names, mode, reply)) = self.waiting.remove(&call) else {
            return self.release_unclaimed(call);
        };
        let mut locks = names.into_iter().zip(owned).map(|(name, owned)| OwnedLock {
            name,
            key: owned.key,
            created: owned.created,
            token: Token::new(owned.revision.get(), owned.handover),
            mode,
        });
        let Some(first) = locks.next() else {
            return self.release_unclaimed(call); // a call has a name
        };
        let others = locks.collect();
        let locks = Arc::new(OwnedLocks::new(first, others, deadline, self.clock.clone()));
        self.held.insert(call, locks.clone());
        let ownership = Ownership::new(locks, call, self.clock.now(), self.combiner.clone());
        effect(|| reply.send(Ok(ownership)));
    }

    /// Releases locks whose caller has gone, so that no ownership can.
    fn release_unclaimed(&mut self, call: CallId) {
        self.core.handle(
            self.clock.now(),
            Input::Release {
                call,
                how: Release::Unconfirmed,
                fenced: false,
            },
        );
    }
}

impl Machine for Driver {
    type News = Message;

    fn hear(&mut self, message: Message) {
        match message {
            Message::Command(command) => self.carry_out(command),
            Message::Event(Event::Answer { request, result }) => {
                self.step(Input::Answer { request, result });
            }
            Message::Event(Event::Watch(event)) => {
                if let Some((watch, event)) = self.watches.take(event) {
                    self.step(Input::Watch { watch, event });
                }
            }
            Message::Event(Event::Time) => self.step(Input::Tick),
        }
    }

    fn rest(&mut self) {
        if let Some(due) = self.core.next_timeout() {
            self.alarm.set(self.clock.now(), due);
        }
    }

    fn has_ended(&self) -> bool {
        self.finished
    }
}

impl Releaser for Combiner<Driver> {
    fn release(&self, call: CallId, how: Release, fenced: bool, reply: Option<Reply>) -> bool {
        self.tell(Message::Command(Command::Release {
            call,
            how,
            fenced,
            reply,
        }))
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.alarm.ring_for_ever(); // until the thread finds that the driver has ended
        // The engine reports no loss any more; and a body that runs on without its lock ends now.
        for locks in self.held.values() {
            effect(|| locks.lose(LossCause::Shutdown));
        }
    }
}

/// Runs an effect that answers a caller, or writes a log. It may wake a task of any executor or call a subscriber, whose panic
/// must not end the engine of all other calls.
fn effect<T>(effect: impl FnOnce() -> T) {
    let _ = catch_unwind(AssertUnwindSafe(effect));
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
        (Refused::Overloaded, Some(name)) => LockError::Overloaded { name },
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
            | Refused::Overloaded
            | Refused::Lost { .. },
            _,
        ) => LockError::ShuttingDown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn panic_in_an_exchange_is_an_unknown_outcome() {
        let panics = async { panic!("in the client's code") };
        match Caught(Box::pin(panics)).await {
            Err(Failure::Unknown(cause)) => assert!(cause.to_string().contains("panicked")),
            other => panic!("{other:?}"),
        }
        let revoked = Caught(Box::pin(async { Ok(Response::Revoked) })).await;
        assert!(matches!(revoked, Ok(Response::Revoked)), "{revoked:?}");
    }
}
