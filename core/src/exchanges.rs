//! Exchanges: the requests that etcd has not answered, and what its silence or its answers say of etcd itself.
//!
//! *Silence.* One rule for calls in every state (rule P32): if etcd has answered nothing since an exchange was sent, and the
//! connect time-out has passed since then and since the call came, the call is refused. So silence must be noticed even where
//! nothing has to be sent: while calls wait, the core asks something of etcd every [`PROBE`].
//!
//! *History.* A put that answers no higher revision than was known when it was sent proves that etcd was wiped, or restored from
//! a snapshot (rule P35). Then all ownership that is older is lost.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::ids::{RequestId, Revision};
use crate::moment::Moment;
use crate::request::{Cause, Failure, Op, Request, Response, TxnAnswer};

/// How long etcd may have answered nothing while calls wait, before it is asked something. It is half of their patience where that
/// is less, so that an answer can still come in time.
const PROBE: Duration = Duration::from_secs(2);

/// How often at most it is seen whether etcd is silent.
const CHECK: Duration = Duration::from_millis(50);

/// A request that was sent, and what it is for.
#[derive(Debug)]
pub struct Sent<E> {
    pub exchange: E,
    pub at: Moment,
    /// The highest revision known when it was sent; `None` too if history was lost since.
    pub floor: Option<Revision>,
    /// It puts something if its conditions hold.
    puts: bool,
    epoch: u64,
}

impl<E> Sent<E> {
    /// Whether an answer of this revision comes from a member that lags, or from an etcd that has lost its history (rule P20).
    pub fn is_ahead_of(&self, revision: Revision) -> bool {
        self.floor.is_some_and(|floor| revision < floor)
    }
}

/// All exchanges under way.
#[derive(Debug)]
pub struct Exchanges<E> {
    under_way: BTreeMap<RequestId, Sent<E>>,
    last: u64,
    /// How long a call waits for etcd, and what it is refused with if no exchange has failed yet.
    patience: Duration,
    silence: Cause,
    /// When the first exchange was sent that etcd has left unanswered, with nothing else answered since.
    silent_since: Option<Moment>,
    last_answer: Option<Moment>,
    /// How often in a row asking etcd has failed, and why it did at last.
    failures: u32,
    cause: Option<Cause>,
    hold_off: Option<Moment>,
    /// The last request that was sent before a failure: what becomes of it and of those before it says nothing new.
    doubted: u64,
    /// The highest revision any transaction answered, since history was last lost; and how often it was.
    highest: Option<Revision>,
    epoch: u64,
}

impl<E> Exchanges<E> {
    /// With the time a call waits for etcd, and what it is refused with if no exchange has failed yet.
    pub fn new(patience: Duration, silence: Cause) -> Self {
        Self {
            under_way: BTreeMap::new(),
            last: 0,
            patience,
            silence,
            silent_since: None,
            last_answer: None,
            failures: 0,
            cause: None,
            hold_off: None,
            doubted: 0,
            highest: None,
            epoch: 0,
        }
    }

    /// A request is sent now.
    pub fn send(&mut self, now: Moment, request: &Request, exchange: E) -> RequestId {
        let is_put = |op: &Op| matches!(op, Op::Put { .. });
        let sent = Sent {
            exchange,
            at: now,
            floor: self.highest,
            puts: matches!(request, Request::Txn(txn) if txn.then.iter().any(is_put)),
            epoch: self.epoch,
        };
        self.last += 1;
        let id = RequestId::from(self.last);
        self.under_way.insert(id, sent);
        self.silent_since.get_or_insert(now);
        id
    }

    /// A request was answered, be it by a refusal, or has failed; `None` if it is not under way.
    pub fn answered(
        &mut self,
        now: Moment,
        id: RequestId,
        result: &Result<Response, Failure>,
    ) -> Option<Sent<E>> {
        let mut sent = self.under_way.remove(&id)?;
        sent.floor = sent.floor.filter(|_| sent.epoch == self.epoch);
        match result {
            Ok(_) | Err(Failure::Refused(..)) => {
                self.last_answer = Some(now);
                self.silent_since = (!self.under_way.is_empty()).then_some(now);
                self.failures = 0;
                self.cause = None;
                self.hold_off = None;
            }
            Err(Failure::Unavailable(cause) | Failure::Unknown(cause)) => {
                if id > RequestId::from(self.doubted) {
                    self.doubted = self.last;
                    self.failures += 1;
                }
                self.cause = Some(cause.clone());
            }
        }
        Some(sent)
    }

    /// Takes in the revision of a transaction's answer; true if it proves that etcd has lost its history.
    pub fn loses_history(&mut self, sent: &Sent<E>, answer: &TxnAnswer) -> bool {
        if sent.epoch != self.epoch {
            return false;
        }
        let behind = sent.floor.is_some_and(|floor| answer.revision <= floor);
        let lost = sent.puts && answer.succeeded && behind;
        if lost {
            self.highest = None;
            self.epoch += 1;
        }
        self.highest = self.highest.max(Some(answer.revision));
        lost
    }

    /// Those that are under way.
    pub fn iter(&self) -> impl Iterator<Item = &E> {
        self.under_way.values().map(|sent| &sent.exchange)
    }

    /// What a request is for that is under way.
    pub fn get(&self, id: RequestId) -> Option<&E> {
        self.under_way.get(&id).map(|sent| &sent.exchange)
    }

    /// Nothing but renewals is sent before this moment (rule P34).
    pub fn hold_off(&mut self, until: Moment) {
        self.hold_off = Some(until);
    }

    /// How many have failed since etcd last answered; 0: it is reached.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// What calls are refused with.
    pub fn cause(&self) -> Cause {
        self.cause.as_ref().unwrap_or(&self.silence).clone()
    }

    /// Whether one may be sent now. While etcd is not reached, one in each [`PROBE`] finds out whether it is back.
    pub fn may_send(&self, now: Moment) -> bool {
        let held = self.hold_off.is_some_and(|until| now < until);
        !held && (self.failures == 0 || !self.is_asked(now))
    }

    /// Whether an exchange is under way whose answer is soon to be expected. It is not of one that was sent before a failure, or
    /// [`PROBE`] ago: a leader that has died may have had it, and another leads long before its time limit is over.
    fn is_asked(&self, now: Moment) -> bool {
        let last = self.under_way.last_key_value();
        last.is_some_and(|(id, sent)| {
            *id > RequestId::from(self.doubted) && now - sent.at < self.probe()
        })
    }

    /// [`PROBE`], or half of the patience of calls.
    fn probe(&self) -> Duration {
        PROBE.min(self.patience / 2)
    }

    /// How long a call waits for etcd.
    pub fn patience(&self) -> Duration {
        self.patience
    }

    /// Calls that came before this moment have waited for etcd for as long as they should.
    pub fn gives_up(&self, now: Moment) -> Option<Moment> {
        let came = now - self.patience;
        (self.silent_since? <= came).then_some(came)
    }

    /// When to see next, while calls wait, whether etcd is silent; `first`: when the first of them came.
    pub fn next_check(&self, now: Moment, first: Moment) -> Moment {
        let probe = self.last_answer.unwrap_or(now).max(now - self.probe()) + self.probe();
        let over = self.silent_since.map(|silent| silent.max(first) + self.patience);
        over.map_or(probe, |over| over.min(probe)).max(now + CHECK)
    }

    /// Whether etcd has to be asked something to know whether it is there.
    pub fn needs_probe(&self, now: Moment) -> bool {
        let heard = self.last_answer.is_some_and(|at| now - at < self.probe());
        !self.is_asked(now) && !heard && self.may_send(now)
    }
}
