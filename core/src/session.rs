//! Session: one lease with its renewals and its session key, from the wish for it until it is lost or revoked.
//!
//! ```text
//! Asking ─granted─► Barred ⇄ Open ─► Retired ─► Lost
//! ```
//!
//! Acquisitions are sent only under an open session. A retired one is renewed for its bodies, and revoked once the last is dropped.
//! A *barrier* is one write of the session key, after which nothing that was sent before it can apply any more (rule P10). It is
//! sent again, unchanged, until etcd has answered it.

use std::collections::BTreeSet;
use std::mem::take;
use std::sync::Arc;
use std::time::Duration;

use crate::ids::{ContenderId, Key, LeaseId, NameId, Revision};
use crate::loss::LossCause;
use crate::moment::{Deadline, Moment};
use crate::outbox::Line;
use crate::request::Compare;

/// How far this process's clock and etcd's may drift apart within one TTL (rule P28).
const DRIFT: f64 = 0.01;

/// How long a renewal may take: at most half the TTL too, and not beyond the stop time. A gRPC proxy of etcd responds at its own pace,
/// for a TTL of 5 s up to 2.2 s after the response before.
const RENEWAL: Duration = Duration::from_millis(2500);

/// How often the keys of a lease are listed while calls hold some, although their watches are silent (rule P17).
pub const LIST: Duration = Duration::from_secs(60);

/// The TTLs for which no contender has used a session when it retires: the last one of a TTL with room, and any other.
const IDLE: [u32; 2] = [20, 1];

/// A lease that etcd has granted.
#[derive(Debug)]
pub struct Lease {
    id: LeaseId,
    ttl: Duration,
    session_key: Key,
    /// The session key's mod revision; `None`: not created yet, or found missing or foreign.
    modified: Option<Revision>,
    valid_until: Moment,
    deadline: Arc<Deadline>,
    /// The next list of its keys.
    list: Attempt,
}

/// A barrier that etcd has not answered.
#[derive(Debug)]
pub struct Barrier {
    attempt: Attempt,
    /// When it was first sent.
    since: Option<Moment>,
    /// etcd may have lost its history: the next attempt is to show it.
    suspected: bool,
}

impl Barrier {
    fn new(now: Moment, suspected: bool) -> Self {
        Self { attempt: Attempt::at(now), since: None, suspected }
    }
}

/// Where a session is in its life.
#[derive(Debug, Default)]
enum Life {
    /// Its lease is asked for.
    #[default]
    Asking,
    /// Acquisitions wait for a barrier. The first one creates the session key.
    Barred(Lease, Barrier),
    /// Acquisitions may be sent.
    Open(Lease),
    /// It takes no acquisitions any more, and its bodies go on. A barrier may have to settle earlier ones.
    Retired(Lease, Option<Barrier>),
    /// Its bodies stop.
    Lost(Lease),
}

/// A request that is sent again until etcd has answered it, one at a time: when it is due, once none is under way.
#[derive(Debug, Clone, Copy)]
struct Attempt {
    due: Moment,
    under_way: bool,
}

impl Attempt {
    fn at(due: Moment) -> Self {
        Self { due, under_way: false }
    }

    /// Begins it if it is due.
    fn begin(&mut self, now: Moment) -> bool {
        let begins = !self.under_way && self.due <= now;
        self.under_way |= begins;
        begins
    }

    /// When it is sent, unless it is under way.
    fn next(self) -> Option<Moment> {
        (!self.under_way).then_some(self.due)
    }
}

/// What a session needs now.
#[derive(Debug)]
pub enum Need {
    /// Grant its lease, with this TTL in seconds.
    Grant(i64),
    /// Renew its lease within this time (rule P30).
    Renew(LeaseId, Duration),
    /// Send a barrier: its session key, with the revision that is known, and its lease. If `suspected`, it is to show whether etcd has
    /// lost its history.
    Barrier { key: Key, modified: Option<Revision>, lease: LeaseId, suspected: bool },
    /// List the keys of its lease (rule P17).
    List(LeaseId),
    /// Stop its bodies: its stop time has come.
    Stop,
    /// Retire it: no call has used it for long.
    Retire,
}

/// One session.
#[derive(Debug)]
pub struct Session {
    ttl_secs: i64,
    life: Life,
    /// The next grant or renewal.
    renewal: Attempt,
    /// How often in a row it failed.
    failures: u32,
    /// The contenders whose keys are, or may be, under its lease.
    contenders: BTreeSet<ContenderId>,
    /// Of these, those that wait to be put, and the puts under way.
    puts: Line<ContenderId>,
    /// Of these, those whose put had no answer.
    ambiguous: BTreeSet<ContenderId>,
    /// How many have a body.
    bodies: usize,
    last_used: Moment,
    /// Names whose call would be served if the lease were fresh (rule P12).
    unfresh: BTreeSet<NameId>,
}

