//! Call for a lock, or for several at once.

use std::future::{Future, IntoFuture};
use std::num::NonZeroU16;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::sync::oneshot;

use super::current::{self, HeldLock};
use super::guard::LockGuard;
use super::locks::Locks;
use super::process;
use super::span::WaitSpan;
use crate::clock::{Deadline, Due};
use crate::engine::{Answer, CallId, Engine, Key, Mode, Origin, OwnedLock, OwnedLocks};
use crate::metrics::Measurement;
use crate::values::config::{check_at_least, check_ttl};
use crate::values::error::LockError;
use crate::values::name::{LockName, Name, templates};
use crate::values::wait::{Wait, within};

/// A call for a lock: what the attribute does, by hand.
///
/// ```no_run
/// # use std::time::Duration;
/// # async fn example(id: u64) -> Result<(), etcd_locked::LockError> {
/// let held = etcd_locked::lock(format!("orders/{id}")).wait(Duration::from_secs(5)).await?;
/// # drop(held); Ok(()) }
/// ```
pub fn lock(name: impl LockName) -> Acquire {
    Acquire::new(None, vec![name.lock_name()])
}

impl Locks {
    /// A call for a lock on this engine; see [`lock`](crate::lock()).
    pub fn lock(&self, name: impl LockName) -> Acquire {
        Acquire::new(Some(self.clone()), vec![name.lock_name()])
    }
}

/// A call for a lock, or for several at once: nothing happens before it is awaited.
///
/// Awaited, it answers a [`LockGuard`] or a [`LockError`]. Cancel safe: dropped at any point it leaves no key and no place in a
/// queue behind; its place in the queue is lost.
#[derive(Debug, Clone)]
#[must_use = "does nothing until awaited"]
pub struct Acquire {
    locks: Option<Locks>,
    /// At least one.
    names: Vec<Name>,
    function: Option<&'static str>,
    wait: Option<Wait>,
    ttl: Option<Duration>,
    deadline: Option<Due>,
    at_most: Option<Duration>,
    reentrant: bool,
    at_least: Option<Duration>,
    share: Share,
}

impl Acquire {
    pub(crate) fn new(locks: Option<Locks>, names: Vec<Name>) -> Self {
        Self {
            locks,
            names,
            function: None,
            wait: None,
            ttl: None,
            deadline: None,
            at_most: None,
            reentrant: false,
            at_least: None,
            share: Share::Alone,
        }
    }

    /// Sets what an annotation says of its function.
    pub(crate) fn annotated(
        self,
        function: &'static str,
        wait: Option<Wait>,
        ttl: Option<Duration>,
    ) -> Self {
        Self {
            function: Some(function),
            wait,
            ttl,
            ..self
        }
    }

    /// This name too: all of them or none (rule P13). Calls that take several names this way, and whose tasks hold nothing
    /// else, never wait for one another in a cycle; a name that comes twice is locked once. At most 32, or [`LockError::Config`].
    ///
    /// ```no_run
    /// # async fn example(from: u64, to: u64) -> Result<(), etcd_locked::LockError> {
    /// let both = etcd_locked::lock(format!("accounts/{from}")).and(format!("accounts/{to}")).await?;
    /// # drop(both); Ok(()) }
    /// ```
    pub fn and(mut self, name: impl LockName) -> Self {
        self.names.push(name.lock_name());
        self
    }

