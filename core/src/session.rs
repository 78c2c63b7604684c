//! Session: one lease with its renewals and its session key, from the request for the lease until it is lost or revoked.
//!
//! ```text
//! asking ─granted─► barred ⇄ open ─► retired ─► lost
//! ```
//!
//! Acquisitions are sent only under an open session. A retired session is renewed for its bodies, and revoked after the last one.
//! A *barrier* is a write of the session key. After it, no put that was sent before can apply any more (rule P10). It is sent
//! again, unchanged, until etcd responds.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::mem::take;
use std::sync::Arc;
use std::time::Duration;

use crate::ids::{ContenderId, Incarnation, Key, LeaseId, NameId, Revision, Unit};
use crate::loss::LossCause;
use crate::moment::{Deadline, Moment};
use crate::output::Refused;
use crate::request::{Failure, Refusal, Request, Response};
use crate::timers::{Jitter, LONGEST_PAUSE};
use crate::transactions;

/// The tolerated drift between the clocks of this process and etcd, as a share of the TTL (rule P28).
const DRIFT: f64 = 0.01;

/// The longest time of a renewal. Half the TTL and the stop time limit it too. etcd's gRPC proxy responds at its own
/// pace: for a TTL of 5 s, up to 2.2 s after its previous response.
const RENEWAL: Duration = Duration::from_millis(2500);

/// How often the keys of a lease are listed while calls hold some of them, in case their watches fail silently (rule P17).
pub const LIST: Duration = Duration::from_secs(60);

/// After how many TTLs without a contender a session retires: the last one of its TTL with room, and any other one.
const IDLE: [u32; 2] = [20, 1];

/// A request that is sent again until etcd responds, one at a time.
#[derive(Debug)]
struct Attempt {
    due: Moment,
    under_way: bool,
    /// The number of failures in a row.
    failures: u32,
}

impl Attempt {
    fn at(due: Moment) -> Self {
        Self { due, under_way: false, failures: 0 }
    }

    /// Begins the request if it is due. Returns true if it did.
    fn begin(&mut self, now: Moment) -> bool {
        let begins = !self.under_way && self.due <= now;
        self.under_way |= begins;
        begins
    }

    /// Schedules the next try: at once after the first failure (rule P30), else after a pause, the longest if etcd refused (P34).
    fn failed(&mut self, now: Moment, refused: bool, jitter: &mut Jitter) {
        let pause = match self.failures {
            _ if refused => jitter.pause(LONGEST_PAUSE),
            0 => Duration::ZERO,
            failures => jitter.pause(failures),
        };
        *self = Self { due: now + pause, under_way: false, failures: self.failures + 1 };
    }
}

/// A barrier without a response.
#[derive(Debug)]
struct Barrier {
    attempt: Attempt,
    /// When it was sent for the first time.
    since: Option<Moment>,
    /// True if etcd may have lost its history, which the next attempt must find out.
    suspected: bool,
}

/// A lease that etcd has granted.
#[derive(Debug)]
pub struct Lease {
    pub id: LeaseId,
    ttl: Duration,
    /// How long its bodies may rely on it.
    pub deadline: Arc<Deadline>,
    session_key: Key,
    /// The mod revision of the session key; `None`: not created yet, or found missing or put by another client.
    modified: Option<Revision>,
}

impl Lease {
    /// Returns its stop time if that is in the future.
    fn stop(&self, now: Moment) -> Option<Moment> {
        self.deadline.stop().filter(|stop| *stop > now)
    }
}

/// What a session may be used for.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Life {
    /// Acquisitions, once it has a lease and no barrier is pending.
    Serving,
    /// Its bodies. A barrier may still have to settle earlier acquisitions.
    Retired,
    /// Nothing, and its bodies must stop.
    Lost,
}

/// The kind of a session's request.
#[derive(Debug)]
pub enum Asked {
    Grant,
    Renewal,
    List,
    /// A barrier, with a key that must exist unless etcd has lost its history.
    Barrier(Option<Incarnation>),
}

