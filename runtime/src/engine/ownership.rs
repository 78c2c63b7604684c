//! Ownership of the locks of one call, one lock or several, which are lost together (rule P13).
//!
//! Invariants:
//! - Lost is absorbing: once [`OwnedLocks::lost`] has answered a cause it always will.
//! - The clock decides it, at the call, on the caller's thread; what the engine reports only comes on top (rule P28).
//! - A granted lock always has an owner (invariant I4): an [`Ownership`] that is dropped, even unread in its channel, releases.

use std::future::{Future, poll_fn};
use std::mem;
use std::pin::Pin;
use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use etcd_locked_core::{CallId, Deadline, Key, Mode, Release, Revision};
use tokio::sync::futures::OwnedNotified;
use tokio::sync::{Notify, oneshot};

use super::driver::{Command, Message};
use super::runner::Runner;
use crate::clock::{Clock, Moment};
use crate::metrics::Predecessor;
use crate::values::error::LockError;
use crate::values::loss::LossCause;
use crate::values::name::Name;
use crate::values::token::Token;

/// What a call gets. An error is boxed, because very many calls may wait, each with room for its answer.
pub(crate) type Answer = Result<Ownership, Box<LockError>>;

/// Where the engine confirms a release.
pub(super) type Reply = oneshot::Sender<Result<(), LockError>>;

/// The locks of one call, with the right to release them. Dropped, it releases them in the background.
#[derive(Debug)]
pub(crate) struct Ownership {
    locks: Arc<OwnedLocks>,
    released: bool,
}

impl Ownership {
    pub(super) fn new(locks: Arc<OwnedLocks>) -> Self {
        Self { locks, released: false }
    }

    /// The locks, which outlive the right to release them in the hands of those who only read them.
    pub(crate) fn locks(&self) -> &Arc<OwnedLocks> {
        &self.locks
    }

    /// Releases the locks, which are this process's; the answer comes once etcd has confirmed that. `None`: no confirmation was asked
    /// for, or the engine has ended.
    pub(super) fn release(
        mut self,
        how: Release,
    ) -> Option<oneshot::Receiver<Result<(), LockError>>> {
        self.submit(how, true)
    }

    /// Once. `here`: they are this process's to release.
    fn submit(
        &mut self,
        how: Release,
        here: bool,
    ) -> Option<oneshot::Receiver<Result<(), LockError>>> {
        if mem::replace(&mut self.released, true) {
            return None;
        }
        self.locks.lose(LossCause::Released); // for those who still read them
        here.then_some(())?;
        let Ground::Own(own) = &self.locks.ground else {
            return None;
        };
        let engine = own.engine.upgrade()?;
        let (reply, answer) = (how == Release::Confirmed).then(oneshot::channel).unzip();
        let fenced = self.locks.is_fenced();
        let release = Command::Release { call: own.call, how, fenced, reply };
        // Refused once the engine has ended: keys that are left go with their lease.
        engine.submit(Message::Command(release)).then_some(answer)?
    }
}

impl Drop for Ownership {
    fn drop(&mut self) {
        if !self.released {
            let here = self.locks.are_of(process::id());
            self.submit(Release::Unconfirmed, here);
        }
    }
}

/// The locks of one call, as their holder sees them: names, tokens, deadline, loss.
#[derive(Debug)]
pub(crate) struct OwnedLocks {
    /// The first of its names, which stands for all where one is reported.
    pub(crate) first: OwnedLock,
    /// The others, in the order of the call.
    pub(crate) others: Vec<OwnedLock>,
    /// When they were granted, or found.
    pub(crate) since: Moment,
    ground: Ground,
}

/// What the locks rest on.
#[derive(Debug)]
enum Ground {
    /// A session, and keys of its own.
    Own(Own),
    /// The locks of calls around this one, which the task held already (`reentrant`): each once, at least one.
    Outer(Vec<Arc<OwnedLocks>>),
}

#[derive(Debug)]
struct Own {
    call: CallId,
    engine: Weak<Runner>,
    /// The process whose engine that is. One that was forked from it has nothing to release.
    process: u32,
    deadline: Arc<Deadline>,
    clock: Arc<dyn Clock>,
    /// Credentials or certificates are refused now, and so are renewals of leases.
    denied: Arc<AtomicBool>,
    cause: OnceLock<LossCause>,
    /// A key is gone; the cause follows.
    stopped: AtomicBool,
    /// A shutdown has cut the locks off, so a body that goes on without its lock must end too.
    cut_off: AtomicBool,
    wake: Arc<Notify>,
    /// The caller has a fence on the keys, so they are not handed over (rule P22).
    fenced: AtomicBool,
}

/// One lock that the call holds.
#[derive(Debug, Clone)]
pub(crate) struct OwnedLock {
    pub(crate) name: Name,
    pub(crate) key: Key,
    pub(crate) created: Revision,
    pub(crate) token: Token,
    /// With whom the lock is held.
    pub(crate) mode: Mode,
}

