//! The hold limit: until when bodies may run under the lock of a call.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::task::JoinHandle;

use crate::clock::Moment;
use crate::engine::Engine;

/// A hold limit that runs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limit {
    over: Moment,
    given: Duration,
}

impl Limit {
    pub(crate) fn from(now: Moment, given: Duration) -> Self {
        Self {
            over: now + given,
            given,
        }
    }
}

/// Tells one body, on its own task, when the limit is over.
#[derive(Debug)]
pub(crate) struct Stopwatch {
    limit: Limit,
    engine: Engine,
    /// Runs on the engine's thread: a body may run where there are no timers.
    alarm: Option<JoinHandle<()>>,
}

impl Stopwatch {
    pub(crate) fn new(limit: Limit, engine: Engine) -> Self {
        Self {
            limit,
            engine,
            alarm: None,
        }
    }

    /// What was given.
    pub(crate) fn given(&self) -> Duration {
        self.limit.given
    }

    /// Reads the clock.
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
                // Else the engine has ended, and with it the lock.
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
