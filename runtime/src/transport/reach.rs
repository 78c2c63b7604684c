//! Reach of etcd: whether it answers, and one line in the log when it is lost and one when it is back.
//!
//! An exchange that fails alone says little: its member may have died. etcd is lost when an exchange fails that was begun after another
//! one had failed, and none was answered in between. A refusal is an answer.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use etcd_locked_core::{Cause, Failure};

use crate::clock::{Clock, Moment};

/// How old the last answer may be before a status has etcd asked.
const FRESH: Duration = Duration::from_secs(5);

/// Whether etcd can be reached.
pub(crate) struct Reach {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    /// A question is under way that was asked for a status.
    asking: AtomicBool,
}

#[derive(Default)]
struct State {
    /// When etcd answered last.
    answered: Option<Moment>,
    outage: Option<Outage>,
}

/// What has happened since etcd answered last.
struct Outage {
    /// When the first exchange failed.
    since: Moment,
    /// Another one has failed that began after that.
    lost: bool,
    /// How many calls were refused.
    refused: u64,
}

/// What an exchange's outcome says about etcd, where that is new.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Change {
    Lost,
    Back,
}

impl Reach {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            state: Mutex::default(),
            asking: AtomicBool::new(false),
        }
    }

    /// Whether etcd has answered, and has not been lost since.
    pub(crate) fn is_reached(&self) -> bool {
        let state = self.state();
        state.answered.is_some() && !state.is_lost()
    }

    /// Whether etcd is lost.
    pub(super) fn is_lost(&self) -> bool {
        self.state().is_lost()
    }

    /// A call is refused because etcd does not serve it.
    pub(crate) fn refused(&self) {
        if let Some(outage) = &mut self.state().outage {
            outage.refused += 1;
        }
    }

    /// An exchange begins.
    pub(super) fn begin(&self) -> Moment {
        self.clock.now()
    }

    /// An exchange that began then has ended.
    pub(super) fn note<T>(&self, began: Moment, result: &Result<T, Failure>) -> Option<Change> {
        match result {
            Ok(_) | Err(Failure::Refused(..)) => self.answered(),
            Err(Failure::Unavailable(cause) | Failure::Unknown(cause)) => self.failed(began, cause),
        }
    }

    fn answered(&self) -> Option<Change> {
        let now = self.clock.now();
        let mut state = self.state();
        state.answered = Some(now);
        let outage = state.outage.take().filter(|outage| outage.lost)?;
        drop(state);
        let lasted = now - outage.since;
        let refused = outage.refused;
        tracing::warn!(parent: None, code = "etcd.back", ?lasted, refused, "etcd is back: it answers again");
        Some(Change::Back)
    }

    fn failed(&self, began: Moment, cause: &Cause) -> Option<Change> {
        let now = self.clock.now();
        let mut state = self.state();
        let Some(outage) = &mut state.outage else {
            state.outage = Some(Outage {
                since: now,
                lost: false,
                refused: 0,
            });
            return None;
        };
        if outage.lost || began < outage.since {
            return None;
        }
        outage.lost = true;
        drop(state);
        tracing::warn!(parent: None, code = "etcd.lost", %cause, "etcd is lost: calls are refused, and locks are lost with their leases, until it answers again");
        Some(Change::Lost)
    }

    /// Whether a status should have etcd asked: then [`asked`](Self::asked) must follow.
    pub(crate) fn wants_asking(&self) -> bool {
        let now = self.clock.now();
        let state = self.state();
        let fresh = state.answered.is_some_and(|at| now - at < FRESH);
        let known = fresh || state.is_lost(); // then it is asked anyway
        drop(state);
        !known && !self.asking.swap(true, Ordering::AcqRel)
    }

    /// etcd was asked.
    pub(crate) fn asked(&self) {
        self.asking.store(false, Ordering::Release);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn is_lost(&self) -> bool {
        self.outage.as_ref().is_some_and(|outage| outage.lost)
    }
}