    /// Queues at most this long; then [`LockError::Timeout`]. Default: as configured, 10 s unless set.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = Some(Wait::For(wait));
        self
    }

    /// Queues until served. Where etcd cannot be reached, it is refused with [`LockError::Backend`] after about the connect
    /// time-out all the same.
    pub fn wait_forever(mut self) -> Self {
        self.wait = Some(Wait::Forever);
        self
    }

    /// Tries once; if the name is taken, [`LockError::Held`].
    pub fn try_once(mut self) -> Self {
        self.wait = Some(Wait::Once);
        self
    }

    /// Bounds the wait by a point in time too, such as the end of the request that is served: an `Instant` of std or tokio.
    /// The earlier of it and [`wait`](Self::wait) wins, and of two deadlines the earlier.
    ///
    /// Over while the call queues: [`LockError::Timeout`], as for a wait that is over. Over when the call is first awaited: the
    /// same at once, `waited` being zero, without a word to etcd. [`try_once`](Self::try_once) does not wait, and reads it at the start only.
    /// It does not bound the body.
    ///
    /// ```no_run
    /// # use std::time::{Duration, Instant};
    /// # async fn example(id: u64, deadline: Instant) -> Result<(), etcd_locked::LockError> {
    /// let held = etcd_locked::lock(format!("orders/{id}")).deadline(deadline).await?;
    /// # drop(held); Ok(()) }
    /// ```
    pub fn deadline(mut self, deadline: impl Deadline) -> Self {
        if let Some(due) = deadline.due() {
            self.deadline = Some(due.earlier(self.deadline));
        }
        self
    }

    /// The hold limit: what runs under the lock by way of [`LockGuard::hold`] is dropped this long after the call was given the
    /// lock, with [`LockError::HoldLimit`]. The lock itself stays until it is released, and its lease is renewed until then.
    ///
    /// It is checked before each poll, and wakes a body that waits; a poll that does not return is not interrupted.
    pub fn at_most(mut self, limit: Duration) -> Self {
        self.at_most = Some(limit);
        self
    }

    /// Where the calling task holds the lock already, it is used again, and nothing is asked of etcd; without this the call is
    /// refused with [`LockError::SelfDeadlock`].
    ///
    /// What one gets then is the lock of the body around: it has its tokens; when it is lost, or that body ends, this one is lost too;
    /// dropped or released, it changes nothing. `wait`, `deadline` and `ttl` mean nothing then; [`at_most`](Self::at_most)
    /// bounds what runs under this one, and [`at_least`](Self::at_least) keeps that lock. "Holds" is as for [`current`](crate::current): the poll stack decides. Two bodies that one
    /// task joins may so run under one lock, alternating at their awaits.
    ///
    /// Of several names ([`and`](Self::and)) the task holds all, by one call or by several, or none, which are then taken
    /// as always; if it holds only some, the call is refused with [`LockError::SelfDeadlock`]: to take the others
    /// while those are held is to take locks one after the other, which is how deadlocks begin. So it is in a detached body with
    /// the locks of its caller, who may go on without it. So is a call that asks for
    /// more than is held: for the name alone under a [`shared`](Self::shared) one, or one of its [`permits`](Self::permits).
    pub fn reentrant(mut self) -> Self {
        self.reentrant = true;
        self
    }

    /// Keeps what was locked locked for at least this long, counted from when the call was given the lock, also if it is
    /// released earlier: for what must not happen again too soon, or on a host whose clock is late. No call waits for that: the
    /// release is done once etcd keeps the lock by itself, which takes two round trips.
    ///
    /// From then on the lock outlives this process, and [`shutdown`](crate::shutdown) keeps the promise too; after a crash
    /// before that only the TTL holds. Until the time is over no call gets the lock, in this process or another; a lock that is lost
    /// promises nothing any more. A year at most, and not longer than [`at_most`](Self::at_most), or [`LockError::Config`].
    ///
    /// Of [`permits`](Self::permits) it keeps the one that the call had: so many calls in that time, over all processes, and not only
    /// so many at once. A [`shared`](Self::shared) lock keeps nothing: with that it is [`LockError::Config`].
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # async fn example() -> Result<(), etcd_locked::LockError> {
    /// let held = etcd_locked::lock("reports/today").at_least(Duration::from_secs(60)).await?;
    /// held.hold(async { /* a moment's work */ }).await?;
    /// held.release().await // and no call makes the report again within the minute
    /// # }
    /// ```
    pub fn at_least(mut self, time: Duration) -> Self {
        self.at_least = Some(time);
        self
    }

    /// Shares the names with others that share them: a reader, of any number. A call that wants a name for itself waits for the
    /// readers before it, and readers who come after it wait for it: neither starves. Instead of [`permits`](Self::permits).
    ///
    /// Readers of one process that ask for the same names and TTL share a key in etcd, which goes with the last of them. Their tokens differ,
    /// and each is greater than that of the call that had the name for itself before, and less than that of who has it next; those
    /// of readers in different processes say nothing of each other. A reader that locks the name again is refused with
    /// [`LockError::SelfDeadlock`], unless it is a [`reentrant`](Self::reentrant) reader.
    ///
    /// ```no_run
    /// # async fn example(day: u32) -> Result<(), etcd_locked::LockError> {
    /// let report = etcd_locked::lock(format!("reports/{day}")).shared().await?;
    /// # drop(report); Ok(()) }
    /// ```
    pub fn shared(mut self) -> Self {
        self.share = Share::Readers;
        self
    }

    /// Takes one of so many permits of each name, 1 to 1,024: at most so many calls have them, over all processes, and they are
    /// served in order. A call that wants the name for itself, or shares it, waits for the permits before it, and the other way
    /// round. Instead of [`shared`](Self::shared).
    ///
    /// Calls of one name may differ in the number, as in a rolling deployment. The call's own number counts: it is served when fewer
    /// than that many older permits are held or asked for. Any other number than 1 to 1,024 is [`LockError::Config`]. Tokens are as with [`shared`](Self::shared); a permit has no number of its own.
    ///
    /// Calls that hold a permit, or wait for one, are not searched for deadlocks: those end when a wait does.
    pub fn permits(mut self, permits: u16) -> Self {
        self.share = Share::Permits(permits);
        self
    }

    /// The lease TTL: how long a crashed holder blocks others. Rounded up to whole seconds, 2 s to 300 s. Default: as
    /// configured, 15 s unless set.
    ///
    /// Below 5 s a change of etcd's leader may cost the lock.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    fn begin(mut self) -> Result<Begun, LockError> {
        let mut texts = Vec::with_capacity(self.names.len());
        for name in &self.names {
            match name.checked() {
                Ok(text) => texts.push(text.clone()),
                Err(reason) => {
                    let (name, reason) = (name.clone(), reason.to_owned());
                    return Err(LockError::InvalidName { name, reason });
                }
            }
        }
        let locks = match self.locks.take() {
            Some(locks) => locks,
            None => process::here()?,
        };
        let engine = locks.engine().clone();
        let config = engine.config();
        let ttl = self.ttl.unwrap_or(config.ttl);
        check_ttl(ttl).map_err(|message| LockError::Config { message })?;
        let mode = self.share.mode()?;
        if self.at_least.is_some() && mode == Mode::Shared {
            let message =
                "readers keep nothing locked once they have gone: remove `at_least` or `shared`";
            return Err(LockError::Config {
                message: message.to_owned(),
            });
        }
        check_at_least(self.at_least, self.at_most)
            .map_err(|message| LockError::Config { message })?;
        let templates = templates(self.names.iter());
        let mut names: Vec<(Name, Key)> = Vec::with_capacity(texts.len());
        for (name, text) in std::mem::take(&mut self.names).into_iter().zip(texts) {
            let key: Key = [&config.prefix, &*text].concat().into();
            if names.iter().all(|(_, other)| *other != key) {
                names.push((name, key));
            }
        }
        if let Some(locks) = self.again(&engine, &names, mode)? {
            if let Some(time) = self.at_least {
                current::keep(&engine, &names, time);
            }
            let mut held = LockGuard::again(locks, engine);
            self.at_most.into_iter().for_each(|limit| held.limit(limit));
            return Ok(Begun::Again(held));
        }
        let holds = current::holds(&engine);
        let mut wait = self.wait.unwrap_or(config.wait);
        if let Some(due) = self.deadline {
            let left = due.left();
            if left.is_zero()
                && let Some((name, _)) = names.first()
            {
                return Err(LockError::Timeout {
                    name: name.clone(),
                    holder: None,
                    unleased: None,
                    waited: Duration::ZERO,
                });
            }
            wait = within(wait, left);
        }
        // A single try does not wait, so it takes locks in no order.
        if !holds.is_empty() && wait != Wait::Once {
            let wanted: Vec<&Name> = names.iter().map(|(name, _)| name).collect();
            let held = current::held_names(&engine);
            locks.orders().check(&held, &wanted, self.function)?;
        }
        let templates = templates.as_deref();
        let all = names.iter().map(|(name, _)| name);
        let span = WaitSpan::begin(&engine, templates, all, mode);
        let trace = span.trace();
        let origin = Origin {
            record: (engine.author()).record(self.function, templates, trace.as_deref()),
            function: self.function,
        };
        for (name, _) in &names {
            tracing::debug!(lock = %name, ?wait, ?ttl, "a call for a lock");
            tracing::trace!(name = ?name, "the name of that lock"); // at this level only: it may say who the work is for
        }
        let measurement = names
            .first()
            .map(|(name, _)| Measurement::waits(name, || engine.now()));
        let sent = engine.acquire(&names, ttl, mode, wait, origin, holds);
        if let Err(error) = &sent {
            if let Some(measurement) = &measurement {
                measurement.waited(Some(error), || engine.now());
            }
            span.answered(Some(error), || engine.now());
        }
        let (call, reply) = sent?;
        Ok(Begun::Sent(Sent {
            reply,
            engine,
            call,
            at_most: self.at_most,
            at_least: self.at_least,
            answered: false,
            measurement,
            span,
            #[cfg(feature = "opentelemetry")]
            first: names.into_iter().next().map(|(_, key)| key),
        }))
    }

    /// The locks that the task holds already, if it holds all these names and may use them again.
    fn again(
        &self,
        engine: &Engine,
        names: &[(Name, Key)],
        mode: Mode,
    ) -> Result<Option<OwnedLocks>, LockError> {
        let mut again = Vec::new();
        let mut may = self.reentrant;
        for (name, key) in names {
            if let Some(HeldLock { lock, among, here }) = current::held_lock(engine, key) {
                let name = name.clone();
                again.push((OwnedLock { name, ..lock }, among));
                may &= here;
            }
        }
        // A lock that is held with others is less than an exclusive one.
        let enough = |(lock, _): &(OwnedLock, _)| lock.mode == Mode::Exclusive || lock.mode == mode;
        let all = again.len() == names.len() && again.iter().all(enough);
        match again.first() {
            Some((lock, _)) if !(may && all) => {
                let name = lock.name.clone();
                Err(LockError::SelfDeadlock { name })
            }
            _ => Ok(OwnedLocks::again(engine.now(), again)),
        }
    }
}

