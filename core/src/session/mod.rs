//! Session: one lease with its renewals and its session key, from the wish for it until it is retired or lost.
//!
//! ```text
//! Granting ─granted─► Live, barred ─barrier answered─► Live, open ⇄ Live, barred ─► Live, retired ─► Lost, or revoked
//! ```
//!
//! Acquisitions go only under an open session. A retired one is renewed for its bodies, and revoked once the last is dropped.

mod barrier;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

pub use barrier::Barrier;

use crate::ids::{CallId, ContenderId, Key, LeaseId, Name, Revision};
use crate::mistakes::{Mistake, mistake};
use crate::moment::{Deadline, Moment};
use crate::output::LossCause;
use crate::transactions::Fence;

/// How far this process's clock and etcd's may drift apart within one TTL (rule P28).
const DRIFT: f64 = 0.01;

/// A session that no contender has used for so many TTLs retires.
const IDLE_TTLS: u32 = 20;

/// A lease that etcd has granted.
#[derive(Debug)]
pub struct Lease {
    id: LeaseId,
    ttl: Duration,
    session_key: Key,
    /// The session key's mod revision; `None`: not created yet.
    modified: Option<Revision>,
    /// The session key was deleted, or put by another client: it proves nothing any more.
    unfenced: bool,
    valid_until: Moment,
    deadline: Arc<Deadline>,
}

/// Where a session is in its life.
#[derive(Debug)]
enum Phase {
    /// A lease is asked for, or will be at this moment.
    Granting(Ask),
    /// Acquisitions may use it, unless a barrier is under way.
    Live(Lease),
    /// No acquisitions any more; its bodies go on.
    Retired(Lease),
    /// Not to be relied on any more.
    Lost(Lease),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ask {
    Due(Moment),
    UnderWay,
}

/// When a session is renewed.
#[derive(Debug, Clone, Copy)]
struct Renewal {
    due: Moment,
    under_way: bool,
    /// Renewals that failed in a row.
    failures: u32,
}

/// What a session needs now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// Ask for its lease.
    Grant,
    /// Renew it.
    Renew,
    /// Its stop time has come.
    Stop(LossCause),
    /// No call has used it for long: retire it.
    Retire,
}

/// One session.
#[derive(Debug)]
pub struct Session {
    ttl_secs: i64,
    phase: Phase,
    renewal: Renewal,
    barrier: Barrier,
    /// etcd said that there is no such lease; why its bodies lose it.
    ended: Option<LossCause>,
    /// The contenders whose keys are, or may be, under its lease.
    contenders: BTreeSet<ContenderId>,
    /// Of these, how many have a body, or keep the lease alive like one.
    bodies: usize,
    last_used: Moment,
    /// Names whose call would be served if the lease were fresh (rule P12).
    unfresh: BTreeSet<Name>,
    /// Calls that only want to know that it is open.
    warming: Vec<CallId>,
}

impl Session {
    /// Of calls of this TTL; its lease is to be asked for.
    pub fn new(now: Moment, ttl_secs: i64) -> Self {
        Self {
            ttl_secs,
            phase: Phase::Granting(Ask::Due(now)),
            renewal: Renewal {
                due: now,
                under_way: false,
                failures: 0,
            },
            barrier: Barrier::default(),
            ended: None,
            contenders: BTreeSet::new(),
            bodies: 0,
            last_used: now,
            unfresh: BTreeSet::new(),
            warming: Vec::new(),
        }
    }

    pub fn ttl_secs(&self) -> i64 {
        self.ttl_secs
    }

    fn granted_lease(&self) -> Option<&Lease> {
        match &self.phase {
            Phase::Granting(_) => None,
            Phase::Live(lease) | Phase::Retired(lease) | Phase::Lost(lease) => Some(lease),
        }
    }

    fn lease_mut(&mut self) -> Option<&mut Lease> {
        match &mut self.phase {
            Phase::Granting(_) => None,
            Phase::Live(lease) | Phase::Retired(lease) | Phase::Lost(lease) => Some(lease),
        }
    }

    /// Its lease's id, once etcd has granted it.
    pub fn lease(&self) -> Option<LeaseId> {
        self.granted_lease().map(|lease| lease.id)
    }

    /// Until when its bodies may rely on it.
    pub fn deadline(&self) -> Option<&Arc<Deadline>> {
        self.granted_lease().map(|lease| &lease.deadline)
    }

    /// What its transactions compare; `None` while its session key is not there.
    pub fn fence(&self) -> Option<Fence> {
        let lease = self.granted_lease().filter(|lease| !lease.unfenced)?;
        Some(Fence {
            key: lease.session_key.clone(),
            modified: lease.modified?,
        })
    }

    /// Its lease is asked for now.
    pub fn asked(&mut self) {
        self.phase = Phase::Granting(Ask::UnderWay);
    }

    /// etcd did not answer that: it is asked for again at this moment.
    pub fn ask_again(&mut self, at: Moment) {
        self.phase = Phase::Granting(Ask::Due(at));
    }