impl Session {
    /// One whose lease is asked for.
    pub fn new(now: Moment, ttl_secs: i64) -> Self {
        Self {
            ttl_secs,
            life: Life::Asking,
            renewal: Attempt::at(now),
            failures: 0,
            contenders: BTreeSet::new(),
            puts: Line::default(),
            ambiguous: BTreeSet::new(),
            bodies: 0,
            last_used: now,
            unfresh: BTreeSet::new(),
        }
    }

    /// The TTL it was asked for with, in seconds.
    pub fn ttl_secs(&self) -> i64 {
        self.ttl_secs
    }

    fn granted_lease(&self) -> Option<&Lease> {
        match &self.life {
            Life::Asking => None,
            Life::Barred(lease, _) | Life::Open(lease) => Some(lease),
            Life::Retired(lease, _) | Life::Lost(lease) => Some(lease),
        }
    }

    fn lease_mut(&mut self) -> Option<&mut Lease> {
        match &mut self.life {
            Life::Asking => None,
            Life::Barred(lease, _) | Life::Open(lease) => Some(lease),
            Life::Retired(lease, _) | Life::Lost(lease) => Some(lease),
        }
    }

    /// Its lease's id, once etcd has granted it.
    pub fn lease(&self) -> Option<LeaseId> {
        Some(self.granted_lease()?.id)
    }

    /// Until when its bodies may rely on it.
    pub fn deadline(&self) -> Option<&Arc<Deadline>> {
        Some(&self.granted_lease()?.deadline)
    }

    /// What its transactions compare; `None` while its session key is not there.
    pub fn fence(&self) -> Option<Compare> {
        let lease = self.granted_lease()?;
        Some(Compare::Modified(lease.session_key.clone(), lease.modified?))
    }

    /// Whether acquisitions may be sent under it now.
    pub fn is_open(&self) -> bool {
        matches!(self.life, Life::Open(_))
    }

    /// Whether acquisitions may use it, now or later.
    pub fn accepts(&self) -> bool {
        matches!(self.life, Life::Asking | Life::Barred(..) | Life::Open(_))
    }

    /// Whether etcd still knows its lease, as far as this process knows.
    pub fn is_alive(&self) -> bool {
        !matches!(self.life, Life::Asking | Life::Lost(_))
    }

    /// Whether its session key was created while etcd knew its lease.
    pub fn has_opened(&self) -> bool {
        let opens = matches!(&self.life, Life::Barred(lease, _) if lease.modified.is_none());
        self.is_alive() && !opens
    }

    /// Whether it is not to be relied on any more.
    pub fn is_lost(&self) -> bool {
        matches!(self.life, Life::Lost(_))
    }

    /// Whether at least half its TTL is left (rule P12).
    pub fn is_fresh(&self, now: Moment) -> bool {
        self.granted_lease().is_some_and(|lease| {
            lease.valid_until - now >= lease.ttl / 2 && !lease.deadline.is_over(now)
        })
    }

    /// Whether its stop time has come, and it is not lost yet.
    pub fn has_to_stop(&self, now: Moment) -> bool {
        self.is_alive() && self.deadline().is_some_and(|deadline| deadline.is_over(now))
    }

    /// When it has to be looked after next.
    pub fn due(&self, now: Moment) -> Option<Moment> {
        let barrier = match &self.life {
            Life::Barred(_, barrier) | Life::Retired(_, Some(barrier)) => barrier.attempt.next(),
            Life::Lost(_) => return None,
            _ => None,
        };
        let lease = self.granted_lease();
        let stop = lease.and_then(|lease| lease.deadline.stop());
        let list = lease.and_then(|lease| lease.list.next());
        let due = [stop, self.renewal.next(), barrier, list].into_iter().flatten();
        due.filter(|due| *due > now).min()
    }