/// The most permits of a name: each call that waits for one reads the keys of all.
const PERMITS: u16 = 1024;

/// With whom a call shares its names, as it was written.
#[derive(Debug, Clone, Copy)]
enum Share {
    Alone,
    Readers,
    Permits(u16),
}

impl Share {
    fn mode(self) -> Result<Mode, LockError> {
        match self {
            Self::Alone => Ok(Mode::Exclusive),
            Self::Readers => Ok(Mode::Shared),
            Self::Permits(permits) => match NonZeroU16::new(permits) {
                Some(of) if permits <= PERMITS => Ok(Mode::Permits(of)),
                _ => Err(LockError::Config {
                    message: format!("{permits} permits: ask for 1 to {PERMITS}"),
                }),
            },
        }
    }
}

impl IntoFuture for Acquire {
    type Output = Result<LockGuard, LockError>;
    type IntoFuture = Acquiring;

    fn into_future(self) -> Acquiring {
        Acquiring(State::New(Box::new(self)))
    }
}

/// An [`Acquire`] being awaited.
#[derive(Debug)]
pub struct Acquiring(State);

impl Acquiring {
    /// Changes the call, unless it has begun.
    pub(crate) fn change(&mut self, how: impl FnOnce(Acquire) -> Acquire) {
        self.0 = match std::mem::replace(&mut self.0, State::Done) {
            State::New(acquire) => State::New(Box::new(how(*acquire))),
            begun => begun,
        };
    }
}

