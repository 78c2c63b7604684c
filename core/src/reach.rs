//! Reach of etcd: whether etcd responds, and whether its history goes on. The transport owns one, and so does the simulator.
//!
//! *Silence* (rule P32). etcd is lost once an exchange has failed, or has had no response for [`PROBE`], and etcd has not
//! responded since that exchange began. While etcd is lost, and while calls wait, it is probed. Any response, even a refusal,
//! ends the silence.
//!
//! *History* (rules P20, P35). A response is stale if its revision is lower than the one known when its request was sent. If it
//! is the response to a write, or to a renewal that found no lease, etcd was wiped or restored from a snapshot.

use std::collections::VecDeque;
use std::time::Duration;

use crate::ids::Revision;
use crate::input::Input;
use crate::moment::Moment;
use crate::request::{Cause, Failure, Op, Request, Response};

/// How long etcd may be silent before it is probed; at most half of the connect time-out.
const PROBE: Duration = Duration::from_secs(2);

/// The pause before the first probe while etcd is lost. It doubles up to three times.
const PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug, Default)]
pub struct Reach {
    probe: Duration,
    /// The time since which calls wait.
    waiting: Option<Moment>,
    under_way: usize,
    /// The last response of etcd.
    pub answered: Option<Moment>,
    /// The beginning of the first exchange since that response; during an outage, when the outage began.
    pub silent: Option<Moment>,
    outage: Option<Outage>,
    /// The highest revision that a transaction returned in this history, and the number of earlier histories.
    highest: Option<Revision>,
    epoch: u64,
    /// Inputs that the core has yet to receive.
    pub news: VecDeque<Input>,
}

#[derive(Debug)]
struct Outage {
    noticed: Moment,
    /// The number of failed exchanges that began after it was noticed.
    failures: u32,
    /// When etcd is probed next.
    next: Moment,
}

/// The state when an exchange began.
#[derive(Debug, Clone, Copy)]
pub struct Sent {
    at: Moment,
    floor: Option<Revision>,
    epoch: u64,
    writes: bool,
    puts: bool,
}

impl Sent {
    pub fn is_ahead_of(&self, revision: Revision) -> bool {
        self.floor.is_some_and(|floor| revision < floor)
    }
}

impl Reach {
    /// `connect_timeout`: the longest time that calls wait for etcd.
    pub fn new(connect_timeout: Duration) -> Self {
        Self { probe: PROBE.min(connect_timeout / 2), ..Self::default() }
    }

    pub fn wait(&mut self, now: Moment, waits: bool) {
        self.waiting = waits.then(|| self.waiting.unwrap_or(now));
    }

    /// Notes that an exchange begins. [`end`](Self::end) must follow.
    pub fn begin(&mut self, now: Moment, request: &Request) -> Sent {
        let is_put = |op: &Op| matches!(op, Op::Put { .. });
        let (writes, puts) = match request {
            Request::Txn(txn) => (!txn.only_reads(), txn.then.iter().any(is_put)),
            _ => (false, false),
        };
        self.silent.get_or_insert(now);
        self.under_way += 1;
        Sent { at: now, floor: self.highest, epoch: self.epoch, writes, puts }
    }

    /// Notes the result of an exchange, and marks a stale response.
    pub fn end(&mut self, now: Moment, sent: Sent, result: &mut Result<Response, Failure>) {
        self.under_way -= 1;
        if sent.epoch == self.epoch {
            self.mark_stale(sent, result);
        }
        let (Err(Failure::Unavailable(cause)) | Err(Failure::Unknown(cause))) = result else {
            self.answered = Some(now);
            self.silent = (self.under_way > 0).then_some(now);
            return self.news.extend(self.outage.take().map(|_| Input::Back));
        };
        if self.answered.is_some_and(|answered| answered > sent.at) {
            // This exchange began before the last response, so its failure says nothing about etcd's present state.
            self.silent = self.silent.filter(|_| self.under_way > 0 || self.outage.is_some());
            return;
        }
        let outage = self.lose(now, Some(cause.clone()));
        if sent.at > outage.noticed {
            outage.failures += 1;
            let pause = PAUSE * (1 << outage.failures.min(3));
            outage.next = outage.next.min(now + spread(now, pause));
        }
    }

    fn mark_stale(&mut self, sent: Sent, result: &mut Result<Response, Failure>) {
        match result {
            Ok(Response::Txn(answer)) => {
                let again = sent.puts && answer.succeeded && sent.floor == Some(answer.revision);
                let behind = sent.is_ahead_of(answer.revision);
                answer.stale = behind && !sent.writes;
                if sent.writes && (behind || again) {
                    self.wipe();
                }
                self.highest = self.highest.max(Some(answer.revision));
            }
            Ok(Response::KeptAlive { ttl, revision: Some(revision), stale }) => {
                *stale = sent.is_ahead_of(*revision);
                if *stale && ttl.is_zero() {
                    self.wipe();
                }
            }
            _ => {}
        }
    }

    fn lose(&mut self, now: Moment, cause: Option<Cause>) -> &mut Outage {
        let (is_new, next) = (self.outage.is_none(), now + spread(now, PAUSE));
        let since = *self.silent.get_or_insert(now);
        if is_new || cause.is_some() {
            self.news.push_back(Input::Lost { since, cause });
        }
        self.outage.get_or_insert(Outage { noticed: now, failures: 0, next })
    }

    /// Returns when [`probe`](Self::probe) must be called, if at all.
    pub fn due(&self) -> Option<Moment> {
        let idle = self.waiting.and(self.waiting.max(self.answered));
        let quiet = self.silent.or(idle).map(|since| since + self.probe);
        self.outage.as_ref().map(|outage| outage.next).or(quiet)
    }

    /// Notes a silence. Returns the probe that `request` begins, if etcd must be probed now.
    pub fn probe(&mut self, now: Moment, request: &Request) -> Option<Sent> {
        self.due().filter(|due| *due <= now)?;
        if self.silent.is_some() {
            self.lose(now, None).next = now + self.probe;
        }
        Some(self.begin(now, request))
    }

    /// Notes a new connection. It may lead to an etcd that was wiped, or restored from a snapshot.
    pub fn connect(&mut self) {
        if self.outage.is_none() {
            self.news.push_back(Input::Back);
        }
    }

    /// Notes that etcd has lost its history, or is another cluster than before.
    pub fn wipe(&mut self) {
        self.highest = None;
        self.epoch += 1;
        self.news.push_back(Input::Wiped);
    }

    /// Returns the beginning of an outage, if an exchange has failed that began after it was noticed: a member may have died.
    pub fn is_lost_since(&self) -> Option<Moment> {
        self.silent.filter(|_| self.outage.as_ref().is_some_and(|outage| outage.failures > 0))
    }
}

/// Makes a pause up to a quarter longer, so that processes do not act in step.
fn spread(now: Moment, pause: Duration) -> Duration {
    pause + pause * (now.since_boot().subsec_micros() % 256) / 1024
}
