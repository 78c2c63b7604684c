//! Session: one lease with its renewals and its session key, from the wish for it until it is lost or revoked.
//!
//! ```text
//! asking ─granted─► barred ⇄ open ─► retired ─► lost
//! ```
//!
//! Acquisitions are sent only under an open session. A retired one is renewed for its bodies, and revoked once the last is dropped.
//! A *barrier* is one write of the session key, after which nothing that was sent before it can apply any more (rule P10). It is
//! sent again, unchanged, until etcd has answered it.

use std::collections::{BTreeSet, HashSet};
use std::mem::take;
use std::sync::Arc;
use std::time::Duration;

use crate::ids::{ContenderId, Incarnation, Key, LeaseId, NameId, Revision, Unit, session_key};
use crate::loss::LossCause;
use crate::moment::{Deadline, Moment};
use crate::output::Refused;
use crate::request::{Failure, Refusal, Request, Response};
use crate::timers::{Jitter, LONGEST_PAUSE};
use crate::transactions;

/// How far this process's clock and etcd's may drift apart within one TTL (rule P28).
const DRIFT: f64 = 0.01;

/// How long a renewal may take: at most half the TTL too, and not beyond the stop time. A gRPC proxy of etcd responds at its own pace,
/// for a TTL of 5 s up to 2.2 s after the response before.
const RENEWAL: Duration = Duration::from_millis(2500);

/// How often the keys of a lease are listed while calls hold some, although their watches are silent (rule P17).
pub const LIST: Duration = Duration::from_secs(60);

/// After how many TTLs without a contender a session retires: the last one of its TTL that has room, and any other.
const IDLE: [u32; 2] = [20, 1];

/// A request that is sent until etcd has answered it, one at a time.
#[derive(Debug)]
struct Attempt {
    due: Moment,
    under_way: bool,
    /// How often in a row it failed.
    failures: u32,
}

impl Attempt {
    fn at(due: Moment) -> Self {
        Self { due, under_way: false, failures: 0 }
    }

    /// Begins it if it is due.
    fn begin(&mut self, now: Moment) -> bool {
        let begins = !self.under_way && self.due <= now;
        self.under_way |= begins;
        begins
    }

    /// It is sent again: the first time at once (rule P30), then after a pause; if etcd has refused it, after the longest (rule P34).
    fn failed(&mut self, now: Moment, refused: bool, jitter: &mut Jitter) {
        let pause = match self.failures {
            _ if refused => jitter.pause(LONGEST_PAUSE),
            0 => Duration::ZERO,
            failures => jitter.pause(failures),
        };
        *self = Self { due: now + pause, under_way: false, failures: self.failures + 1 };
    }
}

/// A barrier that etcd has not answered.
#[derive(Debug)]
struct Barrier {
    attempt: Attempt,
    /// When it was first sent.
    since: Option<Moment>,
    /// etcd may have lost its history: the next attempt is to show it.
    suspected: bool,
}

/// A lease that etcd has granted.
#[derive(Debug)]
pub struct Lease {
    pub id: LeaseId,
    ttl: Duration,
    /// Until when its bodies may rely on it.
    pub deadline: Arc<Deadline>,
    session_key: Key,
    /// The session key's mod revision; `None`: not created yet, or found missing or foreign.
    modified: Option<Revision>,
}

impl Lease {
    /// Its stop time, if that is ahead.
    fn stop(&self, now: Moment) -> Option<Moment> {
        self.deadline.stop().filter(|stop| *stop > now)
    }
}

/// What a session serves.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Life {
    /// Acquisitions, once it has a lease and no barrier.
    Serving,
    /// Its bodies. A barrier may have to settle earlier acquisitions.
    Retired,
    /// Nothing: its bodies stop.
    Lost,
}

/// What a request of a session is for.
#[derive(Debug)]
pub enum Asked {
    Grant,
    Renewal,
    List,
    /// A barrier, with a key that must be there unless etcd has lost its history.
    Barrier(Option<Incarnation>),
}