    /// What it needs now, if anything; a request counts as sent. `sends`: whether more than renewals may be sent. `spare`: another
    /// session of its TTL has room.
    pub fn need(&mut self, now: Moment, sends: bool, spare: bool) -> Option<Need> {
        if !self.unfresh.is_empty() && self.failures == 0 && !self.renewal.under_way {
            self.renewal.due = self.renewal.due.min(now);
        }
        let (lease, barrier) = match &mut self.life {
            Life::Lost(_) => return None,
            Life::Asking => {
                let asks = sends && self.renewal.begin(now);
                return asks.then_some(Need::Grant(self.ttl_secs));
            }
            Life::Open(lease) => (lease, None),
            Life::Barred(lease, barrier) => (lease, Some(barrier)),
            Life::Retired(lease, barrier) => (lease, barrier.as_mut()),
        };
        let Some(stop) = lease.deadline.stop().filter(|stop| *stop > now) else {
            return Some(Need::Stop);
        };
        if self.renewal.begin(now) {
            if self.contenders.is_empty()
                && now - self.last_used >= lease.ttl * IDLE[usize::from(spare)]
            {
                return Some(Need::Retire);
            }
            self.renewal.due = now + lease.ttl / 3;
            // What comes after its bodies have stopped would only keep their keys.
            let timeout = (lease.ttl / 2).min(RENEWAL).min(stop - now);
            return Some(Need::Renew(lease.id, timeout));
        }
        if !sends {
            return None;
        }
        if let Some(barrier) = barrier
            && barrier.attempt.begin(now)
        {
            barrier.since.get_or_insert(now);
            return Some(Need::Barrier {
                key: lease.session_key.clone(),
                modified: lease.modified,
                lease: lease.id,
                suspected: take(&mut barrier.suspected),
            });
        }
        if lease.list.begin(now) {
            if self.bodies > 0 {
                return Some(Need::List(lease.id));
            }
            lease.list = Attempt::at(now + LIST);
        }
        None
    }

    /// etcd granted its lease; `sent`: when it was asked for, from which its time is counted (rule P28).
    pub fn granted(
        &mut self,
        now: Moment,
        sent: Moment,
        (id, ttl): (LeaseId, Duration),
        session_key: Key,
    ) {
        let valid_until = valid_until(sent, ttl);
        self.renewal = Attempt::at(sent + ttl / 3);
        self.failures = 0;
        let lease = Lease {
            id,
            ttl,
            session_key,
            modified: None,
            valid_until,
            deadline: Arc::new(Deadline::new(valid_until - margin(ttl))),
            list: Attempt::at(now + LIST),
        };
        self.life = Life::Barred(lease, Barrier::new(now, false));
    }

    /// It is renewed now; if a renewal is under way, after that, which says nothing of what has happened since it was sent.
    pub fn hurry(&mut self, now: Moment) {
        self.renewal.due = now;
    }

    /// A renewal sent at `sent` was answered; answers the names that waited for it, or `None` if it came too late.
    pub fn renewed(
        &mut self,
        now: Moment,
        sent: Moment,
        ttl: Duration,
    ) -> Option<BTreeSet<NameId>> {
        self.renewal.under_way = false;
        self.failures = 0;
        let lease = self.lease_mut()?;
        lease.valid_until = lease.valid_until.max(valid_until(sent, ttl));
        let stop = lease.valid_until - margin(lease.ttl);
        let extended = lease.deadline.extend(now, stop);
        extended.then(|| take(&mut self.unfresh))
    }

    /// A grant or renewal had no answer, which says nothing of the lease: it is sent again, the first time at once (rule P30), then
    /// after the pause.
    pub fn renewal_failed(&mut self, now: Moment, pause: Duration) {
        let first = self.failures == 0;
        self.renewal = Attempt::at(if first { now } else { now + pause });
        self.failures += 1;
    }

    /// How many grants or renewals have failed in a row.
    pub fn renewal_failures(&self) -> u32 {
        self.failures
    }

    /// It takes no acquisitions any more.
    pub fn retire(&mut self) {
        self.life = match take(&mut self.life) {
            Life::Barred(lease, barrier) => Life::Retired(lease, Some(barrier)),
            Life::Open(lease) => Life::Retired(lease, None),
            other => other,
        };
    }

    /// It is not to be relied on any more: its bodies stop. Answers how it was lost: what a body has seen first stands.
    pub fn lose(&mut self, cause: LossCause) -> LossCause {
        let cause = self.deadline().map_or(cause, |it| it.lose(cause));
        self.life = match take(&mut self.life) {
            Life::Barred(lease, _) | Life::Open(lease) | Life::Retired(lease, _) => {
                Life::Lost(lease)
            }
            other => other,
        };
        cause
    }

    /// Whether it is of no more use, and no body keeps it (rule P26).
    pub fn is_over(&self) -> bool {
        !self.accepts() && self.bodies == 0
    }

    /// The contenders to be put under it.
    pub fn puts(&mut self) -> &mut Line<ContenderId> {
        &mut self.puts
    }

    /// Whether some may be put now.
    pub fn has_puts(&self) -> bool {
        self.is_open() && self.puts.is_ready()
    }