impl OwnedLock {
    /// Whose it was before: a key that was the oldest when it was put waited for no other (rule P21).
    pub(crate) fn predecessor(&self) -> Predecessor {
        match self.token.handover() {
            0 if self.token.revision() > self.created.get() => Predecessor::Elsewhere,
            0 => Predecessor::None,
            _ => Predecessor::Here,
        }
    }

    /// The name with its prefix.
    #[cfg(feature = "sqlx")]
    pub(crate) fn name_of_key(&self) -> &str {
        let name = self.key.rsplit_once('/');
        name.map_or(&*self.key, |(name, _)| name)
    }

    /// The lease that its key hangs on, in hexadecimal digits, as etcdctl shows it.
    pub(crate) fn lease(&self) -> Option<&str> {
        let child = self.key.rsplit('/').next()?;
        child.split('.').next()
    }

    /// Tells whether it is the lock of this name, given with its prefix.
    pub(crate) fn is_of(&self, name: &Key) -> bool {
        let own = self.key.rsplit_once('/');
        own.is_some_and(|(own, _lease)| own == &**name)
    }
}

impl OwnedLocks {
    /// Makes those that a call was granted: by the engine of this process, and when.
    pub(super) fn new(
        call: CallId,
        (first, others): (OwnedLock, Vec<OwnedLock>),
        deadline: Arc<Deadline>,
        clock: Arc<dyn Clock>,
        denied: Arc<AtomicBool>,
        engine: Weak<Runner>,
        (process, since): (u32, Moment),
    ) -> Self {
        let ground = Ground::Own(Own {
            call,
            engine,
            process,
            deadline,
            clock,
            denied,
            cause: OnceLock::new(),
            stopped: AtomicBool::new(false),
            cut_off: AtomicBool::new(false),
            wake: Arc::new(Notify::new()),
            fenced: AtomicBool::new(false),
        });
        Self { first, others, since, ground }
    }

    /// Makes one of locks that the task holds already, each with those it was found among. `None` if there are none.
    pub(crate) fn again(
        now: impl FnOnce() -> Moment,
        found: Vec<(OwnedLock, Arc<Self>)>,
    ) -> Option<Self> {
        let mut outer: Vec<Arc<Self>> = Vec::new();
        for (lock, among) in &found {
            for own in among.owners(lock) {
                if !outer.iter().any(|other| Arc::ptr_eq(other, own)) {
                    outer.push(own.clone());
                }
            }
        }
        let mut locks = found.into_iter().map(|(lock, _)| lock);
        Some(Self {
            first: locks.next()?,
            others: locks.collect(),
            since: now(),
            ground: Ground::Outer(outer),
        })
    }

