//! Unreachable: how long etcd has been silent, who must learn of it, and how often it is asked meanwhile.
//!
//! One rule for calls in every state (rule P32): if etcd has answered nothing since an exchange was sent, and the connect
//! time-out has passed since then and since the call came, the call is refused. So silence must be noticed even where nothing
//! has to be sent: while calls wait, the core asks something of etcd every [`PROBE`].

use std::time::Duration;

use crate::moment::Moment;
use crate::request::Cause;

/// How long etcd may have said nothing while calls wait, before it is asked something.
pub const PROBE: Duration = Duration::from_secs(2);

/// Etcd's silence.
#[derive(Debug)]
pub struct Unreachable {
    patience: Duration,
    silence: Cause,
    /// When the first exchange was sent that etcd has left unanswered, with nothing else answered since.
    silent_since: Option<Moment>,
    last_answer: Option<Moment>,
    under_way: usize,
    /// Exchanges that failed since the last answer.
    failures: u32,
    hold_off: Option<Moment>,
    cause: Option<Cause>,
}

impl Unreachable {
    /// With the time a call waits for etcd, and what it is refused with if no exchange has failed yet.
    pub fn new(patience: Duration, silence: Cause) -> Self {
        Self {
            patience,
            silence,
            silent_since: None,
            last_answer: None,
            under_way: 0,
            failures: 0,
            hold_off: None,
            cause: None,
        }
    }

    /// An exchange was sent.
    pub fn sent(&mut self, now: Moment) {
        self.under_way += 1;
        self.silent_since.get_or_insert(now);
    }

    /// etcd answered an exchange, be it by a refusal.
    pub fn answered(&mut self, now: Moment) {
        self.under_way -= 1;
        self.last_answer = Some(now);
        self.silent_since = (self.under_way > 0).then_some(now);
        self.failures = 0;
        self.hold_off = None;
        self.cause = None;
    }

    /// An exchange had no answer.
    pub fn failed(&mut self, cause: Cause) {
        self.under_way -= 1;
        self.failures += 1;
        self.cause = Some(cause);
    }

    /// Nothing but renewals is sent before this moment (rule P34).
    pub fn hold_off(&mut self, until: Moment) {
        self.hold_off = Some(until);
    }

    /// How many exchanges have failed since etcd last answered.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Whether an exchange may be sent now. While etcd is not reached one at a time finds out whether it is back.
    pub fn may_send(&self, now: Moment) -> bool {
        let held = self.hold_off.is_some_and(|until| now < until);
        !held && (self.failures == 0 || self.under_way == 0)
    }

    /// Calls that came before this moment have waited for etcd for as long as they should.
    pub fn gives_up(&self, now: Moment) -> Option<Moment> {
        let silent = self.silent_since?;
        let came = now - self.patience;
        (silent <= came).then_some(came)
    }

    /// When to see next, while calls wait, whether etcd is silent; `first`: when the first of them came.
    pub fn next_check(&self, now: Moment, first: Moment) -> Moment {
        let probe = self.last_answer.unwrap_or(now).max(now - PROBE) + PROBE;
        match self.silent_since {
            Some(silent) => probe.min(silent.max(first) + self.patience),
            None => probe,
        }
    }

    /// Whether etcd has to be asked something to know whether it is there.
    pub fn needs_probe(&self, now: Moment) -> bool {
        let heard = self.last_answer.is_some_and(|at| now - at < PROBE);
        self.under_way == 0 && !heard && self.may_send(now)
    }

    /// What calls are refused with.
    pub fn cause(&self) -> Cause {
        self.cause.as_ref().unwrap_or(&self.silence).clone()
    }

    /// Whether etcd is not reached.
    pub fn is_so(&self) -> bool {
        self.failures > 0
    }
}
