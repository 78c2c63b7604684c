//! A lock that is held: what runs under it, and how it ends.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use etcd_client::{Compare, CompareOp};
use tokio::sync::oneshot;

use crate::core::{CallId, Release};
use crate::current::Current;
use crate::engine::Engine;
use crate::error::{LockError, LossCause};
use crate::limit::{Limit, Stopwatch};
use crate::meter::Meter;
use crate::name::Name;
use crate::tenure::{OwnedLock, Tenure, Wakeup};
use crate::token::Token;

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
    tenure: Arc<Tenure>,
    engine: Engine,
    call: CallId,
    /// Until when bodies may run under it.
    limit: Option<Limit>,
    released: bool,
    meter: Meter,
}

impl LockGuard {
    pub(crate) fn new(tenure: Arc<Tenure>, engine: Engine, call: CallId) -> Self {
        let meter = Meter::start(&tenure.first.name, || engine.now());
        Self {
            tenure,
            engine,
            call,
            limit: None,
            released: false,
            meter,
        }
    }

    /// What the task held already: it is not for this one to give back.
    pub(crate) fn again(tenure: Tenure, engine: Engine) -> Self {
        let meter = Meter::start(&tenure.first.name, || engine.now());
        Self {
            tenure: Arc::new(tenure),
            engine,
            call: CallId::MAX, // it is none: the engine is told of nothing
            limit: None,
            released: true,
            meter,
        }
    }

    /// From now on bodies have this long.
    pub(crate) fn limit(&mut self, limit: Duration) {
        self.limit = Some(Limit::from(self.engine.now(), limit));
    }

    /// Its names stay locked this long from now on, whenever it is released (rule P39).
    pub(crate) fn keep(&self, at_least: Duration) {
        self.engine.keep(self.call, self.engine.now() + at_least);
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
        let mut guard = Guard::new(self, OnLost::Cancel);
        std::future::poll_fn(|cx| guard.poll(body.as_mut(), cx)).await
    }

    /// Whether it belongs to a call around this one.
    pub(crate) fn is_again(&self) -> bool {
        !self.tenure.is_own()
    }

    /// The fencing token; of several names the first one's.
    #[must_use]
    pub fn token(&self) -> Token {
        self.tenure.first.token
    }

    /// Each name with its token, in the order in which the call names them, equal names once. Tokens of different names
    /// are not comparable.
    pub fn tokens(&self) -> impl Iterator<Item = (&Name, Token)> {
        self.tenure.tokens()
    }

    /// The name; of several the first.
    #[must_use]
    pub fn name(&self) -> &Name {
        &self.tenure.first.name
    }

    /// Whether the lock is still held: reads the clock, so it is true of now, even right after a pause of the process.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.tenure.lost().is_none()
    }

    /// Completes when the lock is lost, with the cause; never, if it is not. Cancel safe.
    pub async fn lost(&self) -> LossCause {
        self.tenure.until_lost().await
    }

    /// A condition for etcd transactions of your own: true only as long as this very ownership lasts, or, with
    /// [`at_least`](crate::Acquire::at_least), until that time is over: nobody else owns the lock before.
    ///
    /// Of a [`shared`](crate::Acquire::shared) lock it is true as long as anybody of this process shares it: it says that no
    /// writer has come, not that this reader is still there. Of several names it is about the first: they are lost together,
    /// unless somebody deletes one by hand.
    #[must_use]
    pub fn fence(&self) -> Compare {
        self.tenure.fence();
        let OwnedLock { key, created, .. } = &self.tenure.first;
        Compare::create_revision(key.as_bytes(), CompareOp::Equal, *created)
    }

    /// Releases the lock and waits until etcd has confirmed that, for two seconds at most; after that the engine goes on
    /// by itself.
    ///
    /// # Errors
    /// [`LockError::Lost`] if the lock had been lost before; [`LockError::Backend`] if etcd did not confirm in time. The
    /// lock is given up in any case. Where the lock was held by the task already
    /// ([`reentrant`](crate::Acquire::reentrant)) there is nothing to release. The work is done by then: no error to answer a
    /// request with, which a client may repeat.
    ///
    /// Cancel safe: the release goes on.
    pub async fn release(self) -> Result<(), LockError> {
        let lost = self.tenure.lost();
        let (name, again) = (self.tenure.first.name.clone(), self.is_again());
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

    /// Gives the lock back; what comes tells when its key is gone. `None`: the engine has ended, and with it all keys.
    pub(crate) fn begin_release(mut self) -> Option<oneshot::Receiver<Result<(), LockError>>> {
        self.give_back(Release::Confirmed)
    }

    /// Gives the lock back, to whoever calls for it here in the next moment.
    pub(crate) fn let_go(mut self) {
        self.give_back(Release::Lingering);
    }

    /// Hands the key to the engine, once.
    fn give_back(&mut self, how: Release) -> Option<oneshot::Receiver<Result<(), LockError>>> {
        if std::mem::replace(&mut self.released, true) {
            return None;
        }
        self.tenure.lose(LossCause::Released); // for whoever still looks at it
        let confirmation = self.engine.release(self.call, how, self.tenure.is_fenced());
        // Last: whoever records these is code of others, and may panic.
        self.meter.held(|| self.engine.now());
        tracing::debug!(lock = %self.tenure.first.name, "the lock is given back");
        confirmation
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        self.give_back(Release::Unheard);
    }
}

