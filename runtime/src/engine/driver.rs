//! The core's effects: each thing it is told becomes an input, each of its outputs an exchange, a watch or an answer.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::unconstrained;

use super::combiner::{Combiner, Machine};
#[cfg(feature = "testing")]
use super::probe;
use super::watch::{self, Watches};
use super::wire::Wire;
use super::{Engine, Shared};
use crate::clock::{Alarm, Clock, Moment};
use crate::config::Config;
use crate::core::request::{Failure, Request, Response};
use crate::core::{
    Acquire, Blocker, CallId, Core, Grant, Input, Output, Refused, Release, RequestId, Settings,
};
use crate::cycle::Cycle;
use crate::error::{LockError, LossCause};
use crate::held::LockGuard;
use crate::holder::Holder;
use crate::meter;
use crate::name::Name;
use crate::tenure::{OwnedLock, Tenure};
use crate::token::Token;

/// How many locks one lease may take with it when it is lost, if others are to be had (rule P27).
const BODIES_PER_LEASE: usize = 1_024;
/// How many predecessors are watched, before it is the last of them alone: of 16 processes that served 6 to 8 % fewer a second.
const NEAR: usize = 16;

/// What it is told: by handles on the engine, and by its tasks.
#[derive(Debug)]
pub(super) enum Told {
    Acquire {
        acquire: Acquire,
        names: Vec<Name>,
        reply: oneshot::Sender<Result<LockGuard, LockError>>,
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
    /// Nobody is left to hold or want anything.
    Orphaned,
    Answer {
        request: RequestId,
        result: Result<Response, Failure>,
    },
    Watch(watch::Told),
    /// Time has passed.
    Time,
    #[cfg(feature = "testing")]
    Probe(probe::Probe),
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

/// Whoever waits for a lock.
type Taker = oneshot::Sender<Result<LockGuard, LockError>>;

/// The core, and what its inputs and outputs are about.
pub(super) struct Driver {
    pub(super) core: Core,
    pub(super) clock: Arc<dyn Clock>,
    /// Calls the engine's thread when time has come.
    alarm: Arc<Alarm>,
    /// Where exchanges are awaited.
    runtime: Handle,
    wire: Wire,
    watches: Watches,
    /// Itself, for who brings answers.
    combiner: Weak<Combiner<Self>>,
    handle: Weak<Shared>,
    /// Answers that needed no waiting, and no task.
    at_once: VecDeque<(RequestId, Result<Response, Failure>)>,
    pub(super) waiting: BTreeMap<CallId, (Vec<Name>, Taker)>,
    pub(super) held: BTreeMap<CallId, Arc<Tenure>>,
    releasing: BTreeMap<CallId, (Name, oneshot::Sender<Result<(), LockError>>)>,
    warming: BTreeMap<CallId, oneshot::Sender<Result<(), LockError>>>,
    stopping: Vec<oneshot::Sender<()>>,
    finished: bool,
}

impl Driver {
    /// `on`: where exchanges are awaited, and what calls there when it is time to tell so.
    pub(super) fn new(
        config: &Config,
        clock: Arc<dyn Clock>,
        wire: Wire,
        on: (Handle, Arc<Alarm>),
        (combiner, handle): (Weak<Combiner<Self>>, Weak<Shared>),
    ) -> Self {
        let settings = Settings {
            prefix: config.prefix.as_str().into(),
            connect_timeout: config.connect_timeout,
            bodies_per_lease: BODIES_PER_LEASE,
            near: NEAR,
            max_waiters: config.max_waiters,
            seed: RandomState::new().hash_one(std::process::id()),
        };
        let (runtime, alarm) = on;
        let told = combiner.clone();
        let teller: watch::Teller = Arc::new(move |news| {
            if let Some(combiner) = told.upgrade() {
                combiner.tell(Told::Watch(news));
            }
        });
        Self {
            core: Core::new(settings),
            watches: Watches::new(wire.clone(), clock.clone(), runtime.clone(), teller),
            clock,
            alarm,
            runtime,
            wire,
            combiner,
            handle,
            at_once: VecDeque::new(),
            waiting: BTreeMap::new(),
            held: BTreeMap::new(),
            releasing: BTreeMap::new(),
            warming: BTreeMap::new(),
            stopping: Vec::new(),
            finished: false,
        }
    }

    /// One turn of the core's contract: one input, then all its outputs.
    pub(super) fn tell(&mut self, input: Input) {
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
                    tell(|| reply.send(Err(refusal(why, name))));
                } else if let Some(reply) = self.warming.remove(&call) {
                    tell(|| reply.send(Err(refusal(why, None))));
                }
            }
            Output::Lost { call, cause } => {
                if let Some(tenure) = self.held.get(&call) {
                    tell(|| tenure.lose(cause));
                    tell(|| {
                        // Of no span: whoever runs this may be about something else.
                        tracing::warn!(parent: None, lock = %tenure.first.name, %cause, "a lock was lost: its body is dropped, unless it is to continue");
                        meter::lost(&tenure.first.name, cause);
                    });
                }
            }
            Output::Released { call, result } => {
                if let Some((name, reply)) = self.releasing.remove(&call) {
                    tell(|| match &result {
                        Ok(()) => tracing::debug!(parent: None, lock = %name, "released"),
                        Err(_) => tracing::debug!(parent: None, lock = %name, "not released yet"),
                    });
                    tell(|| reply.send(result.map_err(|why| refusal(why, Some(name)))));
                }
            }
            Output::Ready { call } => {
                if let Some(reply) = self.warming.remove(&call) {
                    tell(|| reply.send(Ok(())));
                }
            }
            Output::Finished => {
                self.finished = true;
                for reply in self.stopping.drain(..) {
                    tell(|| reply.send(()));
                }
            }
        }
    }

    fn exchange(&mut self, id: RequestId, request: Request) {
        let wire = self.wire.clone();
        // Should it panic, the core must still get its answer, or it waits for ever.
        let mut exchange = Caught(Box::pin(async move { wire.exchange(request).await }));
        if self.wire.answers_at_once() {
            let _here = self.runtime.enter(); // its timers are not the caller's
            let mut nobody = Context::from_waker(Waker::noop()); // whose task, if it needs one, polls it anew
            if let Poll::Ready(result) =
                Pin::new(&mut unconstrained(&mut exchange)).poll(&mut nobody)
            {
                self.at_once.push_back((id, result));
                return;
            }
        }
        let combiner = self.combiner.clone();
        self.runtime.spawn(async move {
            let (request, result) = (id, exchange.await);
            if let Some(combiner) = combiner.upgrade() {
                combiner.tell(Told::Answer { request, result });
            }
        });
    }

    /// The `LockGuard` travels through the reply: if nobody takes it, its drop releases the lock (rule P26).
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
        tell(|| reply.send(Ok(LockGuard::new(tenure, Engine(shared), call))));
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

