//! Acquisition: a call from its request to its grant. Not generic, so it is compiled once for all lock names.

use std::num::NonZeroU16;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::{Grant, Locks, WaitSpan, current, process};
use crate::clock::Deadline;
use crate::engine::{Answer, Call, Engine, Key, Mode, Origin, OwnedLock, OwnedLocks};
use crate::metrics::Measurement;
use crate::values::{LockError, Name, Wait, chain, check_min_hold, check_ttl, templates};

/// Request of a call: its names, its mode and its limits.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    pub(crate) locks: Option<Locks>,
    /// At least one, once the call begins.
    pub(crate) names: Vec<Name>,
    pub(crate) function: Option<&'static str>,
    pub(crate) wait: Option<Wait>,
    pub(crate) ttl: Option<Duration>,
    /// By tokio's clock.
    deadline: Option<Instant>,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) reentrant: bool,
    pub(crate) min_hold: Option<Duration>,
    /// How the call shares its names with others; an error if the number of permits is out of range.
    pub(crate) mode: Result<Mode, String>,
}

impl Wanted {
    /// Creates the request of a call without options. Without `locks`, it uses the engine of the scope, the thread or the process.
    pub(crate) fn new(locks: Option<Locks>, names: Vec<Name>) -> Self {
        Self {
            locks,
            names,
            function: None,
            wait: None,
            ttl: None,
            deadline: None,
            max_hold: None,
            reentrant: false,
            min_hold: None,
            mode: Ok(Mode::Exclusive),
        }
    }

    /// Bounds the wait. Of two deadlines, the earlier one applies.
    pub(crate) fn deadline(&mut self, deadline: impl Deadline) {
        if let Some(due) = deadline.due() {
            self.deadline = Some(self.deadline.map_or(due, |other| other.min(due)));
        }
    }

    fn begin(mut self) -> Result<Begun, LockError> {
        let texts = self.names.iter().map(|name| name.checked().cloned());
        let texts: Vec<Arc<str>> = texts.collect::<Result<_, _>>()?;
        let locks = match self.locks.take() {
            Some(locks) => locks,
            None => process::here()?,
        };
        let engine = &locks.engine;
        let config = engine.config();
        let templates = templates(self.names.iter());
        let mut names: Vec<(Name, Key)> = Vec::with_capacity(texts.len());
        for (name, text) in std::mem::take(&mut self.names).into_iter().zip(texts) {
            let key: Key = [&config.prefix, &*text].concat().into();
            if names.iter().all(|(_, other)| *other != key) {
                names.push((name.showing(config.show_names), key));
            }
        }
        let Some(first) = names.first() else {
            return Err(LockError::config("a call must name at least one lock"));
        };
        let ttl = self.ttl.unwrap_or(config.ttl);
        let mode = self.checked(ttl);
        let mode =
            mode.map_err(|wrong| LockError::config(format!("lock `{}`: {wrong}", first.0)))?;
        if let Some(held) = self.again(engine, &names, mode)? {
            if let Some(time) = self.min_hold {
                current::keep(engine, &names, time);
            }
            let held = Grant::new(Arc::new(held), None, engine.clone(), self.max_hold);
            return Ok(Begun::Again(held));
        }
        let outer = current::holds(engine);
        let left = self.deadline.map(|due| due.saturating_duration_since(Instant::now()));
        if left == Some(Duration::ZERO) {
            let (name, waited) = (first.0.clone(), Duration::ZERO);
            return Err(LockError::Timeout { name, holder: None, unleased: None, waited });
        }
        let wait = match (self.wait.unwrap_or(config.wait), left) {
            // A call with no time to wait still takes the lock if it is free.
            (Wait::Once | Wait::For(Duration::ZERO), _) => Wait::Once,
            (wait, None) => wait,
            (Wait::For(time), Some(left)) => Wait::For(time.min(left)),
            (Wait::Forever, Some(left)) => Wait::For(left),
        };
        // A single try never waits, so the order of its locks cannot cause a deadlock.
        if !outer.is_empty() && wait != Wait::Once {
            let held = outer.iter().flat_map(|it| it.locks()).map(|lock| &lock.name);
            let wanted: Vec<&Name> = names.iter().map(|(name, _)| name).collect();
            locks.orders.check(held, &wanted, self.function)?;
        }
        let templates = templates.as_deref();
        let all = names.iter().map(|(name, _)| name);
        let span = WaitSpan::begin(engine, templates, all, mode);
        let trace = span.trace();
        let permits = if let Mode::Permits(of) = mode { Some(of) } else { None };
        let author = engine.author();
        let call = engine.new_call();
        let record = author.record(self.function, templates, trace.as_deref(), permits, call);
        let origin = Origin { call, record, function: self.function };
        for (name, _) in &names {
            tracing::debug!(lock = %name, ?wait, ?ttl, "requesting a lock");
            tracing::trace!(name = ?name, "name of the requested lock"); // at this level only: it may be personal data
        }
        let measurement = Measurement::waits(&first.0, || engine.now());
        let holds = outer.iter().filter_map(|it| it.call()).collect();
        let sent = engine.acquire(&names, ttl, mode, wait, origin, holds);
        let (call, reply) = sent.inspect_err(|error| {
            measurement.waited(Some(error), || engine.now());
            span.answered(Some(error), || engine.now());
        })?;
        Ok(Begun::Sent(Sent {
            reply,
            locks,
            call,
            max_hold: self.max_hold,
            min_hold: self.min_hold,
            measurement,
            span,
        }))
    }