/// What a session needs now, or what follows from a response.
#[derive(Debug)]
pub enum Need {
    Send(Asked, Request),
    /// Look again at these names, because the lease is fresh (rule P12).
    Serve(BTreeSet<NameId>),
    /// Delete the keys of these contenders, if they exist. None of their puts can apply any more (rule P10).
    TakeBack(BTreeSet<ContenderId>),
    /// Read the contenders whose keys are not in this list, except those held only since that moment: some may be gone.
    Read(Moment, HashSet<Vec<u8>>),
    /// Read all held keys, spread over the time until the next list, because this one failed.
    ReadInTurn,
    /// Accept no more acquisitions. With a cause the session is lost, so its bodies must stop.
    Leave(Option<LossCause>),
    /// Refuse the calls that wait for it, because it cannot be opened.
    GiveUp(Refused),
    /// Revoke its lease, because no acquisition and no body uses it (rule P26).
    End,
}

#[derive(Debug)]
pub struct Session {
    /// The requested TTL.
    pub ttl_secs: i64,
    life: Life,
    /// `None` until etcd has granted it.
    pub lease: Option<Lease>,
    /// The next request for a grant or a renewal.
    renewal: Attempt,
    /// When the first renewal without a response was sent. The next response may belong to that one.
    owed: Option<Moment>,
    /// The barrier that acquisitions wait for. The first one creates the session key.
    barrier: Option<Barrier>,
    /// When its keys are listed next.
    list: Moment,
    /// The contenders whose keys are, or may be, attached to its lease.
    pub contenders: BTreeSet<ContenderId>,
    /// Those of them that are put once the session is open, by the first of each call.
    pub units: BTreeMap<ContenderId, Unit>,
    /// Those of them whose put had no response.
    pub ambiguous: BTreeSet<ContenderId>,
    /// The number of contenders that have a body.
    pub bodies: usize,
    pub last_used: Moment,
    /// Names that would be granted if the lease were fresh (rule P12).
    pub unfresh: BTreeSet<NameId>,
}

impl Session {
    /// Makes a session whose lease is requested.
    pub fn new(now: Moment, ttl_secs: i64) -> Self {
        let mut session = Self {
            ttl_secs,
            life: Life::Serving,
            lease: None,
            renewal: Attempt::at(now),
            owed: None,
            barrier: None,
            list: now + LIST,
            contenders: BTreeSet::new(),
            units: BTreeMap::new(),
            ambiguous: BTreeSet::new(),
            bodies: 0,
            last_used: now,
            unfresh: BTreeSet::new(),
        };
        session.bar(now, false);
        session
    }

    /// Returns its lease id, once etcd has granted it.
    pub fn lease(&self) -> Option<LeaseId> {
        Some(self.lease.as_ref()?.id)
    }

    /// Returns the session key and its mod revision, which puts compare; `None` unless the session is open.
    pub fn fence(&self) -> Option<(Key, Revision)> {
        let lease = self.lease.as_ref().filter(|_| self.is_open())?;
        Some((lease.session_key.clone(), lease.modified?))
    }

    /// Returns true if acquisitions may be sent now.
    pub fn is_open(&self) -> bool {
        self.accepts() && self.barrier.is_none()
    }

    /// Returns true if acquisitions may use it, now or once it is open.
    pub fn accepts(&self) -> bool {
        self.life == Life::Serving
    }

    /// Returns true if its session key was once created, and it is not lost.
    pub fn has_opened(&self) -> bool {
        let opened = |it: &Lease| it.modified.is_some() || !self.accepts();
        !self.is_lost() && self.lease.as_ref().is_some_and(opened)
    }

    /// Returns true if nothing can rely on it any more.
    pub fn is_lost(&self) -> bool {
        self.life == Life::Lost
    }

    /// Returns true if at least half of its TTL is left (rule P12).
    pub fn is_fresh(&self, now: Moment) -> bool {
        let left = |it: &Lease| Some(it.stop(now)? + margin(it.ttl) - now >= it.ttl / 2);
        self.lease.as_ref().and_then(left).unwrap_or_default()
    }

    /// Returns when it next needs something.
    pub fn due(&self, now: Moment) -> Option<Moment> {
        let attempts = self.barrier.iter().map(|it| &it.attempt).chain([&self.renewal]);
        let attempts = attempts.filter(|it| !it.under_way).map(|it| it.due);
        let stop = self.lease.as_ref().and_then(|it| it.deadline.stop());
        let due = attempts.chain(stop).chain([self.list]);
        due.filter(|due| *due > now && !self.is_lost()).min()
    }