    /// Returns the locks that own this lock's key: these, or those of the calls around.
    fn owners<'a>(self: &'a Arc<Self>, lock: &OwnedLock) -> Vec<&'a Arc<Self>> {
        match &self.ground {
            Ground::Own(_) => vec![self],
            Ground::Outer(outer) => {
                let has = |own: &&Arc<Self>| own.locks().any(|it| it.key == lock.key);
                outer.iter().filter(has).collect()
            }
        }
    }

    /// Whether that process has taken them.
    fn are_of(&self, process: u32) -> bool {
        matches!(&self.ground, Ground::Own(own) if own.process == process)
    }

    /// The call that has them; `None` if they belong to calls around it.
    pub(crate) fn call(&self) -> Option<CallId> {
        match &self.ground {
            Ground::Own(own) => Some(own.call),
            Ground::Outer(_) => None,
        }
    }

    /// Its locks, in the order of the call's names.
    pub(crate) fn locks(&self) -> impl Iterator<Item = &OwnedLock> {
        std::iter::once(&self.first).chain(&self.others)
    }

    /// Each name with its token, in the same order.
    pub(crate) fn tokens(&self) -> impl Iterator<Item = (&Name, Token)> {
        self.locks().map(|lock| (&lock.name, lock.token))
    }

    /// Reads the clock; answers how the locks were lost, if that is known: the cause may follow their end by a renewal's time.
    pub(crate) fn lost(&self) -> Option<LossCause> {
        let own = match &self.ground {
            Ground::Own(own) => own,
            Ground::Outer(outer) => return outer.iter().find_map(|outer| outer.lost()),
        };
        // The clock decides for stopped locks too: what stands still may be the engine that was to say the cause.
        if own.cause.get().is_none()
            && let Some(cause) = own.deadline.lost(own.clock.now())
        {
            self.lose(cause.into());
        }
        own.cause.get().copied()
    }

    /// Reads the clock; tells whether the locks are held.
    pub(crate) fn are_held(&self) -> bool {
        self.lost().is_none() && !self.are_stopped()
    }

    /// Reads the clock; answers how long the locks are held if nothing renews them.
    pub(crate) fn remaining(&self) -> Duration {
        if !self.are_held() {
            return Duration::ZERO;
        }
        match &self.ground {
            Ground::Own(own) => {
                let stop = own.deadline.stop();
                stop.map_or(Duration::ZERO, |stop| stop - own.clock.now())
            }
            Ground::Outer(outer) => {
                let each = outer.iter().map(|outer| outer.remaining());
                each.min().unwrap_or_default()
            }
        }
    }

    /// Tells whether a key is known to be gone, whether or not its cause is. Does not read the clock, as `are_held` does.
    pub(crate) fn are_stopped(&self) -> bool {
        match &self.ground {
            Ground::Own(own) => own.is_stopped(),
            Ground::Outer(outer) => outer.iter().any(|outer| outer.are_stopped()),
        }
    }

    /// Notes that a key is gone: no poll from now on. The cause follows.
    pub(super) fn stop(&self) {
        if let Ground::Own(own) = &self.ground {
            own.stopped.store(true, Ordering::Release);
        }
    }

    /// Whether a loss was noted before the locks were given back.
    pub(super) fn was_lost(&self) -> bool {
        match &self.ground {
            Ground::Own(own) => own.cause.get().is_some_and(|it| *it != LossCause::Released),
            Ground::Outer(outer) => outer.iter().any(|outer| outer.was_lost()),
        }
    }

    /// Tells whether a shutdown has cut them off: then nothing may run under the locks any more, lost or not.
    pub(crate) fn are_cut_off(&self) -> bool {
        match &self.ground {
            Ground::Own(own) => own.cut_off.load(Ordering::Acquire),
            Ground::Outer(outer) => outer.iter().any(|outer| outer.are_cut_off()),
        }
    }

    /// The locks of the calls around that it rests on; none, if it has keys of its own.
    pub(crate) fn outer(&self) -> &[Arc<Self>] {
        match &self.ground {
            Ground::Own(_) => &[],
            Ground::Outer(outer) => outer,
        }
    }

    /// Notes a loss and wakes the tasks that wait for it.
    pub(crate) fn lose(&self, cause: LossCause) {
        if self.note_loss(cause) {
            self.wake();
        }
    }

    /// Notes a loss; the first cause stands. Locks of a call around are not lost here. True if [`wake`](Self::wake) must follow.
    pub(super) fn note_loss(&self, cause: LossCause) -> bool {
        match &self.ground {
            Ground::Own(own) => own.note_loss(cause),
            Ground::Outer(_) => false,
        }
    }

    /// Wakes the tasks that wait for a loss.
    pub(super) fn wake(&self) {
        if let Ground::Own(own) = &self.ground {
            own.wake.notify_waiters();
        }
    }

    /// Has the keys deleted with the body, never handed over.
    pub(crate) fn fence(&self) {
        match &self.ground {
            Ground::Own(own) => own.fenced.store(true, Ordering::Relaxed),
            Ground::Outer(outer) => outer.iter().for_each(|outer| outer.fence()),
        }
    }

    /// Tells whether the keys are to be deleted with the body.
    pub(crate) fn is_fenced(&self) -> bool {
        match &self.ground {
            Ground::Own(own) => own.fenced.load(Ordering::Relaxed),
            Ground::Outer(_) => false, // the calls around decide
        }
    }

    /// Completes on a loss. Made before the state is read, so that no loss is missed.
    pub(crate) fn wakeup(&self) -> Wakeup {
        let on = |own: &Own| Box::pin(own.wake.clone().notified_owned());
        match &self.ground {
            Ground::Own(own) => Wakeup { first: Some(on(own)), others: Vec::new() },
            Ground::Outer(outer) => {
                Wakeup { first: None, others: outer.iter().map(|outer| outer.wakeup()).collect() }
            }
        }
    }

    /// Waits for the loss.
    pub(crate) async fn until_lost(&self) -> LossCause {
        loop {
            let mut wakeup = self.wakeup();
            if let Some(cause) = self.lost() {
                return cause;
            }
            poll_fn(|cx| wakeup.poll(cx)).await;
        }
    }
}

impl Own {
    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    fn note_loss(&self, cause: LossCause) -> bool {
        let cause = match cause {
            LossCause::Expired if self.denied.load(Ordering::Relaxed) => LossCause::Denied,
            cause => cause,
        };
        let first = self.cause.set(cause).is_ok();
        let ends = cause == LossCause::Shutdown && !self.cut_off.swap(true, Ordering::AcqRel);
        first || ends
    }
}

/// Wakes a task on a loss.
#[derive(Debug)]
pub(crate) struct Wakeup {
    first: Option<Pin<Box<OwnedNotified>>>,
    /// Those of the calls around.
    others: Vec<Wakeup>,
}

impl Wakeup {
    /// Ready after a loss; else a loss will wake the task.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut polled = match &mut self.first {
            Some(first) => first.as_mut().poll(cx),
            None => Poll::Pending,
        };
        for other in &mut self.others {
            if other.poll(cx).is_ready() {
                polled = Poll::Ready(());
            }
        }
        polled
    }
}
