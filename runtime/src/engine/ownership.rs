//! Ownership of the locks of one call, which are lost together (rule P13).
//!
//! Invariants:
//! - A loss is final: once [`OwnedLocks::lost`] has returned a cause, it always will.
//! - The clock decides, at the call, on the caller's thread. Reports from the engine can only add a loss (rule P28).
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
use super::runner::{Runner, submit};
use crate::clock::{Clock, Moment};
use crate::values::{LockError, LossCause, Name, Token};

/// Reply to a call. The error is boxed, because very many calls may wait, each with space for its reply.
pub(crate) type Answer = Result<Ownership, Box<LockError>>;

/// Channel on which the engine confirms a release.
pub(super) type Reply = oneshot::Sender<Result<(), LockError>>;

/// The locks of one call, with the right to release them. Dropping it releases them in the background.
#[derive(Debug)]
pub(crate) struct Ownership {
    /// Shared, because readers of the locks may outlive the right to release them.
    pub(crate) locks: Arc<OwnedLocks>,
    released: bool,
}

impl Ownership {
    pub(super) fn new(locks: Arc<OwnedLocks>) -> Self {
        Self { locks, released: false }
    }

    /// Releases the locks, once, if they belong to this process. The channel receives etcd's confirmation. `None` if no confirmation was
    /// requested, or the engine has ended.
    pub(super) fn release(
        &mut self,
        how: Release,
    ) -> Option<oneshot::Receiver<Result<(), LockError>>> {
        if mem::replace(&mut self.released, true) {
            return None;
        }
        self.locks.lose(LossCause::Released); // for those that still read them
        let own = self.locks.own.as_ref().filter(|own| own.home.process == process::id())?;
        let (reply, answer) = (how == Release::Confirmed).then(oneshot::channel).unzip();
        let fenced = own.fenced.load(Ordering::Relaxed);
        let release = Command::Release { call: own.call, how, fenced, reply };
        // Refused once the engine has ended: the keys left go with their lease.
        submit(&own.home.engine, Message::Command(release)).then_some(answer)?
    }
}

impl Drop for Ownership {
    fn drop(&mut self) {
        self.release(Release::Unconfirmed);
    }
}

/// The locks of one call, from the holder's view: names, tokens, deadline, loss.
#[derive(Debug)]
pub(crate) struct OwnedLocks {
    /// The first name's lock, which represents all where only one is reported.
    pub(crate) first: OwnedLock,
    pub(crate) others: Vec<OwnedLock>,
    /// When they were granted or found.
    pub(crate) since: Moment,
    /// The call's own session and keys; `None` for reused locks.
    own: Option<Own>,
    /// For reused locks (`reentrant`): the locks of outer calls, each once, at least one. They have their own keys.
    pub(crate) outer: Vec<Arc<OwnedLocks>>,
}

#[derive(Debug)]
struct Own {
    call: CallId,
    home: Arc<Home>,
    deadline: Arc<Deadline>,
    cause: OnceLock<LossCause>,
    /// A shutdown has cut the locks off, so a body that continued after a loss must end too.
    cut_off: AtomicBool,
    wake: Arc<Notify>,
    /// The caller has a fence on the keys, so they are not handed over (rule P22).
    fenced: AtomicBool,
}

/// State that all locks of an engine share.
#[derive(Debug)]
pub(super) struct Home {
    pub(super) engine: Weak<Runner>,
    /// Process of that engine. A process forked from it has nothing to release.
    pub(super) process: u32,
    pub(super) clock: Arc<dyn Clock>,
    /// True while credentials or certificates are refused, and so are renewals of leases.
    pub(super) denied: Arc<AtomicBool>,
}

/// One lock that the call holds.
#[derive(Debug, Clone)]
pub(crate) struct OwnedLock {
    pub(crate) name: Name,
    pub(crate) key: Key,
    pub(crate) created: Revision,
    pub(crate) token: Token,
    /// How the lock shares its name.
    pub(crate) mode: Mode,
}

impl OwnedLock {
    /// Returns how it was handed over, for metrics: by a call of this process, by another contender, or not at all. A key that was the
    /// oldest when it was put waited for no other (rule P21).
    pub(crate) fn handover(&self) -> Option<&'static str> {
        match self.token.handover() {
            0 => (self.token.revision() > self.created.get()).then_some("remote"),
            _ => Some("local"),
        }
    }

    /// Returns the name with its prefix.
    pub(crate) fn name_of_key(&self) -> &str {
        self.key.rsplit_once('/').map_or(&*self.key, |(name, _)| name)
    }

    /// Returns the lease of its key, in hexadecimal digits, as etcdctl shows it.
    pub(crate) fn lease(&self) -> Option<&str> {
        self.key.rsplit('/').next()?.split('.').next()
    }

    /// Returns true if it is the lock of this name (given with its prefix).
    pub(crate) fn is_of(&self, name: &Key) -> bool {
        self.name_of_key() == &**name
    }
}

impl OwnedLocks {
    /// Creates the locks of a call, granted at `since`.
    pub(super) fn new(
        call: CallId,
        (first, others): (OwnedLock, Vec<OwnedLock>),
        since: Moment,
        deadline: Arc<Deadline>,
        home: Arc<Home>,
    ) -> Self {
        let own = Some(Own {
            call,
            home,
            deadline,
            cause: OnceLock::new(),
            cut_off: AtomicBool::new(false),
            wake: Arc::new(Notify::new()),
            fenced: AtomicBool::new(false),
        });
        Self { first, others, since, own, outer: Vec::new() }
    }

