//! Reach of etcd: whether it answers, and one line in the log when it is lost and one when it is back.
//!
//! An exchange that fails alone says little: its member may have died. etcd is lost when an exchange fails that was begun after another
//! one had failed, and none was answered in between. A refusal is an answer.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use etcd_locked_core::{Cause, Failure};

use crate::clock::{Clock, Moment};
use crate::metrics;

/// How often it is logged that etcd refuses calls.
const REFUSED: Duration = Duration::from_secs(60);

/// How old the last answer may be before a status has etcd asked.
const FRESH: Duration = Duration::from_secs(5);

pub(crate) struct Reach {
    clock: Arc<dyn Clock>,
    /// What the log calls etcd.
    name: String,
    state: Mutex<State>,
    /// A question is under way that was asked for a status.
    asking: AtomicBool,
}

#[derive(Default)]
struct State {
    /// When etcd answered last.
    answered: Option<Moment>,
    /// How many calls were refused since.
    refused: u64,
    /// When it was logged last that etcd refuses calls.
    logged: Option<Moment>,
    outage: Option<Outage>,
}

/// What has happened since etcd answered last.
struct Outage {
    /// When the first exchange failed.
    since: Moment,
    /// Another one has failed that began after that.
    lost: bool,
}

impl Reach {
    pub(super) fn new(clock: Arc<dyn Clock>, name: String) -> Self {
        Self { clock, name, state: Mutex::default(), asking: AtomicBool::new(false) }
    }

    /// Whether etcd has answered, and has not been lost since.
    pub(crate) fn is_reached(&self) -> bool {
        let state = self.state();
        state.answered.is_some() && !state.is_lost()
    }

    /// Whether etcd is still lost, since then.
    pub(super) fn is_lost_since(&self, then: Moment) -> bool {
        let state = self.state();
        let outage = state.outage.as_ref();
        outage.is_some_and(|outage| outage.lost && outage.since == then)
    }

    /// A call is refused because etcd does not serve it. True if that is to be logged: etcd answers, so no other line says why.
    pub(crate) fn refused(&self) -> bool {
        let now = self.clock.now();
        let within = |time, of: Option<Moment>| of.is_some_and(|of| now - of < time);
        let mut state = self.state();
        state.refused += 1;
        let answers = state.outage.is_none() && within(FRESH, state.answered);
        let logs = answers && !within(REFUSED, state.logged);
        if logs {
            state.logged = Some(now);
        }
        logs
    }

    /// An exchange that began then has ended. Returns since when etcd is lost, if that is new; no other loss shares the moment.
    pub(super) fn note<T>(&self, began: Moment, result: &Result<T, Failure>) -> Option<Moment> {
        match result {
            Ok(_) | Err(Failure::Refused(..)) => {
                self.answered();
                None
            }
            Err(Failure::Unavailable(cause) | Failure::Unknown(cause)) => self.failed(began, cause),
        }
    }

    fn answered(&self) {
        let now = self.clock.now();
        let mut state = self.state();
        state.answered = Some(now);
        let refused = std::mem::take(&mut state.refused);
        let Some(outage) = state.outage.take().filter(|outage| outage.lost) else {
            return;
        };
        drop(state);
        let (lasted, endpoints) = (now - outage.since, &self.name);
        tracing::warn!(parent: None, code = "etcd.back", endpoints, ?lasted, refused, "etcd is back: it answers again");
        metrics::reachable(true);
    }

    fn failed(&self, began: Moment, cause: &Cause) -> Option<Moment> {
        let now = self.clock.now();
        let mut state = self.state();
        let Some(outage) = &mut state.outage else {
            state.outage = Some(Outage { since: now, lost: false });
            return None;
        };
        if outage.lost || began < outage.since {
            return None;
        }
        outage.lost = true;
        let since = outage.since;
        drop(state);
        let endpoints = &self.name;
        tracing::warn!(parent: None, code = "etcd.lost", endpoints, %cause, "etcd is lost: calls are refused, and locks are lost with their leases, until it answers again");
        metrics::reachable(false);
        Some(since)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::BootClock;

    fn reach() -> Reach {
        Reach::new(Arc::new(BootClock), "etcd".to_owned())
    }

    fn silent() -> Result<(), Failure> {
        Err(Failure::Unknown(Arc::from(Box::from("no answer"))))
    }

    #[test]
    fn exchanges_that_fail_together_do_not_lose_etcd() {
        let reach = reach();
        reach.note(BootClock.now(), &Ok(()));
        let together = [BootClock.now(), BootClock.now()];
        for began in together {
            assert_eq!(reach.note(began, &silent()), None);
        }
        assert!(reach.is_reached());
        let lost = reach.note(BootClock.now(), &silent());
        assert!(lost.is_some());
        assert_eq!(reach.note(BootClock.now(), &silent()), None, "it is lost");
        assert!(!reach.is_reached());
        assert_eq!(reach.note(BootClock.now(), &Ok(())), None);
        assert!(reach.is_reached());
    }
}
