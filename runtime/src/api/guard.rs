//! Guard of a lock that is held: what runs under it, and how it ends.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use etcd_client::{Compare, CompareOp};
use tokio::sync::oneshot;

use super::current::Current;
use super::gate::{Gate, OnLost};
use super::limit::Limit;
use super::span;
use crate::engine::{Engine, OwnedLock, OwnedLocks, Ownership, Release};
use crate::metrics::Measurement;
use crate::values::error::LockError;
use crate::values::loss::LossCause;
use crate::values::name::Name;
use crate::values::token::Token;

/// A lock that was taken; or several, by one call, which are lost and released together.
///
/// Run what it protects with [`hold`](Self::hold), which stops when the lock is lost. Dropped, it is released in the
/// background; [`release`](Self::release) waits until etcd has confirmed that.
///
/// ```no_run
/// # async fn example() -> Result<(), etcd_locked::LockError> {
/// let held = etcd_locked::lock("reports/today").await?;
/// held.hold(async { /* … */ }).await?;
/// held.release().await?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "dropped, it is released"]
pub struct LockGuard {
    locks: Arc<OwnedLocks>,
    /// The right to release the locks; `None` if they belong to a call around this one, or have been released.
    ownership: Option<Ownership>,
    engine: Engine,
    /// Until when bodies may run under the locks.
    limit: Option<Limit>,
    /// Of locks that are its own to release.
    measurement: Option<Measurement>,
}

impl LockGuard {
    /// The guard of what the engine has granted.
    pub(crate) fn new(ownership: Ownership, engine: Engine) -> Self {
        Self::of(ownership.locks().clone(), Some(ownership), engine)
    }

    /// The guard of locks that the task holds already, which are not for this one to release.
    pub(crate) fn again(locks: OwnedLocks, engine: Engine) -> Self {
        Self::of(Arc::new(locks), None, engine)
    }

    fn of(locks: Arc<OwnedLocks>, ownership: Option<Ownership>, engine: Engine) -> Self {
        let mut guard = Self {
            locks,
            ownership,
            engine,
            limit: None,
            measurement: None,
        };
        // Last: a recorder is the user's code, and may panic.
        if guard.ownership.is_some() {
            let OwnedLocks { first, since, .. } = &*guard.locks;
            let measurement = Measurement::holds(&first.name, *since, first.predecessor());
            guard.measurement = Some(measurement);
        }
        guard
    }

    /// Limits bodies to this long from now on.
    pub(crate) fn limit(&mut self, limit: Duration) {
        self.limit = Some(Limit::from(self.engine.now(), limit));
    }

    /// Keeps the names locked this long from now on, whenever they are released (rule P39).
    pub(crate) fn keep(&self, at_least: Duration) {
        if let Some(call) = self.locks.call() {
            self.engine.keep(call, self.engine.now() + at_least);
        }
    }

    /// Runs a future under the lock; if the lock is lost it is dropped and the answer is [`LockError::Lost`]. Does not
    /// release.
    ///
    /// # Errors
    /// [`LockError::Lost`], or [`LockError::ShuttingDown`] if the grace of a shutdown was over before the future had begun;
    /// [`LockError::HoldLimit`] where [`at_most`](crate::Acquire::at_most) was given and has passed.
    ///
    /// Cancel safe as far as `future` is.
    pub async fn hold<F: Future>(&self, future: F) -> Result<F::Output, LockError> {
        let mut body = pin!(Some(future));
        let mut gate = self.gate(OnLost::Cancel);
        std::future::poll_fn(|cx| gate.poll(body.as_mut(), cx)).await
    }

    /// The gate between a body and its polls.
    pub(crate) fn gate(&self, on_lost: OnLost) -> Gate {
        let current = Current::of(self.locks.clone(), self.engine.clone());
        let stopwatch = self.limit.map(|limit| limit.stopwatch(self.engine.clone()));
        let span = span::held(&self.locks, &self.engine);
        Gate::new(self.locks.clone(), current, stopwatch, on_lost, span)
    }

    /// Tells whether the locks belong to a call around this one.
    pub(crate) fn is_again(&self) -> bool {
        self.locks.call().is_none()
    }

    /// The fencing token; of several names the first one's.
    #[must_use]
    pub fn token(&self) -> Token {
        self.locks.first.token
    }

