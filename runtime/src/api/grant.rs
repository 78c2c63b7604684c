//! Grant: the locks of a call with the right to release them, whatever its names. Not generic, so it is compiled once.

use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::oneshot;

use super::current::Current;
use super::gate::{Gate, OnLost, Stopwatch};
use super::span;
use crate::clock::Moment;
use crate::engine::{Engine, OwnedLocks, Ownership, Release};
use crate::metrics::Measurement;
use crate::values::error::LockError;
use crate::values::loss::LossCause;

/// Locks that a call was granted. Dropped, they are released in the background.
#[derive(Debug)]
pub(crate) struct Grant {
    pub(crate) locks: Arc<OwnedLocks>,
    /// The right to release the locks; `None` if they belong to a call around this one, or have been released.
    ownership: Option<Ownership>,
    engine: Engine,
    /// Until when bodies may run under the locks, and how long that is.
    limit: Option<(Moment, Duration)>,
    /// Of locks that are its own to release.
    measurement: Option<Measurement>,
}

impl Grant {
    pub(crate) fn new(ownership: Ownership, engine: Engine) -> Self {
        Self::of(ownership.locks.clone(), Some(ownership), engine)
    }

    /// Locks that the task holds already, which are not for this grant to release.
    pub(crate) fn again(locks: OwnedLocks, engine: Engine) -> Self {
        Self::of(Arc::new(locks), None, engine)
    }

    fn of(locks: Arc<OwnedLocks>, ownership: Option<Ownership>, engine: Engine) -> Self {
        let mut grant = Self { locks, ownership, engine, limit: None, measurement: None };
        // Last: a recorder is the user's code, and may panic.
        if grant.ownership.is_some() {
            let OwnedLocks { first, since, .. } = &*grant.locks;
            let measurement = Measurement::holds(&first.name, *since, first.handover());
            grant.measurement = Some(measurement);
        }
        grant
    }

    /// Limits bodies to this long from now on.
    pub(crate) fn limited(mut self, limit: Option<Duration>) -> Self {
        self.limit = limit.map(|limit| (self.engine.now() + limit, limit));
        self
    }

    /// Keeps the names locked this long from now on, whenever they are released (rule P39).
    pub(crate) fn keep(&self, at_least: Duration) {
        if let Some(call) = self.locks.call() {
            self.engine.keep(call, self.engine.now() + at_least);
        }
    }

    pub(crate) fn gate(&self, on_lost: OnLost) -> Gate {
        let current = Current::of(self.locks.clone(), self.engine.clone());
        let span = span::held(&self.locks, &self.engine);
        Gate::new(current, self.stopwatch(), on_lost, span)
    }

    fn stopwatch(&self) -> Option<Stopwatch> {
        let (over, limit) = self.limit?;
        Some(Stopwatch { engine: self.engine.clone(), over, limit, alarm: None })
    }

    /// Completes when the locks are lost, or when bodies may run no longer.
    pub(crate) async fn until_lost(&self) -> LossCause {
        let mut lost = pin!(self.locks.until_lost());
        let mut stopwatch = self.stopwatch();
        poll_fn(|cx| match (lost.as_mut().poll(cx), &mut stopwatch) {
            (Poll::Pending, Some(limit)) => limit.poll(cx).map(|()| LossCause::HoldLimit),
            (polled, _) => polled,
        })
        .await
    }

    /// Tells whether the locks belong to a call around this one.
    pub(crate) fn is_again(&self) -> bool {
        self.locks.call().is_none()
    }

    /// Releases the locks and waits for the confirmation; see [`LockGuard::release`](crate::LockGuard::release).
    pub(crate) async fn release(mut self) -> Result<(), LockError> {
        let lost = self.locks.lost();
        let (name, again) = (self.locks.first.name.clone(), self.is_again());
        let confirmation = self.give_back(Release::Confirmed);
        match (lost, confirmation) {
            (Some(cause), _) => Err(LockError::Lost { name, cause }),
            (None, None) if again => Ok(()),
            (None, Some(confirmation)) => {
                confirmation.await.unwrap_or(Err(LockError::ShuttingDown))
            }
            (None, None) => Err(LockError::ShuttingDown),
        }
    }

    /// Releases the locks, once; the answer comes once their keys are gone. `None`: there is nothing to wait for, as no confirmation was asked
    /// for, the engine has ended, or the locks are those of a call around, or of another process.
    pub(crate) fn give_back(
        &mut self,
        how: Release,
    ) -> Option<oneshot::Receiver<Result<(), LockError>>> {
        let confirmation = self.engine.give_back(self.ownership.take()?, how);
        // Last: a recorder or a subscriber is the user's code, and may panic.
        if let Some(measurement) = &self.measurement {
            measurement.held(|| self.engine.now());
        }
        tracing::debug!(lock = %self.locks.first.name, "the lock is given back");
        confirmation
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        self.give_back(Release::Unconfirmed);
    }
}