    /// etcd granted its lease; `sent`: when it was asked for, from which its time is counted (rule P28).
    pub fn granted(
        &mut self,
        now: Moment,
        sent: Moment,
        id: LeaseId,
        ttl: Duration,
        session_key: Key,
    ) {
        let sent = if mistake(Mistake::DeadlineFromReceiveTime) {
            now
        } else {
            sent
        };
        let valid_until = sent + allowed(ttl);
        self.renewal.due = sent + ttl / 3;
        self.phase = Phase::Live(Lease {
            id,
            ttl,
            session_key,
            modified: None,
            unfenced: false,
            valid_until,
            deadline: Arc::new(Deadline::new(valid_until - margin(ttl))),
        });
    }

    /// Whether acquisitions may be sent under it now.
    pub fn is_open(&self) -> bool {
        self.accepts() && self.fence().is_some() && !self.barrier.is_wanted()
    }

    /// Whether acquisitions may use it, now or after a barrier.
    pub fn accepts(&self) -> bool {
        matches!(self.phase, Phase::Live(_) | Phase::Granting(_))
    }

    /// Whether etcd still knows its lease, as far as this process knows.
    pub fn is_alive(&self) -> bool {
        matches!(self.phase, Phase::Live(_) | Phase::Retired(_)) && self.ended.is_none()
    }

    pub fn is_granting(&self) -> bool {
        matches!(self.phase, Phase::Granting(_))
    }

    pub fn is_lost(&self) -> bool {
        matches!(self.phase, Phase::Lost(_))
    }

    /// Whether its session key was created.
    pub fn has_opened(&self) -> bool {
        self.granted_lease()
            .is_some_and(|lease| lease.modified.is_some())
    }

    /// Whether edges may be written under it: what was sent before is settled.
    pub fn takes_edges(&self) -> bool {
        self.is_alive() && self.has_opened() && !self.barrier.is_wanted()
    }

    /// Whether at least half its TTL is left (rule P12).
    pub fn is_fresh(&self, now: Moment) -> bool {
        let fresh = |lease: &Lease| {
            lease.valid_until - now >= lease.ttl / 2 && !lease.deadline.is_over(now)
        };
        self.granted_lease().is_some_and(fresh)
    }

    /// The moments at which it has to be looked after next.
    pub fn due(&self) -> [Option<Moment>; 2] {
        match &self.phase {
            Phase::Granting(Ask::Due(at)) => [Some(*at), None],
            Phase::Granting(Ask::UnderWay) | Phase::Lost(_) => [None, None],
            Phase::Live(lease) | Phase::Retired(lease) => {
                let renewal = (!self.renewal.under_way).then_some(self.renewal.due);
                [lease.deadline.stop(), renewal]
            }
        }
    }

    /// What it needs now, if anything.
    pub fn need(&self, now: Moment) -> Option<Need> {
        match &self.phase {
            Phase::Granting(Ask::Due(at)) if *at <= now => Some(Need::Grant),
            Phase::Granting(_) | Phase::Lost(_) => None,
            Phase::Live(lease) | Phase::Retired(lease) => {
                if lease.deadline.is_over(now) {
                    return Some(Need::Stop(self.ended.unwrap_or(LossCause::Expired)));
                }
                let idle = now - self.last_used >= lease.ttl * IDLE_TTLS;
                match self.renewal.due <= now && !self.renewal.under_way {
                    true if idle && self.is_unused() => Some(Need::Retire),
                    true => Some(Need::Renew),
                    false => None,
                }
            }
        }
    }

    /// Renews it now, unless that is under way; true if it has to be sent.
    pub fn renew(&mut self) -> bool {
        self.is_alive() && !std::mem::replace(&mut self.renewal.under_way, true)
    }

    /// How long one endpoint may take for a renewal (rule P30).
    pub fn renewal_timeout(&self) -> Duration {
        let ttl = self
            .granted_lease()
            .map_or(Duration::ZERO, |lease| lease.ttl);
        (ttl / 8).clamp(Duration::from_millis(300), Duration::from_secs(2))
    }

    /// A renewal sent at `sent` was answered; answers the names that waited for it, or `None` if it came too late.
    pub fn renewed(&mut self, now: Moment, sent: Moment, ttl: Duration) -> Option<BTreeSet<Name>> {
        self.renewal = Renewal {
            due: sent + ttl / 3,
            under_way: false,
            failures: 0,
        };
        let sent = if mistake(Mistake::DeadlineFromReceiveTime) {
            now
        } else {
            sent
        };
        let lease = self.lease_mut()?;
        lease.valid_until = lease.valid_until.max(sent + allowed(ttl));
        let stop = lease.valid_until - margin(lease.ttl);
        lease
            .deadline
            .extend(now, stop)
            .then(|| std::mem::take(&mut self.unfresh))
    }