    /// Checks the values that may be computed at run time, and returns the mode. The error says which value is wrong.
    fn checked(&self, ttl: Duration) -> Result<Mode, String> {
        check_ttl(ttl).map_err(|wrong| format!("ttl {ttl:?}: {wrong}"))?;
        check_min_hold(self.min_hold, self.max_hold)?;
        let mode = self.mode.clone()?;
        if self.min_hold.is_some() && mode == Mode::Shared {
            return Err(
                "a reader does not keep its lock after its release: remove `min_hold` or `shared`"
                    .into(),
            );
        }
        Ok(mode)
    }

    /// Returns the locks that the task already holds, if it holds all these names and may reuse them; `None` if it holds none of them.
    /// Otherwise fails with `SelfDeadlock`.
    fn again(
        &self,
        engine: &Engine,
        names: &[(Name, Key)],
        mode: Mode,
    ) -> Result<Option<OwnedLocks>, LockError> {
        let mut again = Vec::new();
        let mut may = self.reentrant;
        for (name, key) in names {
            if let Some((lock, among, here)) = current::held_lock(engine, key) {
                let name = name.clone();
                again.push((OwnedLock { name, ..lock }, among));
                may &= here;
            }
        }
        // A shared lock does not stand in for an exclusive one.
        let enough = |(lock, _): &(OwnedLock, _)| lock.mode == Mode::Exclusive || lock.mode == mode;
        let all = again.len() == names.len() && again.iter().all(enough);
        match again.first() {
            Some((lock, _)) if !(may && all) => {
                Err(LockError::SelfDeadlock { name: lock.name.clone() })
            }
            _ => Ok(OwnedLocks::again(|| engine.now(), again)),
        }
    }
}

/// Maximum number of permits of a name. It is bounded because each waiting call reads the keys of all permits.
const PERMITS: u16 = 1024;

/// Returns the mode of a call for one of `permits` permits. The error says which numbers are allowed.
pub(crate) fn mode_of_permits(permits: u16) -> Result<Mode, String> {
    match NonZeroU16::new(permits) {
        Some(of) if permits <= PERMITS => Ok(Mode::Permits(of)),
        _ => Err(format!("{permits} permits are out of range: use 1 to {PERMITS}")),
    }
}

/// Future of a call for locks. It does nothing before its first poll. Cancel safe: dropping it leaves no key behind.
#[derive(Debug)]
pub(crate) struct Acquisition(State);

impl Acquisition {
    pub(crate) fn of(wanted: Wanted) -> Self {
        Self(State::New(Box::new(wanted)))
    }

    pub(crate) fn change(&mut self, how: impl FnOnce(&mut Wanted)) {
        if let State::New(wanted) = &mut self.0 {
            how(wanted);
        }
    }
}

#[derive(Debug)]
enum State {
    New(Box<Wanted>),
    Sent(Sent),
    Done,
}

enum Begun {
    Sent(Sent),
    /// The task already holds all names.
    Again(Grant),
}

/// A call that the engine has received. Dropping it before the engine responds cancels it.
#[derive(Debug)]
struct Sent {
    /// Dropped before `locks`, because it may contain an ownership, which releases through the engine.
    reply: oneshot::Receiver<Answer>,
    locks: Locks,
    call: Arc<Call>,
    max_hold: Option<Duration>,
    min_hold: Option<Duration>,
    measurement: Measurement,
    span: WaitSpan,
}

impl Drop for Sent {
    fn drop(&mut self) {
        if !self.reply.is_terminated() {
            self.locks.engine.note_end(self.call.id);
            self.locks.engine.cancel(self.call.id);
            self.measurement.ends("dropped", || self.locks.engine.now());
            self.span.ends("dropped", || self.locks.engine.now());
        }
    }
}

impl Future for Acquisition {
    type Output = Result<Grant, LockError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let State::New(_) = &self.0
            && let State::New(wanted) = std::mem::replace(&mut self.0, State::Done)
        {
            self.0 = match wanted.begin()? {
                Begun::Sent(sent) => State::Sent(sent),
                Begun::Again(held) => return Poll::Ready(Ok(held)),
            };
        }
        let State::Sent(sent) = &mut self.0 else {
            return Poll::Pending; // polled again after it completed
        };
        let answer = Pin::new(&mut sent.reply).poll(cx);
        #[cfg(feature = "opentelemetry")]
        if answer.is_pending() {
            sent.span.waits(&sent.locks.engine, &sent.call.names);
        }
        let answer = ready!(answer);
        let engine = sent.locks.engine.clone();
        // An engine that has ended sends no reply.
        let answer = answer.unwrap_or_else(|_| Err(engine.ended().into()));
        // Before the recorder and the subscriber, which are user code and may panic.
        match &answer {
            Ok(ownership) => drop(sent.call.held.set(ownership.locks.clone())),
            Err(_) => engine.note_end(sent.call.id),
        }
        let refused = answer.as_ref().err().map(Box::as_ref);
        sent.measurement.waited(refused, || engine.now());
        sent.span.answered(refused, || engine.now());
        if let (Mode::Permits(of), Some(error)) = (sent.call.mode, refused) {
            sent.locks.orders.compare_permits(of, sent.call.function, error);
        }
        let (call, max_hold, min_hold) = (sent.call.id, sent.max_hold, sent.min_hold);
        self.0 = State::Done;
        let answer = answer.inspect_err(|error| tracing::debug!(error = chain(error), "refused"));
        let ownership = answer.map_err(|error| *error)?;
        let held = Grant::new(ownership.locks.clone(), Some(ownership), engine.clone(), max_hold);
        let OwnedLock { name, token, .. } = &held.locks.first;
        tracing::debug!(lock = %name, %token, "lock acquired");
        // Not earlier: a call that is dropped before this point has never held the lock.
        if let Some(time) = min_hold {
            engine.keep(call, engine.now() + time);
        }
        Poll::Ready(Ok(held))
    }
}
