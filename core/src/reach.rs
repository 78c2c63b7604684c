//! Reach of etcd: whether it answers, and whether its history goes on. A value that the transport owns, and the simulator's too.
//!
//! *Silence* (rule P32). etcd is lost once an exchange has failed, or has had no answer for [`PROBE`], and nothing was answered
//! since it began. Then, and while calls wait, etcd is probed. Any answer, a refusal too, says that it is back.
//!
//! *History* (rules P20, P35). A response of a lower revision than was known when its request was sent is stale. A write of a lower
//! one, or a renewal that finds no lease then, proves that etcd was wiped, or restored from a snapshot.

use std::mem;
use std::time::Duration;

use crate::ids::Revision;
use crate::input::Input;
use crate::moment::Moment;
use crate::request::{Cause, Failure, Op, Request, Response};

/// How long etcd may be silent before it is probed: half of the connect time-out where that is less.
const PROBE: Duration = Duration::from_secs(2);

/// The pause before the first probe of an etcd that is lost; doubled up to three times.
const PAUSE: Duration = Duration::from_millis(100);

/// What is known of etcd.
#[derive(Debug)]
pub struct Reach {
    probe: Duration,
    /// Since when calls wait.
    waiting: Option<Moment>,
    under_way: usize,
    answered: Option<Moment>,
    /// When the first exchange began since etcd answered last; at the earliest then, where one is still under way.
    silent: Option<Moment>,
    outage: Option<Outage>,
    /// The highest revision that a transaction returned in this history, and how many histories have ended.
    highest: Option<Revision>,
    epoch: u64,
    has_changed: bool,
    is_wiped: bool,
}

/// An outage of etcd.
#[derive(Debug)]
struct Outage {
    since: Moment,
    noticed: Moment,
    cause: Option<Cause>,
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
    /// Returns true if a response of this revision is older than what was known.
    pub fn is_ahead_of(&self, revision: Revision) -> bool {
        self.floor.is_some_and(|floor| revision < floor)
    }
}

impl Reach {
    /// Makes one for calls that wait for etcd at most for `connect_timeout`.
    pub fn new(connect_timeout: Duration) -> Self {
        Self {
            probe: PROBE.min(connect_timeout / 2),
            waiting: None,
            under_way: 0,
            answered: None,
            silent: None,
            outage: None,
            highest: None,
            epoch: 0,
            has_changed: false,
            is_wiped: false,
        }
    }

    /// Notes that calls wait for etcd, or that none does.
    pub fn wait(&mut self, now: Moment, waits: bool) {
        self.waiting = waits.then(|| self.waiting.unwrap_or(now));
    }

    /// Notes that an exchange begins; [`end`](Self::end) must follow.
    pub fn begin(&mut self, now: Moment, request: &Request) -> Sent {
        let txn = match request {
            Request::Txn(txn) => Some(txn),
            _ => None,
        };
        self.silent.get_or_insert(now);
        self.under_way += 1;
        Sent {
            at: now,
            floor: self.highest,
            epoch: self.epoch,
            writes: txn.is_some_and(|txn| !txn.only_reads()),
            puts: txn.is_some_and(|txn| txn.then.iter().any(|op| matches!(op, Op::Put { .. }))),
        }
    }

    /// Notes how an exchange ended, and marks a stale response.
    pub fn end(&mut self, now: Moment, sent: Sent, result: &mut Result<Response, Failure>) {
        self.under_way -= 1;
        match result {
            Ok(_) | Err(Failure::Refused(..)) => {
                self.answered = Some(now);
                self.silent = (self.under_way > 0).then_some(now);
                self.has_changed |= self.outage.take().is_some();
            }
            Err(Failure::Unavailable(cause) | Failure::Unknown(cause)) => {
                self.failed(now, sent, cause.clone());
            }
        }
        match result {
            _ if sent.epoch != self.epoch => {}
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

    fn failed(&mut self, now: Moment, sent: Sent, cause: Cause) {
        if self.answered.is_some_and(|answered| answered > sent.at) {
            // It says nothing of etcd as it is now.
            self.silent = self.silent.filter(|_| self.under_way > 0);
            return;
        }
        self.has_changed = true;
        let outage = self.lose(now, now + spread(now, PAUSE));
        outage.cause = Some(cause);
        if sent.at > outage.noticed {
            outage.failures += 1;
            let pause = PAUSE * (1 << outage.failures.min(3));
            outage.next = outage.next.min(now + spread(now, pause));
        }
    }

    fn lose(&mut self, now: Moment, next: Moment) -> &mut Outage {
        self.has_changed |= self.outage.is_none();
        let since = self.silent.unwrap_or(now);
        let new = || Outage { since, noticed: now, cause: None, failures: 0, next };
        self.outage.get_or_insert_with(new)
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
        if self.silent.is_some() || self.outage.is_some() {
            let next = now + self.probe;
            self.lose(now, next).next = next;
        }
        Some(self.begin(now, request))
    }

    /// Notes that a connection was made. It may lead to an etcd that was wiped, or restored from a snapshot.
    pub fn connect(&mut self) {
        self.has_changed |= self.outage.is_none();
    }

    /// Notes that etcd has lost its history, or is another cluster than before.
    pub fn wipe(&mut self) {
        self.highest = None;
        self.epoch += 1;
        self.is_wiped = true;
    }

    /// Returns when etcd answered last.
    pub fn answered(&self) -> Option<Moment> {
        self.answered
    }

    /// Returns since when etcd is lost, if an exchange has shown it that began after that was noticed: its member may have died.
    pub fn is_lost_since(&self) -> Option<Moment> {
        let outage = self.outage.as_ref();
        outage.filter(|outage| outage.failures > 0).map(|outage| outage.since)
    }

    /// Returns true if there are [`news`](Self::news).
    pub fn has_news(&self) -> bool {
        self.has_changed || self.is_wiped
    }

    /// Returns what the core does not know yet.
    pub fn news(&mut self) -> Option<Input> {
        if mem::take(&mut self.is_wiped) {
            return Some(Input::Wiped);
        }
        mem::take(&mut self.has_changed).then(|| match &self.outage {
            Some(outage) => Input::Lost { since: outage.since, cause: outage.cause.clone() },
            None => Input::Back,
        })
    }
}

/// Makes a pause up to a quarter longer, so that processes do not act in step.
fn spread(now: Moment, pause: Duration) -> Duration {
    pause + pause * (now.since_boot().subsec_micros() % 256) / 1024
}