    /// A renewal had no answer, which says nothing of the lease: it is sent again, the first time at once, by another endpoint
    /// (rule P30); then after the pause.
    pub fn renewal_failed(&mut self, now: Moment, pause: Duration) {
        let again = if self.renewal.failures == 0 {
            now
        } else {
            now + pause
        };
        self.renewal = Renewal {
            due: again,
            under_way: false,
            failures: self.renewal.failures + 1,
        };
    }

    /// How many renewals have failed in a row.
    pub fn renewal_failures(&self) -> u32 {
        self.renewal.failures
    }

    /// etcd said that there is no such lease: no body is polled from now on.
    pub fn end(&mut self, cause: LossCause) {
        self.renewal.under_way = false;
        self.ended = Some(cause);
        if let Some(deadline) = self.deadline() {
            deadline.lose();
        }
    }

    /// It takes no acquisitions any more.
    pub fn retire(&mut self) {
        self.phase = match std::mem::replace(&mut self.phase, Phase::Granting(Ask::UnderWay)) {
            Phase::Live(lease) => Phase::Retired(lease),
            other => other,
        };
    }

    /// It is not to be relied on any more: its bodies stop.
    pub fn lose(&mut self) {
        if let Some(deadline) = self.deadline() {
            deadline.lose();
        }
        self.barrier = Barrier::default();
        self.phase = match std::mem::replace(&mut self.phase, Phase::Granting(Ask::UnderWay)) {
            Phase::Live(lease) | Phase::Retired(lease) => Phase::Lost(lease),
            other => other,
        };
    }

    /// Whether it is of no more use, and no body keeps it (rule P26).
    pub fn is_over(&self) -> bool {
        let bodies = self.bodies > 0 && !mistake(Mistake::RevokeUnderABody);
        matches!(self.phase, Phase::Retired(_) | Phase::Lost(_)) && !bodies
    }

    /// A contender's keys may come under it.
    pub fn attach(&mut self, now: Moment, contender: ContenderId) {
        self.last_used = now;
        self.contenders.insert(contender);
    }

    /// A contender has no key under it any more.
    pub fn detach(&mut self, now: Moment, contender: ContenderId) {
        self.last_used = now;
        self.contenders.remove(&contender);
        self.barrier.forget(contender);
    }

    /// The contenders whose keys are, or may be, under its lease.
    pub fn contenders(&self) -> impl DoubleEndedIterator<Item = ContenderId> + '_ {
        self.contenders.iter().copied()
    }

    /// Whether no call uses it.
    pub fn is_unused(&self) -> bool {
        self.contenders.is_empty() && self.warming.is_empty()
    }

    /// How much is put under it.
    pub fn load(&self) -> usize {
        self.contenders.len()
    }

    /// A body runs under it, or it is to be kept alive as if one did.
    pub fn add_body(&mut self) {
        self.bodies += 1;
    }

    /// A body has been dropped.
    pub fn drop_body(&mut self) {
        self.bodies -= 1;
    }

    pub fn bodies(&self) -> usize {
        self.bodies
    }

    /// A call of this name would be served if the lease were fresh.
    pub fn wants_fresh(&mut self, name: Name) {
        self.unfresh.insert(name);
    }

    /// A call only wants to know that it is open.
    pub fn warm(&mut self, call: CallId) {
        self.warming.push(call);
    }

    /// The calls that wait for it to open.
    pub fn take_warming(&mut self) -> Vec<CallId> {
        std::mem::take(&mut self.warming)
    }

    /// The barrier that settles what is ambiguous.
    pub fn barrier(&self) -> &Barrier {
        &self.barrier
    }

    /// The same, to change it.
    pub fn barrier_mut(&mut self) -> &mut Barrier {
        &mut self.barrier
    }

    /// The session key is at this revision now; `None`: it is gone, or another client's.
    pub fn barred(&mut self, modified: Option<Revision>) {
        if let Some(lease) = self.lease_mut() {
            lease.modified = modified.or(lease.modified);
            lease.unfenced = modified.is_none();
        }
    }

    /// The key that its barriers put, and its revision as it is known.
    pub fn session_key(&self) -> Option<(Key, Option<Revision>)> {
        self.granted_lease()
            .map(|lease| (lease.session_key.clone(), lease.modified))
    }

    /// The TTL etcd granted.
    pub fn ttl(&self) -> Duration {
        let asked = Duration::from_secs(self.ttl_secs.unsigned_abs());
        self.granted_lease().map_or(asked, |lease| lease.ttl)
    }
}

/// What may be counted on of a TTL, whatever the clocks' drift (rule P28).
fn allowed(ttl: Duration) -> Duration {
    match mistake(Mistake::NoAllowanceForDrift) {
        true => ttl,
        false => ttl.mul_f64(1.0 - DRIFT),
    }
}

/// How long before expiry bodies stop, so that a poll under way can end.
fn margin(ttl: Duration) -> Duration {
    ttl.mul_f64(0.1).max(Duration::from_millis(300))
}
