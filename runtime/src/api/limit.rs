//! Hold limit: until when bodies may run under the locks of a call.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::task::JoinHandle;

use crate::clock::Moment;
use crate::engine::Engine;

/// A hold limit that has begun.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limit {
    over: Moment,
    given: Duration,
}

impl Limit {
    pub(crate) fn from(now: Moment, given: Duration) -> Self {
        Self { over: now + given, given }
    }

    /// The stopwatch of one body.
    pub(crate) fn stopwatch(self, engine: Engine) -> Stopwatch {
        Stopwatch { limit: self, engine, alarm: None }
    }
}

/// Stopwatch of one body: wakes the body's task when the limit is over.
#[derive(Debug)]
pub(crate) struct Stopwatch {
    limit: Limit,
    engine: Engine,
    /// A timer on the engine's thread: a body may run where there are no timers.
    alarm: Option<JoinHandle<()>>,
}

impl Stopwatch {
    /// The length of the limit.
    pub(crate) fn given(&self) -> Duration {
        self.limit.given
    }

    /// Reads the clock; tells whether the limit is over.
    pub(crate) fn is_over(&self) -> bool {
        self.engine.now() >= self.limit.over
    }

    /// Ready once the limit is over; else wakes the task when it is.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.is_over() {
            return Poll::Ready(());
        }
        let ring = || self.engine.alarm(self.limit.over);
        let alarm = self.alarm.get_or_insert_with(ring);
        match Pin::new(alarm).poll(cx) {
            Poll::Ready(rung) => {
                self.alarm = None;
                // An error: the engine has ended, and with it the lock.
                rung.map_or(Poll::Pending, Poll::Ready)
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

impl Drop for Stopwatch {
    fn drop(&mut self) {
        if let Some(alarm) = &self.alarm {
            alarm.abort();
        }
    }
}