    /// Each name with its token, in the order in which the call names them, equal names once. Tokens of different names
    /// are not comparable.
    pub fn tokens(&self) -> impl Iterator<Item = (&Name, Token)> {
        self.locks.tokens()
    }

    /// The name; of several the first.
    #[must_use]
    pub fn name(&self) -> &Name {
        &self.locks.first.name
    }

    /// Whether the lock is still held: reads the clock, so it is true of now, even right after a pause of the process.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.locks.are_held()
    }

    /// How long the lock is held from now on even if etcd cannot be reached again: reads the clock. Zero once it is lost or shut down.
    ///
    /// At about each third of the TTL a renewal moves the end on. An operator may take the lock away before: see
    /// [`lost`](Self::lost). For a watchdog outside the runtime, such as another process; bodies are dropped in time anyway. A
    /// point in time is a reading of `CLOCK_BOOTTIME` taken *before* this call, plus the answer: so a pause in between
    /// makes it too early, never too late.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.locks.remaining()
    }

    /// Completes when the lock is lost, with the cause; never, if it is not. Cancel safe.
    pub async fn lost(&self) -> LossCause {
        self.locks.until_lost().await
    }

    /// A condition for etcd transactions of your own: true only as long as this very ownership lasts, or, with
    /// [`at_least`](crate::Acquire::at_least), until that time is over: no other call owns the lock before.
    ///
    /// Of a [`shared`](crate::Acquire::shared) lock it is true as long as any call of this process shares it: it says that no
    /// writer has come, not that this reader is still there. Of several names it covers the first: they are lost together,
    /// unless an operator deletes one by hand.
    #[must_use]
    pub fn fence(&self) -> Compare {
        self.locks.fence();
        let OwnedLock { key, created, .. } = &self.locks.first;
        Compare::create_revision(key.as_bytes(), CompareOp::Equal, created.get())
    }

    /// Releases the lock and waits until etcd has confirmed that, for two seconds at most; after that the engine goes on
    /// by itself. If the lock's key has just been deleted, it first waits for a renewal, or two, to show the cause of the loss:
    /// four seconds at most.
    ///
    /// # Errors
    /// [`LockError::Lost`] if the lock had been lost before; [`LockError::Backend`] if etcd did not confirm in time. The
    /// lock is given up in any case. Where the lock was held by the task already
    /// ([`reentrant`](crate::Acquire::reentrant)) there is nothing to release. The work is done by then: no error to answer a
    /// request with, which a client may repeat.
    ///
    /// Cancel safe: the release goes on.
    pub async fn release(self) -> Result<(), LockError> {
        let lost = match self.locks.are_held() {
            true => None,
            false => Some(self.locks.until_lost().await),
        };
        let (name, again) = (self.locks.first.name.clone(), self.is_again());
        let confirmation = self.begin_release();
        match (lost, confirmation) {
            (Some(cause), _) => Err(LockError::Lost { name, cause }),
            (None, None) if again => Ok(()),
            (None, Some(confirmation)) => {
                confirmation.await.unwrap_or(Err(LockError::ShuttingDown))
            }
            (None, None) => Err(LockError::ShuttingDown),
        }
    }

    /// Releases the lock; the answer comes once its key is gone. `None`: the engine has ended, and with it all keys.
    pub(crate) fn begin_release(mut self) -> Option<oneshot::Receiver<Result<(), LockError>>> {
        self.give_back(Release::Confirmed)
    }

    /// Releases the lock, which lingers a moment for the next call of this process.
    pub(crate) fn linger(mut self) {
        self.give_back(Release::Lingering);
    }

    /// Releases the locks, once.
    fn give_back(&mut self, how: Release) -> Option<oneshot::Receiver<Result<(), LockError>>> {
        let ownership = self.ownership.take()?;
        if let Some(call) = self.locks.call() {
            self.engine.note_end(call);
        }
        let confirmation = ownership.release(how);
        // Last: a recorder or a subscriber is the user's code, and may panic.
        if let Some(measurement) = &self.measurement {
            measurement.held(|| self.engine.now());
        }
        tracing::debug!(lock = %self.locks.first.name, "the lock is given back");
        confirmation
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        self.give_back(Release::Unconfirmed);
    }
}
