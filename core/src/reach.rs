//! Reach of etcd: whether it answers, and whether its history goes on. A value that the transport owns, and the simulator's too.
//!
//! *Silence* (rule P32). etcd is lost once an exchange has failed, or has had no answer for [`PROBE`], and nothing was answered
//! since it began. Then, and while calls wait, etcd is probed. Any answer, a refusal too, says that it is back.
//!
//! *History* (rules P20, P35). A response of a lower revision than was known when its request was sent is stale. A write of a lower
//! one, or a renewal that finds no lease then, proves that etcd was wiped, or restored from a snapshot.

use std::collections::VecDeque;
use std::time::Duration;

use crate::ids::Revision;
use crate::input::Input;
use crate::moment::Moment;
use crate::request::{Cause, Failure, Op, Request, Response};

/// How long etcd may be silent before it is probed: half of the connect time-out where that is less.
const PROBE: Duration = Duration::from_secs(2);

/// The pause before the first probe of an etcd that is lost; doubled up to three times.
const PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug, Default)]
pub struct Reach {
    probe: Duration,
    /// Since when calls wait.
    waiting: Option<Moment>,
    under_way: usize,
    /// When etcd answered last.
    pub answered: Option<Moment>,
    /// When the first exchange began since etcd answered last; during an outage, when that began.
    pub silent: Option<Moment>,
    outage: Option<Outage>,
    /// The highest revision that a transaction returned in this history, and how many histories have ended.
    highest: Option<Revision>,
    epoch: u64,
    /// What the core does not know yet.
    pub news: VecDeque<Input>,
}

#[derive(Debug)]
struct Outage {
    noticed: Moment,
    /// How many exchanges have failed that began after it was noticed.
    failures: u32,
    /// When etcd is probed next.
    next: Moment,
}

/// What was known when an exchange began.
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
    /// `connect_timeout`: how long calls wait for etcd at most.
    pub fn new(connect_timeout: Duration) -> Self {
        Self { probe: PROBE.min(connect_timeout / 2), ..Self::default() }
    }

    pub fn wait(&mut self, now: Moment, waits: bool) {
        self.waiting = waits.then(|| self.waiting.unwrap_or(now));
    }

    /// Notes that an exchange begins; [`end`](Self::end) must follow.
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

    /// Notes how an exchange ended, and marks a stale response.
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
            // It says nothing of etcd as it is now.
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

    /// Returns when [`probe`](Self::probe) is to be called, if at all.
    pub fn due(&self) -> Option<Moment> {
        let idle = self.waiting.and(self.waiting.max(self.answered));
        let quiet = self.silent.or(idle).map(|since| since + self.probe);
        self.outage.as_ref().map(|outage| outage.next).or(quiet)
    }

    /// Notices that etcd is silent. Returns the exchange that `request` begins, if etcd is to be probed with it now.
    pub fn probe(&mut self, now: Moment, request: &Request) -> Option<Sent> {
        self.due().filter(|due| *due <= now)?;
        if self.silent.is_some() {
            self.lose(now, None).next = now + self.probe;
        }
        Some(self.begin(now, request))
    }

    /// Notes that a connection was made. It may lead to an etcd that was wiped, or restored from a snapshot.
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

    /// Returns since when etcd is lost, if an exchange has shown it that began after that was noticed: its member may have died.
    pub fn is_lost_since(&self) -> Option<Moment> {
        self.silent.filter(|_| self.outage.as_ref().is_some_and(|outage| outage.failures > 0))
    }
}

/// Makes a pause up to a quarter longer, so that processes do not act in step.
fn spread(now: Moment, pause: Duration) -> Duration {
    pause + pause * (now.since_boot().subsec_micros() % 256) / 1024
}