impl Machine for Driver {
    type News = Told;

    fn hear(&mut self, told: Told) {
        match told {
            Told::Acquire {
                acquire,
                names,
                reply,
            } => {
                self.waiting.insert(acquire.call, (names, reply));
                self.tell(Input::Acquire(acquire));
            }
            Told::Cancel { call } => {
                self.waiting.remove(&call);
                self.tell(Input::Cancel { call });
            }
            Told::Release {
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
            Told::Keep { call, until } => self.tell(Input::Keep { call, until }),
            Told::Warm {
                call,
                ttl_secs,
                reply,
            } => {
                self.warming.insert(call, reply);
                self.tell(Input::Warm { call, ttl_secs });
            }
            Told::Shutdown { grace, reply } => {
                self.stopping.push(reply);
                self.tell(Input::Shutdown {
                    until: self.clock.now() + grace,
                });
            }
            Told::Orphaned => self.tell(Input::Shutdown {
                until: self.clock.now(),
            }),
            Told::Answer { request, result } => self.tell(Input::Answer { request, result }),
            Told::Watch(told) => {
                if let Some((watch, news)) = self.watches.hear(told) {
                    self.tell(Input::Watch { watch, news });
                }
            }
            Told::Time => self.tell(Input::Tick),
            #[cfg(feature = "testing")]
            Told::Probe(probe) => probe.carry_out(self),
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

impl Drop for Driver {
    fn drop(&mut self) {
        self.alarm.ring_for_ever(); // until the thread finds that nobody is left to be told
        // Nobody will tell them of a loss any more; and what runs on without its lock ends now.
        for tenure in self.held.values() {
            tell(|| tenure.lose(LossCause::Shutdown));
        }
    }
}

/// Tells a caller, who may have gone, or a log. That runs code of others, as it may wake a task of any executor, and what goes
/// wrong there must not end the engine of all others.
fn tell<T>(caller: impl FnOnce() -> T) {
    let _ = catch_unwind(AssertUnwindSafe(caller));
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
        (Refused::Mismatch { theirs, holder, .. }, Some(name)) => LockError::Mismatch {
            name,
            theirs: theirs.get(),
            holder: record(holder),
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
            | Refused::Mismatch { .. }
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
