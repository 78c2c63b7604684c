//! Reach of etcd, for all exchanges of a client: whether it responds, and whether its history continues. Logs one line when etcd is lost,
//! and one when it is back.
//!
//! The core's type of the same name decides; this one adds the clock, the mutex and the log.

use std::mem;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use etcd_locked_core::{Cause, Failure, Input, Op, Request, Response, Sent, Txn};
use tokio::sync::Notify;

use crate::clock::{Clock, Minutely, Moment};
use crate::metrics;
use crate::mutex::lock;

/// Maximum age of the last response before a status makes the engine contact etcd.
const FRESH: Duration = Duration::from_secs(5);

pub(crate) struct Reach {
    clock: Arc<dyn Clock>,
    /// Name of etcd in errors and the log.
    pub(super) name: String,
    state: Mutex<State>,
    /// Wakes the task that probes: there is news, or something is due.
    pub(super) changed: Arc<Notify>,
}

pub(crate) struct State {
    pub(crate) etcd: etcd_locked_core::Reach,
    /// True if nothing was due when the probing task last checked.
    rests: bool,
    /// How many calls were refused since etcd's last response.
    refused: u64,
    /// Limits log lines about refused calls.
    logs: Minutely,
    /// Limits log lines about refused deletes.
    denials: Minutely,
}

impl Reach {
    pub(super) fn new(clock: Arc<dyn Clock>, name: String, connect_timeout: Duration) -> Self {
        let etcd = etcd_locked_core::Reach::new(connect_timeout);
        let (logs, denials) = (Minutely::default(), Minutely::default());
        let state = State { etcd, rests: false, refused: 0, logs, denials };
        Self { clock, name, state: Mutex::new(state), changed: Arc::default() }
    }

    /// Returns true if etcd has responded and has not been lost since.
    pub(crate) fn is_reached(&self) -> bool {
        let etcd = &lock(&self.state).etcd;
        etcd.answered.is_some() && etcd.is_lost_since().is_none()
    }

    /// Records a call that is refused because etcd does not serve it. Returns true if it must be logged: etcd responds, so no other line
    /// says why.
    pub(crate) fn refused(&self) -> bool {
        let now = self.clock.now();
        let mut state = lock(&self.state);
        state.refused += 1;
        let answers = state.etcd.answered.is_some_and(|at| now - at < FRESH);
        answers && state.etcd.is_lost_since().is_none() && state.logs.is_due(now)
    }

    /// Records that etcd refuses a write. Deletes and barriers are resent until etcd applies them (rule P34), often without a caller that
    /// notices, so this is logged. A refused put is its caller's error.
    pub(super) fn denied(&self, txn: &Txn, cause: &Cause) {
        let is_record = |op: &Op| matches!(op, Op::Put { value, .. } if !value.is_empty());
        // etcd may refuse only the puts. The core resends the deletes separately, which shows whether they are refused.
        if txn.then.iter().any(is_record) || !lock(&self.state).denials.is_due(self.clock.now()) {
            return;
        }
        tracing::warn!(parent: None, code = "etcd.releases_denied", %cause, "etcd refuses to delete keys of this process, or to settle earlier requests: see `cause`. Retried until their lease expires");
    }

    /// Records that an exchange begins; [`end`](Self::end) must follow.
    pub(super) fn begin(&self, request: &Request) -> Sent {
        self.change(|state, now| state.etcd.begin(now, request))
    }

    /// Records how an exchange ended, and marks a stale response.
    pub(super) fn end(&self, sent: Sent, result: &mut Result<Response, Failure>) {
        let (now, before, lost, refused) = self.change(|state, now| {
            let before = state.etcd.is_lost_since();
            state.etcd.end(now, sent, result);
            let answered = result.is_ok() || matches!(result, Err(Failure::Refused(..)));
            let refused = if answered { mem::take(&mut state.refused) } else { 0 };
            (now, before, state.etcd.is_lost_since(), refused)
        });
        let endpoints = &self.name;
        match (before, lost, result) {
            (None, Some(_), Err(failure)) => {
                let cause = failure.cause();
                tracing::warn!(parent: None, code = "etcd.lost", endpoints, %cause, "etcd does not respond: calls are refused, and locks are lost when their leases end. Check etcd and the network");
                metrics::reachable(false);
            }
            (Some(since), None, _) => {
                let lasted = now - since;
                tracing::warn!(parent: None, code = "etcd.back", endpoints, ?lasted, refused, "etcd responds again");
                metrics::reachable(true);
            }
            _ => {}
        }
    }

    /// Returns the next event that the core does not know yet.
    pub(crate) fn news(&self) -> Option<Input> {
        lock(&self.state).etcd.news.pop_front()
    }

    /// Returns three values: the exchange that `request` begins if etcd must be probed now, when the next probe is due, and whether there
    /// are events that the core does not know yet.
    pub(super) fn probe(&self, request: &Request) -> (Option<Sent>, Option<Moment>, bool) {
        self.change(|state, now| {
            let probe = state.etcd.probe(now, request);
            let due = state.etcd.due();
            state.rests = due.is_none();
            (probe, due, !state.etcd.news.is_empty())
        })
    }

    /// Changes the state at the current time.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut State, Moment) -> T) -> T {
        let now = self.clock.now();
        let mut state = lock(&self.state);
        let before = state.etcd.news.len();
        let changed = change(&mut state, now);
        let is_new = before == 0 && !state.etcd.news.is_empty();
        let is_due = state.rests && state.etcd.due().is_some();
        state.rests &= !is_due;
        drop(state);
        if is_due || is_new {
            self.changed.notify_one();
        }
        changed
    }

    /// Returns true if a status should make the engine contact etcd: the last response is old, and no request is in flight.
    pub(crate) fn wants_asking(&self) -> bool {
        let now = self.clock.now();
        let etcd = &lock(&self.state).etcd;
        etcd.silent.is_none() && etcd.answered.is_none_or(|at| now - at >= FRESH)
    }
}

impl Drop for Reach {
    fn drop(&mut self) {
        self.changed.notify_one(); // the probing task ends
    }
}