#[derive(Debug)]
enum State {
    New(Box<Acquire>),
    Sent(Sent),
    Done,
}

/// How a call has begun.
enum Begun {
    Sent(Sent),
    /// Its task holds all names already.
    Again(LockGuard),
}

/// A call that the engine has; dropped unanswered, it is cancelled.
#[derive(Debug)]
struct Sent {
    /// Dropped before the engine's handle: it may hold an ownership, which releases through the engine.
    reply: oneshot::Receiver<Answer>,
    engine: Engine,
    call: CallId,
    at_most: Option<Duration>,
    at_least: Option<Duration>,
    answered: bool,
    measurement: Option<Measurement>,
    span: WaitSpan,
    /// The first of its names, with the prefix.
    #[cfg(feature = "opentelemetry")]
    first: Option<Key>,
}

impl Drop for Sent {
    fn drop(&mut self) {
        if !self.answered {
            self.engine.note_end(self.call);
            self.engine.cancel(self.call);
            if let Some(measurement) = &self.measurement {
                measurement.gone(|| self.engine.now());
            }
            self.span.dropped(|| self.engine.now());
        }
    }
}

impl Future for Acquiring {
    type Output = Result<LockGuard, LockError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let State::New(_) = &self.0
            && let State::New(acquire) = std::mem::replace(&mut self.0, State::Done)
        {
            self.0 = match acquire.begin()? {
                Begun::Sent(sent) => State::Sent(sent),
                Begun::Again(held) => return Poll::Ready(Ok(held)),
            };
        }
        let State::Sent(sent) = &mut self.0 else {
            return Poll::Pending; // polled after it was done
        };
        let answer = Pin::new(&mut sent.reply).poll(cx);
        #[cfg(feature = "opentelemetry")]
        if let (true, Some(first)) = (answer.is_pending(), &sent.first) {
            sent.span.waits(&sent.engine, first);
        }
        let answer = ready!(answer);
        sent.answered = true;
        // An engine that has ended answers no call.
        let answer = answer.unwrap_or_else(|_| Err(LockError::ShuttingDown.into()));
        // Before what runs a recorder or a subscriber, which may panic.
        match &answer {
            Ok(ownership) => sent.engine.note_held(sent.call, ownership.locks().clone()),
            Err(_) => sent.engine.note_end(sent.call),
        }
        let refused = answer.as_ref().err().map(Box::as_ref);
        if let Some(measurement) = &sent.measurement {
            measurement.waited(refused, || sent.engine.now());
        }
        sent.span.answered(refused, || sent.engine.now());
        let (at_most, at_least) = (sent.at_most, sent.at_least);
        let guarded = answer.map(|ownership| LockGuard::new(ownership, sent.engine.clone()));
        self.0 = State::Done;
        let guarded = guarded.inspect_err(|error| tracing::debug!(%error, "no lock"));
        let mut held = guarded.map_err(|error| *error)?;
        tracing::debug!(lock = %held.name(), token = %held.token(), "the lock is ours");
        if let Some(limit) = at_most {
            held.limit(limit);
        }
        // From here on the caller has had the lock.
        if let Some(time) = at_least {
            held.keep(time);
        }
        Poll::Ready(Ok(held))
    }
}