    /// Returns what it needs now. A returned request counts as sent. `sends`: requests other than renewals are allowed. `spare`:
    /// another session of its TTL has room. `held` returns the key of a held contender.
    pub fn need(
        &mut self,
        now: Moment,
        sends: bool,
        spare: bool,
        held: impl Fn(&ContenderId) -> Option<Incarnation>,
    ) -> Option<Need> {
        if !self.accepts() && self.bodies == 0 {
            return Some(Need::End);
        }
        if self.is_lost() {
            return None;
        }
        let Some(lease) = &self.lease else {
            let asks = sends && self.renewal.begin(now);
            return asks.then_some(Need::Send(Asked::Grant, Request::Grant(self.ttl_secs)));
        };
        let Some(stop) = lease.stop(now) else {
            return Some(Need::Leave(Some(LossCause::Expired)));
        };
        if !self.unfresh.is_empty() {
            if self.is_fresh(now) {
                return Some(Need::Serve(take(&mut self.unfresh)));
            }
            if self.renewal.failures == 0 && !self.renewal.under_way {
                self.renewal.due = self.renewal.due.min(now);
            }
        }
        if self.renewal.begin(now) {
            let idle = lease.ttl * IDLE[usize::from(spare)];
            if self.contenders.is_empty() && now - self.last_used >= idle {
                return Some(Need::Leave(None));
            }
            self.renewal.due = now + lease.ttl / 3;
            // A renewal after its bodies have stopped would only keep their keys alive.
            let timeout = (lease.ttl / 2).min(RENEWAL).min(stop - now);
            let request = Request::KeepAlive { lease: lease.id, timeout };
            return Some(Need::Send(Asked::Renewal, request));
        }
        if !sends {
            return None;
        }
        if let Some(barrier) = &mut self.barrier
            && barrier.attempt.begin(now)
        {
            barrier.since.get_or_insert(now);
            // If history went back to a time before any of them, the youngest key is missing.
            let youngest = || self.contenders.iter().rev().find_map(held);
            let witness = take(&mut barrier.suspected).then(youngest).flatten();
            let read = witness.as_ref().map(|(key, _)| key);
            let txn = transactions::barrier(&lease.session_key, lease.modified, lease.id, read);
            return Some(Need::Send(Asked::Barrier(witness), Request::Txn(txn)));
        }
        if self.list > now {
            return None;
        }
        self.list = now + LIST;
        (self.bodies > 0).then_some(Need::Send(Asked::List, Request::List(lease.id)))
    }