/// What a session needs now, or what follows from an answer.
#[derive(Debug)]
pub enum Need {
    Send(Asked, Request),
    /// Look at these names again: its lease is fresh (rule P12).
    Serve(BTreeSet<NameId>),
    /// Delete what is there of these: none of their puts can apply any more (rule P10).
    TakeBack(BTreeSet<ContenderId>),
    /// Read its contenders whose keys are not among these, unless they are held only since then: some may be gone.
    Read(Moment, HashSet<Vec<u8>>),
    /// Read what calls hold, all of it until the next list: its keys could not be listed.
    ReadInTurn,
    /// It takes no acquisitions any more; if it is lost, its bodies stop too.
    Leave(Option<LossCause>),
    /// Refuse the calls that wait for it: it cannot be had.
    GiveUp(Refused),
    /// Revoke its lease: it is of no more use, and no body keeps it (rule P26).
    End,
}

/// One session.
#[derive(Debug)]
pub struct Session {
    /// The TTL it was asked for with.
    pub ttl_secs: i64,
    life: Life,
    /// Once etcd has granted it.
    pub lease: Option<Lease>,
    /// The next grant or renewal.
    renewal: Attempt,
    /// When the first renewal was sent that has had no response: the next response may be to that one.
    owed: Option<Moment>,
    /// What acquisitions wait for. The first one creates the session key.
    barrier: Option<Barrier>,
    /// The next list of its keys.
    list: Moment,
    /// The contenders whose keys are, or may be, under its lease.
    pub contenders: BTreeSet<ContenderId>,
    /// Of these, those that are to be put once it is open.
    pub units: Vec<Unit>,
    /// Of these, those whose put had no answer.
    pub ambiguous: BTreeSet<ContenderId>,
    /// How many have a body.
    pub bodies: usize,
    pub last_used: Moment,
    /// Names whose call would be served if the lease were fresh (rule P12).
    pub unfresh: BTreeSet<NameId>,
}

/// What it is good for.
impl Session {
    /// One whose lease is asked for.
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
            units: Vec::new(),
            ambiguous: BTreeSet::new(),
            bodies: 0,
            last_used: now,
            unfresh: BTreeSet::new(),
        };
        session.bar(now, false);
        session
    }

    /// Its lease's id, once etcd has granted it.
    pub fn lease(&self) -> Option<LeaseId> {
        Some(self.lease.as_ref()?.id)
    }

    /// Its key and the mod revision of that, which its puts compare; `None` unless it is open.
    pub fn fence(&self) -> Option<(Key, Revision)> {
        let lease = self.lease.as_ref().filter(|_| self.is_open())?;
        Some((lease.session_key.clone(), lease.modified?))
    }

    /// Whether acquisitions may be sent under it now.
    pub fn is_open(&self) -> bool {
        self.accepts() && self.barrier.is_none()
    }

    /// Whether acquisitions may use it, now or later.
    pub fn accepts(&self) -> bool {
        self.life == Life::Serving
    }

    /// Whether its session key was created while etcd knew its lease.
    pub fn has_opened(&self) -> bool {
        let opened = |it: &Lease| it.modified.is_some() || !self.accepts();
        !self.is_lost() && self.lease.as_ref().is_some_and(opened)
    }

    /// Whether it is not to be relied on any more.
    pub fn is_lost(&self) -> bool {
        self.life == Life::Lost
    }

    /// Whether at least half its TTL is left (rule P12).
    pub fn is_fresh(&self, now: Moment) -> bool {
        let left = |it: &Lease| Some(it.stop(now)? + margin(it.ttl) - now >= it.ttl / 2);
        self.lease.as_ref().and_then(left).unwrap_or_default()
    }
}

