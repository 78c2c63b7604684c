//! Gate in front of a body: decides before each poll, by the clock, whether the body may run.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project_lite::pin_project;
use tokio::task::JoinHandle;
use tracing::Span;

use super::{Current, span};
use crate::clock::Moment;
use crate::engine::{Engine, Wakeup};
use crate::values::{LockError, LossCause};

pub(crate) trait Body<T> {
    /// Polls the body. After its end, takes the stored output; stays pending if there is none.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T>;

    /// Drops the body in place, and stores an output in its space until the lock is released.
    fn end(self: Pin<&mut Self>, output: Option<T>);
}

pin_project! {
    /// A body, and after its end its output in the same space.
    #[project = Projected]
    pub(crate) enum Slot<F: Future> {
        Body { #[pin] body: F },
        Output { output: Option<F::Output> },
    }
}

impl<F: Future> Body<F::Output> for Slot<F> {
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        match self.project() {
            Projected::Body { body } => body.poll(cx),
            Projected::Output { output } => output.take().map_or(Poll::Pending, Poll::Ready),
        }
    }

    fn end(mut self: Pin<&mut Self>, output: Option<F::Output>) {
        self.set(Self::Output { output });
    }
}

/// Effect of a loss on the body.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnLost {
    /// The body is dropped where it awaits.
    Cancel,
    /// A body that has begun continues. A shutdown still ends it: when its grace is over, or no other body is left.
    Continue,
}

/// Hold limit of one body, or of a future that waits for a loss. Wakes the task when the limit is over.
pub(crate) struct Stopwatch {
    pub(crate) engine: Engine,
    pub(crate) over: Moment,
    pub(crate) limit: Duration,
    /// Timer on the engine's thread, because a body may run on an executor without timers.
    pub(crate) alarm: Option<JoinHandle<()>>,
}

impl Stopwatch {
    fn is_over(&self) -> bool {
        self.engine.now() >= self.over
    }

    /// Returns ready once the limit is over; otherwise wakes the task at that time.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.is_over() {
            return Poll::Ready(());
        }
        let alarm = self.alarm.get_or_insert_with(|| self.engine.alarm(self.over));
        let rung = ready!(Pin::new(alarm).poll(cx));
        self.alarm = None;
        // An error means that the engine has ended, and the lock with it.
        rung.map_or(Poll::Pending, Poll::Ready)
    }
}

impl Drop for Stopwatch {
    fn drop(&mut self) {
        if let Some(alarm) = &self.alarm {
            alarm.abort();
        }
    }
}

/// Gate in front of a body: admits no poll at or after the loss of the lock (invariant I2), or the end of its hold limit.
pub(crate) struct Gate {
    pub(super) current: Current,
    pub(super) wakeup: Wakeup,
    pub(super) on_lost: OnLost,
    pub(super) begun: bool,
    pub(super) stopwatch: Option<Stopwatch>,
    /// Entered while the body is polled or dropped.
    pub(super) span: Span,
}

impl Gate {
    /// Polls the body if the lock is held. Drops it in place once it is done, the lock is lost or its limit is over. Compiled once for
    /// each output type, not for each body.
    pub(crate) fn poll<T>(
        &mut self,
        mut body: Pin<&mut (dyn Body<T> + '_)>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<T, LockError>> {
        let mut polled = Poll::Pending;
        let mut admitted = self.admit(cx);
        if admitted.is_ok() {
            self.begun = true;
            let mut poll = || polled = body.as_mut().poll(cx);
            self.span.in_scope(|| self.current.within(&mut poll));
            if polled.is_pending() {
                admitted = self.admit_on(cx);
            }
        }
        let ended = match (polled, admitted) {
            (Poll::Ready(output), _) => Ok(output),
            (Poll::Pending, Err(error)) => Err(error),
            (Poll::Pending, Ok(())) => return Poll::Pending,
        };
        self.span.in_scope(|| body.end(None));
        span::ended(&self.span, ended.as_ref().err());
        Poll::Ready(ended)
    }

    /// Checks whether the body may be polled now. If so, a loss will wake its task.
    #[inline(never)]
    fn admit(&mut self, cx: &mut Context<'_>) -> Result<(), LockError> {
        let locks = self.current.locks();
        let begun = self.begun;
        let continues = begun && self.on_lost == OnLost::Continue;
        // Registers first, reads second: a loss in between is seen by the read.
        if self.wakeup.poll(cx).is_ready() && continues {
            self.wakeup = locks.wakeup(); // a shutdown may still cut it off
            let _ = self.wakeup.poll(cx);
        }
        let lost_by = |cause| {
            Err(match cause {
                // The body has not begun, so another process may run it.
                LossCause::Shutdown if !begun => LockError::ShuttingDown,
                cause => LockError::Lost { name: locks.first.name.clone(), cause },
            })
        };
        // A reused lock protects only what is polled inside the outer body that holds it.
        if !self.current.is_inside_outer() {
            return lost_by(LossCause::Released);
        }
        match locks.lost() {
            Some(cause) if !continues => lost_by(cause),
            Some(_) if locks.are_cut_off() => lost_by(LossCause::Shutdown),
            _ if self.stopwatch.as_ref().is_some_and(Stopwatch::is_over) => Err(self.over()),
            _ => Ok(()),
        }
    }

    /// Checks whether the pending body may continue. If so, the end of its limit will wake its task.
    #[inline(never)]
    fn admit_on(&mut self, cx: &mut Context<'_>) -> Result<(), LockError> {
        let over = self.stopwatch.as_mut().is_some_and(|it| it.poll(cx).is_ready());
        if over { Err(self.over()) } else { Ok(()) }
    }

    fn over(&self) -> LockError {
        let name = self.current.locks().first.name.clone();
        let limit = self.stopwatch.as_ref().map(|it| it.limit).unwrap_or_default();
        tracing::warn!(
            code = "lock.hold_limit", lock = %name, ?limit,
            "the body ran longer than `max_hold` and is dropped: raise the limit, or find out what the body waits for"
        );
        LockError::HoldLimit { name, limit }
    }
}
