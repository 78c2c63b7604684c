//! Reach of etcd, for all exchanges of a client: whether it answers, and whether its history goes on. One line in the log when etcd
//! is lost, and one when it is back.
//!
//! The core's value of this name decides. Here it has its clock, its lock and its log.

use std::mem;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use etcd_locked_core::{Cause, Failure, Input, Op, Request, Response, Sent, Txn};
use tokio::sync::Notify;

use crate::clock::{Clock, Minutely, Moment};
use crate::metrics;
use crate::mutex::lock;

/// How old the last answer may be before a status has etcd asked.
const FRESH: Duration = Duration::from_secs(5);

pub(crate) struct Reach {
    clock: Arc<dyn Clock>,
    /// What errors and the log call etcd.
    pub(super) name: String,
    state: Mutex<State>,
    /// Wakes the task that probes: there is news, or something is due.
    pub(super) changed: Arc<Notify>,
}

pub(crate) struct State {
    pub(crate) etcd: etcd_locked_core::Reach,
    /// Nothing was due when the task that probes looked last.
    rests: bool,
    /// How many calls were refused since etcd answered last.
    refused: u64,
    /// Logs that etcd refuses calls.
    logs: Minutely,
    /// Logs that etcd refuses deletes.
    denials: Minutely,
}

impl Reach {
    pub(super) fn new(clock: Arc<dyn Clock>, name: String, connect_timeout: Duration) -> Self {
        let etcd = etcd_locked_core::Reach::new(connect_timeout);
        let (logs, denials) = (Minutely::default(), Minutely::default());
        let state = State { etcd, rests: false, refused: 0, logs, denials };
        Self { clock, name, state: Mutex::new(state), changed: Arc::default() }
    }

    /// Whether etcd has answered, and has not been lost since.
    pub(crate) fn is_reached(&self) -> bool {
        let etcd = &lock(&self.state).etcd;
        etcd.answered.is_some() && etcd.is_lost_since().is_none()
    }

    /// A call is refused because etcd does not serve it. True if that is to be logged: etcd answers, so no other line says why.
    pub(crate) fn refused(&self) -> bool {
        let now = self.clock.now();
        let mut state = lock(&self.state);
        state.refused += 1;
        let answers = state.etcd.answered.is_some_and(|at| now - at < FRESH);
        answers && state.etcd.is_lost_since().is_none() && state.logs.is_due(now)
    }

    /// etcd refuses a write. Deletes and barriers are sent again until it carries them out (rule P34), and often no caller learns of
    /// that, so it is logged; a refused put is its caller's error.
    pub(super) fn denied(&self, txn: &Txn, cause: &Cause) {
        let is_record = |op: &Op| matches!(op, Op::Put { value, .. } if !value.is_empty());
        // Perhaps it refuses the puts. The core sends the deletes again apart, which shows whether they are refused.
        if txn.then.iter().any(is_record) || !lock(&self.state).denials.is_due(self.clock.now()) {
            return;
        }
        tracing::warn!(parent: None, code = "etcd.releases_denied", %cause, "etcd refuses to delete keys of this process, or to settle what was sent before: tried again as long as their lease lives");
    }

    /// Notes that an exchange begins; [`end`](Self::end) must follow.
    pub(super) fn begin(&self, request: &Request) -> Sent {
        self.change(|state, now| state.etcd.begin(now, request))
    }

    /// Notes how an exchange ended, and marks a stale response.
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
                tracing::warn!(parent: None, code = "etcd.lost", endpoints, %cause, "etcd is lost: calls are refused, and locks are lost with their leases, until it answers again");
                metrics::reachable(false);
            }
            (Some(since), None, _) => {
                let lasted = now - since;
                tracing::warn!(parent: None, code = "etcd.back", endpoints, ?lasted, refused, "etcd is back: it answers again");
                metrics::reachable(true);
            }
            _ => {}
        }
    }

    /// Returns what the core does not know yet.
    pub(crate) fn news(&self) -> Option<Input> {
        lock(&self.state).etcd.news.pop_front()
    }

    /// Returns the exchange that `request` begins, if etcd is to be probed with it now; when the next one is due; and whether there is
    /// something that the core does not know yet.
    pub(super) fn probe(&self, request: &Request) -> (Option<Sent>, Option<Moment>, bool) {
        self.change(|state, now| {
            let probe = state.etcd.probe(now, request);
            let due = state.etcd.due();
            state.rests = due.is_none();
            (probe, due, !state.etcd.news.is_empty())
        })
    }

    /// Changes the state, now.
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

    /// Whether a status should have etcd asked: it has not answered for a while, and is not asked already.
    pub(crate) fn wants_asking(&self) -> bool {
        let now = self.clock.now();
        let etcd = &lock(&self.state).etcd;
        etcd.silent.is_none() && etcd.answered.is_none_or(|at| now - at >= FRESH)
    }
}

impl Drop for Reach {
    fn drop(&mut self) {
        self.changed.notify_one(); // the task that probes ends
    }
}