/// What runs under a lock: a future until it has ended, then nothing.
pub(crate) trait Body<T> {
    /// Polls it; pending for ever once it has ended.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T>;

    /// Drops it in place.
    fn end(self: Pin<&mut Self>);
}

impl<F: Future> Body<F::Output> for Option<F> {
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        match self.as_pin_mut() {
            Some(running) => running.poll(cx),
            None => Poll::Pending,
        }
    }

    fn end(mut self: Pin<&mut Self>) {
        self.set(None);
    }
}

/// What a loss does to the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnLost {
    /// It is dropped where it awaits.
    Cancel,
    /// It runs on, if it has begun. A shutdown ends it all the same: when its grace is over, or no other body is left.
    Continue,
}

/// Stands between a body and its polls: none at or after the loss of the lock (invariant I2), or the end of its limit.
#[derive(Debug)]
pub(crate) struct Guard {
    tenure: Arc<Tenure>,
    current: Current,
    wakeup: Wakeup,
    on_lost: OnLost,
    /// The body has been polled.
    begun: bool,
    stopwatch: Option<Stopwatch>,
}

impl Guard {
    pub(crate) fn new(held: &LockGuard, on_lost: OnLost) -> Self {
        let stopwatch = |limit| Stopwatch::new(limit, held.engine.clone());
        Self {
            tenure: held.tenure.clone(),
            current: Current::of(held.tenure.clone(), held.engine.clone(), held.call),
            wakeup: held.tenure.wakeup(),
            on_lost,
            begun: false,
            stopwatch: held.limit.map(stopwatch),
        }
    }

    /// Polls the body if the lock is held, and drops it in place once it is done, the lock is lost or its time is over.
    /// Compiled once for each type of answer, not for each body.
    pub(crate) fn poll<T>(
        &mut self,
        mut body: Pin<&mut (dyn Body<T> + '_)>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<T, LockError>> {
        let mut polled = Poll::Pending;
        let mut admitted = self.admit(cx);
        if admitted.is_ok() {
            self.current.within(&mut || polled = body.as_mut().poll(cx));
            if polled.is_pending() {
                admitted = self.admit_on(cx);
            }
        }
        let ended = match (polled, admitted) {
            (Poll::Ready(output), _) => Ok(output),
            (Poll::Pending, Err(error)) => Err(error),
            (Poll::Pending, Ok(())) => return Poll::Pending,
        };
        body.end();
        Poll::Ready(ended)
    }

    /// Whether the body may be polled now; if so, a loss will wake its task.
    #[inline(never)]
    fn admit(&mut self, cx: &mut Context<'_>) -> Result<(), LockError> {
        let begun = std::mem::replace(&mut self.begun, true);
        let continues = begun && self.on_lost == OnLost::Continue;
        // Registers first, looks second: a loss in between is seen by the look.
        if self.wakeup.poll(cx).is_ready() && continues {
            self.wakeup = self.tenure.wakeup(); // the end is still to come
            let _ = self.wakeup.poll(cx);
        }
        let lost_by = |cause| {
            Err(match cause {
                // Nothing is done: it may be done elsewhere.
                LossCause::Shutdown if !begun => LockError::ShuttingDown,
                cause => LockError::Lost {
                    name: self.tenure.first.name.clone(),
                    cause,
                },
            })
        };
        // The lock of a body around excludes only who is polled inside that body.
        if !self.current.is_inside_outer() {
            return lost_by(LossCause::Released);
        }
        match self.tenure.lost() {
            Some(cause) if !continues => lost_by(cause),
            Some(_) if self.tenure.has_ended() => lost_by(LossCause::Shutdown),
            _ if self.stopwatch.as_ref().is_some_and(Stopwatch::is_over) => Err(self.over()),
            _ => Ok(()),
        }
    }

    /// Whether the body, which is not done, may go on; if so, the end of its limit will wake its task.
    #[inline(never)]
    fn admit_on(&mut self, cx: &mut Context<'_>) -> Result<(), LockError> {
        let over = match &mut self.stopwatch {
            Some(stopwatch) => stopwatch.poll(cx).is_ready(),
            None => false,
        };
        if over { Err(self.over()) } else { Ok(()) }
    }

    fn over(&self) -> LockError {
        let name = self.tenure.first.name.clone();
        let limit = self
            .stopwatch
            .as_ref()
            .map(Stopwatch::given)
            .unwrap_or_default();
        tracing::warn!(lock = %name, ?limit, "a body has not ended within its hold limit: it is dropped");
        LockError::HoldLimit { name, limit }
    }
}