    /// The contenders whose keys are, or may be, under its lease.
    pub fn contenders(&self) -> impl DoubleEndedIterator<Item = ContenderId> + '_ {
        self.contenders.iter().copied()
    }

    /// The contenders of a call are to be put under it, in one transaction. Returns how many it has now.
    pub fn attach(&mut self, now: Moment, contenders: &[ContenderId]) -> usize {
        self.last_used = now;
        self.contenders.extend(contenders);
        // Those that gave up while etcd was away are still in the line.
        let wanted = &self.contenders;
        self.puts.tidy(wanted.len(), |id| wanted.contains(id));
        contenders.first().into_iter().for_each(|lead| self.puts.push(*lead));
        self.contenders.len()
    }

    /// A contender has no key under it any more. Returns how many it has now.
    pub fn detach(&mut self, now: Moment, contender: ContenderId) -> usize {
        self.last_used = now;
        self.contenders.remove(&contender);
        self.ambiguous.remove(&contender);
        self.contenders.len()
    }

    /// Whether no call uses it.
    pub fn is_unused(&self) -> bool {
        self.contenders.is_empty()
    }

    /// A body runs under it.
    pub fn add_body(&mut self) {
        self.bodies += 1;
    }

    /// A body has been dropped.
    pub fn drop_body(&mut self) {
        self.bodies -= 1;
    }

    /// How many bodies it has.
    pub fn bodies(&self) -> usize {
        self.bodies
    }

    /// A call of this name would be served if the lease were fresh: it is renewed, unless that has failed and is tried again later.
    pub fn wants_fresh(&mut self, name: NameId) {
        self.unfresh.insert(name);
    }

    /// A barrier is wanted: to settle a put without an answer, because the session key has moved, or (`suspected`) to show whether
    /// etcd has lost its history. One that is under way settles all puts before it, but shows nothing of a later suspicion.
    pub fn bar(&mut self, now: Moment, suspected: bool) {
        self.life = match take(&mut self.life) {
            Life::Open(lease) => Life::Barred(lease, Barrier::new(now, suspected)),
            Life::Retired(lease, None) => Life::Retired(lease, Some(Barrier::new(now, suspected))),
            other => other,
        };
        if let Life::Barred(_, barrier) | Life::Retired(_, Some(barrier)) = &mut self.life {
            barrier.suspected |= suspected;
        }
    }

    /// A contender's put had no answer: a barrier is to settle that.
    pub fn doubt(&mut self, now: Moment, contender: ContenderId) {
        self.ambiguous.insert(contender);
        self.bar(now, false);
    }

    /// The contenders whose put had no answer; no barrier asks for them any more.
    pub fn take_ambiguous(&mut self) -> BTreeSet<ContenderId> {
        take(&mut self.ambiguous)
    }

    /// Its keys were listed, or not: they are to be listed at that moment.
    pub fn listed(&mut self, next: Moment) {
        if let Some(lease) = self.lease_mut() {
            lease.list = Attempt::at(next);
        }
    }

    /// Whether a barrier has no answer yet that was not sent before this moment, or is to be sent next.
    pub fn is_barred_since(&self, then: Moment) -> bool {
        match &self.life {
            Life::Barred(_, barrier) | Life::Retired(_, Some(barrier)) => {
                barrier.since.is_none_or(|since| since >= then)
            }
            _ => false,
        }
    }

    /// A barrier was answered: the session key is at this revision now; `None`: it is gone, or another client's.
    pub fn barrier_answered(&mut self, now: Moment, modified: Option<Revision>) {
        let again = |barrier: Barrier| barrier.suspected.then(|| Barrier::new(now, true));
        self.life = match take(&mut self.life) {
            Life::Barred(lease, barrier) => match again(barrier) {
                Some(next) => Life::Barred(lease, next),
                None => Life::Open(lease),
            },
            Life::Retired(lease, barrier) => Life::Retired(lease, barrier.and_then(again)),
            other => other,
        };
        if let Some(lease) = self.lease_mut() {
            lease.modified = modified;
        }
    }

    /// A barrier had no answer, or was `refused`: it is sent again at this moment. True if it has failed for too long: then
    /// acquisitions go on under another session; this one is barred until etcd has answered, as long as it lives.
    pub fn barrier_failed(
        &mut self,
        now: Moment,
        again: Moment,
        refused: bool,
        suspected: bool,
    ) -> bool {
        let opened = self.has_opened();
        let (Life::Barred(lease, barrier) | Life::Retired(lease, Some(barrier))) = &mut self.life
        else {
            return false;
        };
        barrier.attempt = Attempt::at(again);
        barrier.suspected |= suspected;
        opened && (refused || barrier.since.is_some_and(|since| now - since >= lease.ttl))
    }
}

/// Until when a TTL may be counted on that was asked for at `sent`, whatever the clocks' drift (rule P28).
fn valid_until(sent: Moment, ttl: Duration) -> Moment {
    sent + ttl.mul_f64(1.0 - DRIFT)
}

/// How long before expiry bodies stop, so that a poll under way can end.
fn margin(ttl: Duration) -> Duration {
    ttl.mul_f64(0.1).max(Duration::from_millis(300))
}