    /// Takes in the result of a request that was sent at `sent`. Returns what follows. `root` is the prefix of session keys.
    pub fn answered(
        &mut self,
        now: Moment,
        (sent, asked): (Moment, Asked),
        result: Result<Response, Failure>,
        root: &str,
        jitter: &mut Jitter,
    ) -> Vec<Need> {
        let opened = self.has_opened();
        let refused = matches!(result, Err(Failure::Refused(..)));
        let mut needs = Vec::new();
        match (asked, result) {
            _ if self.is_lost() => {}
            (Asked::Grant, Ok(Response::Granted { lease: id, ttl })) => {
                let deadline = Arc::new(Deadline::new(stop(sent, ttl)));
                let session_key = format!("{root}{id:x}").into();
                self.lease = Some(Lease { id, ttl, deadline, session_key, modified: None });
                self.renewal = Attempt::at(sent + ttl / 3);
            }
            (Asked::Grant, Err(why)) if refused => needs.push(Need::GiveUp(Refused::by(why))),
            (Asked::Renewal, Ok(Response::KeptAlive { ttl: Duration::ZERO, .. }))
            | (
                Asked::Renewal | Asked::Barrier(_),
                Err(Failure::Refused(Refusal::LeaseNotFound, _)),
            ) => needs.push(Need::Leave(Some(LossCause::Gone))),
            (Asked::Renewal, Ok(Response::KeptAlive { ttl, stale, .. })) => {
                (self.renewal.under_way, self.renewal.failures) = (false, 0);
                let owed = self.owed.take();
                if owed.is_some() {
                    self.hurry(now); // the next response will be its own
                }
                if let Some(lease) = &self.lease {
                    // This has no effect if the response comes too late.
                    lease.deadline.extend(now, stop(owed.unwrap_or(sent), ttl));
                }
                if stale {
                    self.bar(now, true); // a write finds out
                }
            }
            // A failure says nothing about the lease.
            (Asked::Grant, _) => self.renewal.failed(now, refused, jitter),
            (Asked::Renewal, _) => {
                self.renewal.failed(now, refused, jitter);
                self.owed = self.owed.or((!refused).then_some(sent));
            }
            (Asked::List, result) => {
                self.list = now + jitter.of(LIST);
                if matches!(result, Err(Failure::Refused(Refusal::LeaseNotFound, _))) {
                    self.hurry(now);
                }
                needs.push(match result {
                    Ok(Response::Listed(Some(keys))) => Need::Read(sent, HashSet::from_iter(keys)),
                    _ => Need::ReadInTurn,
                });
            }
            (Asked::Barrier(witness), Ok(Response::Txn(answer))) => {
                if let Some(lease) = &mut self.lease {
                    let (modified, read) = transactions::barred(answer, lease.id);
                    lease.modified = modified;
                    needs.push(Need::TakeBack(take(&mut self.ambiguous)));
                    if witness.is_some_and(|(_, created)| read != Some(created)) {
                        needs.push(Need::Read(now, HashSet::new())); // history went back
                    }
                    // The session key was deleted, or put by another client. Its lease may be gone too.
                    if modified.is_none() {
                        needs.push(Need::Leave(None));
                        self.hurry(now);
                    }
                }
                // This barrier says nothing about a suspicion that arose after it was sent.
                if self.barrier.take().is_some_and(|it| it.suspected) {
                    self.bar(now, true);
                }
            }
            (Asked::Barrier(_), Err(why)) if refused && !opened => {
                needs.push(Need::GiveUp(match Refused::by(why) {
                    Refused::PermissionDenied(cause) => Refused::SessionDenied(cause),
                    why => why,
                }));
            }
            (Asked::Barrier(witness), _) => {
                if let (Some(lease), Some(barrier)) = (&self.lease, &mut self.barrier) {
                    barrier.attempt.failed(now, refused, jitter);
                    barrier.suspected |= witness.is_some();
                    // Acquisitions continue under another session. This one stays barred.
                    let late = barrier.since.is_some_and(|since| now - since >= lease.ttl);
                    needs.extend((opened && (refused || late)).then_some(Need::Leave(None)));
                }
            }
        }
        needs
    }

    /// Takes in that etcd responds again. A barrier under way may never get a response.
    pub fn back(&mut self, now: Moment) {
        self.barrier.iter_mut().for_each(|it| it.attempt.due = now);
        if self.bodies > 0 {
            self.hurry(now);
        }
    }

    /// Renews it now, or right after a renewal under way: that one cannot show what happened after it was sent.
    pub fn hurry(&mut self, now: Moment) {
        self.renewal.due = now;
    }

    /// Requests a barrier to settle an ambiguous put, or because the session key has changed. `suspected`: to find out whether
    /// etcd has lost its history. A barrier under way settles all puts before it, but not a later suspicion.
    pub fn bar(&mut self, now: Moment, suspected: bool) {
        let barrier = || Barrier { attempt: Attempt::at(now), since: None, suspected: false };
        self.barrier.get_or_insert_with(barrier).suspected |= suspected;
    }

    /// Takes in the mod revision of its session key, read when its puts were refused. If it has changed, a barrier finds out why.
    pub fn compare(&mut self, now: Moment, modified: Option<Revision>) {
        if self.lease.as_ref().is_some_and(|it| it.modified != modified) {
            self.bar(now, false);
        }
    }

    /// Stops acquisitions, and if it is lost, its bodies. Returns its lease, unless this changes nothing.
    pub fn leave(&mut self, is_lost: bool) -> Option<&Lease> {
        let life = if is_lost { Life::Lost } else { Life::Retired };
        let lease = self.lease.as_ref().filter(|_| self.life < life)?;
        self.life = life;
        Some(lease)
    }
}

/// Returns the stop time of a lease that was requested at `sent`, with an allowance for clock drift (rule P28).
fn stop(sent: Moment, ttl: Duration) -> Moment {
    sent + ttl.mul_f64(1.0 - DRIFT) - margin(ttl)
}

/// Returns how long before expiry bodies must stop, so that a poll in progress can end.
fn margin(ttl: Duration) -> Duration {
    ttl.mul_f64(0.1).max(Duration::from_millis(300))
}