    /// Combines locks that the task already holds, each with the locks of its call. `None` if there are none.
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
        Some(Self { first: locks.next()?, others: locks.collect(), since: now(), own: None, outer })
    }

    /// Returns the locks that own this lock's key: these, or those of outer calls.
    fn owners(self: &Arc<Self>, lock: &OwnedLock) -> impl Iterator<Item = &Arc<Self>> {
        let has = |own: &&Arc<Self>| own.own.is_some() && own.locks().any(|it| it.key == lock.key);
        std::iter::once(self).chain(&self.outer).filter(has)
    }

    /// Returns the sessions on which the locks depend: losing any of them ends the locks.
    fn grounds(&self) -> impl Iterator<Item = &Own> {
        self.own.iter().chain(self.outer.iter().filter_map(|outer| outer.own.as_ref()))
    }

    /// Returns the call that owns them; `None` if they belong to outer calls.
    pub(crate) fn call(&self) -> Option<CallId> {
        self.own.as_ref().map(|own| own.call)
    }

    /// Returns its locks, in the order of the call's names.
    pub(crate) fn locks(&self) -> impl Iterator<Item = &OwnedLock> {
        std::iter::once(&self.first).chain(&self.others)
    }

    /// Returns each name with its token, in the same order.
    pub(crate) fn tokens(&self) -> impl Iterator<Item = (&Name, Token)> {
        self.locks().map(|lock| (&lock.name, lock.token))
    }

    /// Reads the clock, and returns how the locks were lost, if they were.
    pub(crate) fn lost(&self) -> Option<LossCause> {
        self.grounds().find_map(Own::lost)
    }

    /// Reads the clock, and returns whether the locks are held.
    pub(crate) fn are_held(&self) -> bool {
        self.lost().is_none()
    }

    /// Reads the clock, and returns how long the locks are held if nothing renews them.
    pub(crate) fn remaining(&self) -> Duration {
        match self.are_held() {
            true => self.grounds().map(Own::remaining).min().unwrap_or_default(),
            false => Duration::ZERO,
        }
    }

    /// Returns true if a loss was recorded before the locks were released.
    pub(super) fn was_lost(&self) -> bool {
        self.grounds().any(|own| own.cause.get().is_some_and(|it| *it != LossCause::Released))
    }

    /// Returns true if a shutdown has cut them off: then nothing may run under the locks any more, lost or not.
    pub(crate) fn are_cut_off(&self) -> bool {
        self.grounds().any(|own| own.cut_off.load(Ordering::Acquire))
    }

    /// Records a loss and wakes the tasks that wait for it. Has no effect on the locks of an outer call.
    pub(crate) fn lose(&self, cause: LossCause) {
        self.own.iter().for_each(|own| own.lose(cause));
    }

    /// Records a loss; the first cause stays. Has no effect on locks of an outer call. True if [`wake`](Self::wake) must follow.
    pub(super) fn note_loss(&self, cause: LossCause) -> bool {
        self.own.as_ref().is_some_and(|own| own.note_loss(cause))
    }

    pub(super) fn wake(&self) {
        self.own.iter().for_each(|own| own.wake.notify_waiters());
    }

    /// Makes the keys be deleted with the body and never handed over.
    pub(crate) fn fence(&self) {
        self.grounds().for_each(|own| own.fenced.store(true, Ordering::Relaxed));
    }

    /// Returns a future that completes on a loss. Create it before reading the state, so that no loss is missed.
    pub(crate) fn wakeup(&self) -> Wakeup {
        let on = |own: &Own| Box::pin(Arc::clone(&own.wake).notified_owned());
        Wakeup(self.grounds().map(on).collect())
    }

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
    fn lost(&self) -> Option<LossCause> {
        if self.cause.get().is_none()
            && let Some(cause) = self.deadline.lost(self.home.clock.now())
        {
            self.lose(LossCause::of(cause));
        }
        self.cause.get().copied()
    }

    fn remaining(&self) -> Duration {
        self.deadline.stop().map_or(Duration::ZERO, |stop| stop - self.home.clock.now())
    }

    fn lose(&self, cause: LossCause) {
        if self.note_loss(cause) {
            self.wake.notify_waiters();
        }
    }

    fn note_loss(&self, cause: LossCause) -> bool {
        let cause = match cause {
            LossCause::Expired if self.home.denied.load(Ordering::Relaxed) => LossCause::Denied,
            cause => cause,
        };
        let first = self.cause.set(cause).is_ok();
        let ends = cause == LossCause::Shutdown && !self.cut_off.swap(true, Ordering::AcqRel);
        first || ends
    }
}

/// Wakes a task on a loss.
pub(crate) struct Wakeup(Vec<Pin<Box<OwnedNotified>>>);

impl Wakeup {
    /// Returns ready after a loss; otherwise a loss will wake the task.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut polled = Poll::Pending;
        for wake in &mut self.0 {
            if wake.as_mut().poll(cx).is_ready() {
                polled = Poll::Ready(());
            }
        }
        polled
    }
}