/// What it needs, and how it goes on.
impl Session {
    /// When it has to be looked after next.
    pub fn due(&self, now: Moment) -> Option<Moment> {
        let attempts = self.barrier.iter().map(|it| &it.attempt).chain([&self.renewal]);
        let attempts = attempts.filter(|it| !it.under_way).map(|it| it.due);
        let stop = self.lease.as_ref().and_then(|it| it.deadline.stop());
        let due = attempts.chain(stop).chain([self.list]);
        due.filter(|due| *due > now && !self.is_lost()).min()
    }

    /// What it needs now, if anything; a request counts as sent. `sends`: whether more than renewals may be sent. `spare`: another
    /// session of its TTL has room. `held` returns the key of a contender that calls hold.
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
            // What comes after its bodies have stopped would only keep their keys.
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
            // The youngest key: if history went back to before any of them, it is not there.
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

    /// Takes in the result of a request that was sent then. Returns what follows. `root`: what its session key begins with.
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
                let session_key = session_key(root, id);
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
                    // Unless that comes too late.
                    lease.deadline.extend(now, stop(owed.unwrap_or(sent), ttl));
                }
                if stale {
                    self.bar(now, true); // a write finds out
                }
            }
            // It says nothing of the lease.
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
                    // The session key was deleted, or put by another client; perhaps its lease is gone too.
                    if modified.is_none() {
                        needs.push(Need::Leave(None));
                        self.hurry(now);
                    }
                }
                // Of what was suspected since it was sent, it shows nothing.
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
                    // Acquisitions go on under another session. This one is barred as long as it lives.
                    let late = barrier.since.is_some_and(|since| now - since >= lease.ttl);
                    needs.extend((opened && (refused || late)).then_some(Need::Leave(None)));
                }
            }
        }
        needs
    }

    /// etcd answers again. A barrier under way may never be answered.
    pub fn back(&mut self, now: Moment) {
        self.barrier.iter_mut().for_each(|it| it.attempt.due = now);
        if self.bodies > 0 {
            self.hurry(now);
        }
    }

    /// It is renewed now; if a renewal is under way, after that, which says nothing of what has happened since it was sent.
    pub fn hurry(&mut self, now: Moment) {
        self.renewal.due = now;
    }

    /// A barrier is wanted: to settle a put without an answer, because the session key has moved, or (`suspected`) to show whether
    /// etcd has lost its history. One that is under way settles all puts before it, but shows nothing of a later suspicion.
    pub fn bar(&mut self, now: Moment, suspected: bool) {
        let barrier = || Barrier { attempt: Attempt::at(now), since: None, suspected: false };
        self.barrier.get_or_insert_with(barrier).suspected |= suspected;
    }

    /// Takes in the mod revision of its session key, which was read when its puts were refused: a barrier finds out why it is another.
    pub fn compare(&mut self, now: Moment, modified: Option<Revision>) {
        if self.lease.as_ref().is_some_and(|it| it.modified != modified) {
            self.bar(now, false);
        }
    }

    /// A contender's put had no answer: a barrier is to settle that.
    pub fn doubt(&mut self, now: Moment, contender: ContenderId) {
        self.ambiguous.insert(contender);
        self.bar(now, false);
    }

    /// It takes no acquisitions any more; if it is lost, its bodies stop too. Returns its lease, unless that was so before.
    pub fn leave(&mut self, is_lost: bool) -> Option<&Lease> {
        let life = if is_lost { Life::Lost } else { Life::Retired };
        let lease = self.lease.as_ref().filter(|_| self.life < life)?;
        self.life = life;
        Some(lease)
    }
}

/// The stop time of a TTL that was asked for at `sent`, whatever the clocks' drift (rule P28).
fn stop(sent: Moment, ttl: Duration) -> Moment {
    sent + ttl.mul_f64(1.0 - DRIFT) - margin(ttl)
}

/// How long before expiry bodies stop, so that a poll under way can end.
fn margin(ttl: Duration) -> Duration {
    ttl.mul_f64(0.1).max(Duration::from_millis(300))
}
