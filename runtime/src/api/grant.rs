//! Grant: the locks of a call, with the right to release them. Not generic over names, so it is compiled once.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::oneshot;

use super::{Current, Gate, OnLost, Stopwatch, span};
use crate::clock::Moment;
use crate::engine::{Engine, OwnedLocks, Ownership, Release};
use crate::metrics::Measurement;
use crate::values::{LockError, LossCause};

/// Locks that were granted to a call. Dropping them releases them in the background.
#[derive(Debug)]
pub(crate) struct Grant {
    pub(crate) locks: Arc<OwnedLocks>,
    /// The right to release the locks; `None` if they belong to an outer call, or have been released.
    ownership: Option<Ownership>,
    engine: Engine,
    /// Hold limit: when it is over, and its length.
    limit: Option<(Moment, Duration)>,
    /// `None` if the locks belong to an outer call.
    measurement: Option<Measurement>,
}

impl Grant {
    /// Creates a grant whose bodies may run for `max_hold` from now.
    pub(crate) fn new(
        locks: Arc<OwnedLocks>,
        ownership: Option<Ownership>,
        engine: Engine,
        max_hold: Option<Duration>,
    ) -> Self {
        let limit = max_hold.map(|limit| (engine.now() + limit, limit));
        let mut grant = Self { locks, ownership, engine, limit, measurement: None };
        // Last, because a recorder is user code and may panic.
        if grant.ownership.is_some() {
            let OwnedLocks { first, since, .. } = &*grant.locks;
            let measurement = Measurement::holds(&first.name, *since, first.handover());
            grant.measurement = Some(measurement);
        }
        grant
    }

    pub(crate) fn gate(&self, on_lost: OnLost) -> Gate {
        Gate {
            current: Current::of(self.locks.clone(), self.engine.clone()),
            wakeup: self.locks.wakeup(),
            on_lost,
            begun: false,
            stopwatch: self.stopwatch(),
            span: span::held(&self.locks, &self.engine),
        }
    }

    fn stopwatch(&self) -> Option<Stopwatch> {
        let (over, limit) = self.limit?;
        Some(Stopwatch { engine: self.engine.clone(), over, limit, alarm: None })
    }

    /// Waits until the locks are lost or the hold limit is over, and returns the cause.
    pub(crate) async fn until_lost(&self) -> LossCause {
        let mut lost = pin!(self.locks.until_lost());
        let mut stopwatch = self.stopwatch();
        poll_fn(|cx| match (lost.as_mut().poll(cx), &mut stopwatch) {
            (Poll::Pending, Some(limit)) => limit.poll(cx).map(|()| LossCause::HoldLimit),
            (polled, _) => polled,
        })
        .await
    }

    /// Returns true if the locks belong to an outer call.
    pub(crate) fn is_again(&self) -> bool {
        self.locks.call().is_none()
    }

    /// Releases the locks and waits for the confirmation; see [`LockGuard::release`](crate::LockGuard::release).
    pub(crate) async fn release(mut self) -> Result<(), LockError> {
        let lost = self.locks.lost();
        let confirmation = self.give_back(Release::Confirmed);
        if let Some(cause) = lost {
            return Err(LockError::Lost { name: self.locks.first.name.clone(), cause });
        }
        match confirmation {
            Some(confirmation) => confirmation.await.unwrap_or_else(|_| Err(self.engine.ended())),
            None if self.is_again() => Ok(()),
            None => Err(self.engine.ended()),
        }
    }

    /// Releases the locks, once. The channel receives the result when their keys are gone. `None` means that there is nothing to wait
    /// for: no confirmation was requested, the engine has ended, or the locks belong to an outer call or another process.
    pub(crate) fn give_back(
        &mut self,
        how: Release,
    ) -> Option<oneshot::Receiver<Result<(), LockError>>> {
        let confirmation = self.engine.give_back(self.ownership.take()?, how);
        // Last, because a recorder or a subscriber is user code and may panic.
        if let Some(measurement) = &self.measurement {
            measurement.held(|| self.engine.now());
        }
        tracing::debug!(lock = %self.locks.first.name, "lock released");
        confirmation
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        self.give_back(Release::Unconfirmed);
    }
}
