//! Session: one lease with its renewals and its session key, from the wish for it until it is retired or lost; and the pool of
//! them.
//!
//! ```text
//! granting ─granted─► live, barred ─barrier answered─► live, open ⇄ live, barred ─► retired ─► lost, or revoked
//! ```
//!
//! Acquisitions go only under an open session. A retired one is renewed for its bodies, and revoked once the last is dropped.
//! A *barrier* is one write of the session key, after which nothing that was sent before it can apply any more (rule P10). It is
//! sent again, unchanged, until etcd has answered it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::batch::Line;
use crate::ids::{CallId, ContenderId, Key, LeaseId, Name, Revision, SessionId};
use crate::loss::LossCause;
use crate::moment::{Deadline, Moment};
use crate::transactions::Fence;

/// How far this process's clock and etcd's may drift apart within one TTL (rule P28).
const DRIFT: f64 = 0.01;

/// How long a renewal may take: at most half the TTL too, and not beyond the stop time.
const RENEWAL: Duration = Duration::from_secs(2);

/// How often the keys of a lease are listed while calls hold some, although their watches are silent (rule P17).
pub const LIST: Duration = Duration::from_secs(60);

/// A session that no contender has used for so many TTLs retires.
const IDLE_TTLS: u32 = 20;

/// Sessions of one TTL: renewals must not grow with the number of locks held (invariant I8).
const MOST: usize = 8;

/// How many leases are remembered that were to be revoked: more than sessions end in the time of a read.
const OVER: usize = 64;

/// A lease that etcd has granted.
#[derive(Debug)]
struct Lease {
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

/// What a session is good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Acquisitions may use it, once it is open.
    Live,
    /// No acquisitions any more; its bodies go on.
    Retired,
    /// Not to be relied on any more.
    Lost(LossCause),
}

/// What is sent again until etcd has answered it, one at a time.
#[derive(Debug, Clone, Copy)]
struct Attempt {
    due: Moment,
    under_way: bool,
}

impl Attempt {
    fn at(due: Moment) -> Self {
        Self { due, under_way: false }
    }

    fn is_due(self, now: Moment) -> bool {
        !self.under_way && self.due <= now
    }

    /// When it is sent, unless it is under way.
    fn next(self) -> Option<Moment> {
        (!self.under_way).then_some(self.due)
    }
}

/// The barriers of one session: one at a time.
#[derive(Debug, Default)]
struct Barrier {
    /// One is wanted: to create the session key, to settle a write without an answer, or because the session key has moved.
    wanted: bool,
    /// etcd may have lost its history, and no barrier was sent since that came up.
    suspicious: bool,
    /// The one that has no answer yet, and since when it is sent.
    current: Option<(Moment, Attempt)>,
}

/// What a session needs now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// Ask for its lease.
    Grant,
    /// Renew it.
    Renew,
    /// Its stop time has come.
    Stop,
    /// No call has used it for long: retire it.
    Retire,
}

/// One session.
#[derive(Debug)]
pub struct Session {
    ttl_secs: i64,
    phase: Phase,
    /// `None` until etcd has granted it.
    lease: Option<Lease>,
    /// The next grant or renewal.
    renewal: Attempt,
    /// How often in a row it failed.
    failures: u32,
    barrier: Barrier,
    /// The next list of its keys.
    list: Attempt,
    /// The contenders whose keys are, or may be, under its lease.
    contenders: BTreeSet<ContenderId>,
    /// Of these, those that wait to be put, and the puts under way.
    puts: Line<ContenderId>,
    /// Of these, those whose put had no answer.
    ambiguous: BTreeSet<ContenderId>,
    /// Of these, held ones of which a key was seen to be gone, and when that was.
    missing: Vec<(Moment, ContenderId)>,
    /// How many have a body, or keep the lease alive like one.
    bodies: usize,
    last_used: Moment,
    /// Names whose call would be served if the lease were fresh (rule P12).
    unfresh: BTreeSet<Name>,
    /// Calls that only want to know that it is open.
    warming: BTreeSet<CallId>,
}

impl Session {
    fn new(now: Moment, ttl_secs: i64) -> Self {
        Self {
            ttl_secs,
            phase: Phase::Live,
            lease: None,
            renewal: Attempt::at(now),
            failures: 0,
            barrier: Barrier::default(),
            list: Attempt::at(now + LIST),
            contenders: BTreeSet::new(),
            puts: Line::default(),
            ambiguous: BTreeSet::new(),
            missing: Vec::new(),
            bodies: 0,
            last_used: now,
            unfresh: BTreeSet::new(),
            warming: BTreeSet::new(),
        }
    }

    /// The TTL it was asked for with, in seconds.
    pub fn ttl_secs(&self) -> i64 {
        self.ttl_secs
    }

    /// Its lease's id, once etcd has granted it.
    pub fn lease(&self) -> Option<LeaseId> {
        self.lease.as_ref().map(|lease| lease.id)
    }

    /// Until when its bodies may rely on it.
    pub fn deadline(&self) -> Option<&Arc<Deadline>> {
        self.lease.as_ref().map(|lease| &lease.deadline)
    }

    /// What its transactions compare; `None` while its session key is not there.
    pub fn fence(&self) -> Option<Fence> {
        let lease = self.lease.as_ref().filter(|lease| !lease.unfenced)?;
        Some(Fence { key: lease.session_key.clone(), modified: lease.modified? })
    }

    /// Whether acquisitions may be sent under it now.
    pub fn is_open(&self) -> bool {
        self.accepts() && self.fence().is_some() && !self.is_barred()
    }

    /// Whether acquisitions may use it, now or after a barrier.
    pub fn accepts(&self) -> bool {
        self.phase == Phase::Live
    }

    /// Whether etcd still knows its lease, as far as this process knows.
    pub fn is_alive(&self) -> bool {
        self.lease.is_some() && !self.is_lost()
    }

    /// How it was lost, if it was.
    pub fn loss(&self) -> Option<LossCause> {
        match self.phase {
            Phase::Lost(cause) => Some(cause),
            Phase::Live | Phase::Retired => None,
        }
    }

    /// Whether it is not to be relied on any more.
    pub fn is_lost(&self) -> bool {
        self.loss().is_some()
    }

    /// Whether its session key was created.
    pub fn has_opened(&self) -> bool {
        let lease = self.lease.as_ref();
        lease.is_some_and(|lease| lease.modified.is_some())
    }

    /// Whether edges may be written under it: what was sent before is settled.
    pub fn takes_edges(&self) -> bool {
        self.is_alive() && self.has_opened() && !self.is_barred()
    }

    /// Whether at least half its TTL is left (rule P12).
    pub fn is_fresh(&self, now: Moment) -> bool {
        self.lease.as_ref().is_some_and(|lease| {
            lease.valid_until - now >= lease.ttl / 2 && !lease.deadline.is_over(now)
        })
    }

    /// When it has to be looked after next.
    pub fn due(&self, now: Moment) -> Option<Moment> {
        let stop = self.deadline().and_then(|deadline| deadline.stop());
        let barrier = self.barrier.current.and_then(|(_, current)| current.next());
        let due = [stop, self.renewal.next(), barrier, self.list.next()];
        let due = due.into_iter().flatten();
        due.filter(|due| *due > now && !self.is_lost()).min()
    }

    /// What it needs now, if anything.
    pub fn need(&self, now: Moment) -> Option<Need> {
        let due = self.renewal.is_due(now);
        match &self.lease {
            _ if self.is_lost() => None,
            None => due.then_some(Need::Grant),
            Some(lease) if lease.deadline.is_over(now) => Some(Need::Stop),
            Some(lease) => {
                let idle = self.is_unused() && now - self.last_used >= lease.ttl * IDLE_TTLS;
                due.then_some(if idle { Need::Retire } else { Need::Renew })
            }
        }
    }

    /// Its lease is asked for now.
    pub fn ask(&mut self) {
        self.renewal.under_way = true;
    }

    /// etcd granted its lease; `sent`: when it was asked for, from which its time is counted (rule P28).
    pub fn granted(&mut self, sent: Moment, (id, ttl): (LeaseId, Duration), session_key: Key) {
        let valid_until = valid_until(sent, ttl);
        self.renewal = Attempt::at(sent + ttl / 3);
        self.failures = 0;
        self.barrier.wanted = true;
        self.lease = Some(Lease {
            id,
            ttl,
            session_key,
            modified: None,
            unfenced: false,
            valid_until,
            deadline: Arc::new(Deadline::new(valid_until - margin(ttl))),
        });
    }

    /// Renews it now, unless that is under way: its lease, and how long that may take (rule P30).
    pub fn renew(&mut self, now: Moment) -> Option<(LeaseId, Duration)> {
        let lease = self.lease.as_ref().filter(|_| !self.is_lost())?;
        // What comes after its bodies have stopped would only keep their keys.
        let left = lease.deadline.stop()? - now;
        let timeout = (lease.ttl / 2).min(RENEWAL).min(left);
        if timeout.is_zero() {
            return None;
        }
        let first = !std::mem::replace(&mut self.renewal.under_way, true);
        first.then_some((lease.id, timeout))
    }

    /// A renewal sent at `sent` was answered; answers the names that waited for it, or `None` if it came too late.
    pub fn renewed(&mut self, now: Moment, sent: Moment, ttl: Duration) -> Option<BTreeSet<Name>> {
        self.renewal = Attempt::at(sent + ttl / 3);
        self.failures = 0;
        let lease = self.lease.as_mut()?;
        lease.valid_until = lease.valid_until.max(valid_until(sent, ttl));
        let stop = lease.valid_until - margin(lease.ttl);
        let extended = lease.deadline.extend(now, stop);
        extended.then(|| std::mem::take(&mut self.unfresh))
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
        self.phase = Phase::Retired;
    }

    /// It is not to be relied on any more: its bodies stop. Answers how it was lost: what a body has seen first stands.
    pub fn lose(&mut self, cause: LossCause) -> LossCause {
        let cause = self.deadline().map_or(cause, |it| it.lose(cause));
        self.phase = Phase::Lost(cause);
        self.barrier = Barrier::default();
        cause
    }

    /// Whether it is of no more use, and no body keeps it (rule P26).
    pub fn is_over(&self) -> bool {
        !self.accepts() && self.bodies == 0
    }

    /// A contender's keys are to be put under it.
    pub fn attach(&mut self, now: Moment, contender: ContenderId) {
        self.last_used = now;
        self.contenders.insert(contender);
        // Those that gave up while etcd was away are still in the line.
        let wanted = &self.contenders;
        self.puts.tidy(wanted.len(), |id| wanted.contains(id));
        self.puts.push(contender);
    }

    /// The contenders to be put under it.
    pub fn puts(&mut self) -> &mut Line<ContenderId> {
        &mut self.puts
    }

    /// Whether some may be put now.
    pub fn has_puts(&self) -> bool {
        self.is_open() && self.puts.is_ready()
    }

    /// A contender has no key under it any more.
    pub fn detach(&mut self, now: Moment, contender: ContenderId) {
        self.last_used = now;
        self.contenders.remove(&contender);
        self.ambiguous.remove(&contender);
    }

    /// The contenders whose keys are, or may be, under its lease.
    pub fn contenders(&self) -> impl DoubleEndedIterator<Item = ContenderId> + '_ {
        self.contenders.iter().copied()
    }

    /// Whether no call uses it.
    pub fn is_unused(&self) -> bool {
        self.contenders.is_empty() && self.warming.is_empty()
    }

    /// A body runs under it, or it is to be kept alive as if one did.
    pub fn add_body(&mut self) {
        self.bodies += 1;
    }

    /// A body has been dropped.
    pub fn drop_body(&mut self) {
        self.bodies -= 1;
    }

    /// How many bodies it has, or what keeps it alive like one.
    pub fn bodies(&self) -> usize {
        self.bodies
    }

    /// A call of this name would be served if the lease were fresh.
    pub fn wants_fresh(&mut self, name: Name) {
        self.unfresh.insert(name);
    }

    /// A call only wants to know that it is open.
    pub fn warm(&mut self, call: CallId) {
        self.warming.insert(call);
    }

    /// The calls that wait for it to open.
    pub fn take_warming(&mut self) -> BTreeSet<CallId> {
        std::mem::take(&mut self.warming)
    }

    /// A barrier is wanted.
    pub fn want_barrier(&mut self) {
        self.barrier.wanted = true;
    }

    /// One is wanted, to find out whether etcd has lost its history.
    pub fn suspect(&mut self) {
        self.barrier.wanted = true;
        self.barrier.suspicious = true;
    }

    /// A contender's put had no answer: a barrier is to settle that.
    pub fn doubt(&mut self, contender: ContenderId) {
        self.barrier.wanted = true;
        self.ambiguous.insert(contender);
    }

    /// The contenders whose put had no answer; no barrier asks for them any more.
    pub fn take_ambiguous(&mut self) -> BTreeSet<ContenderId> {
        std::mem::take(&mut self.ambiguous)
    }

    /// A key of a held contender is gone. The next renewal shows whether the lease is gone too.
    pub fn miss(&mut self, now: Moment, contender: ContenderId) {
        self.missing.push((now, contender));
    }

    /// Takes out the contenders whose key had gone before a renewal was sent, as its outcome is about them; and tells whether others
    /// are left.
    pub fn take_missing(&mut self, sent: Moment) -> (Vec<ContenderId>, bool) {
        let shown = self.missing.extract_if(.., |(seen, _)| *seen <= sent);
        let shown = shown.map(|(_, contender)| contender).collect();
        (shown, !self.missing.is_empty())
    }

    /// The lease whose keys are to be listed now, if calls hold some.
    pub fn next_list(&mut self, now: Moment) -> Option<LeaseId> {
        let due = self.list.is_due(now) && self.is_alive();
        due.then_some(())?;
        if self.bodies == 0 {
            self.listed(now + LIST);
            return None;
        }
        self.list.under_way = true;
        self.lease()
    }

    /// Its keys were listed, or not: they are to be listed at that moment.
    pub fn listed(&mut self, next: Moment) {
        self.list = Attempt::at(next);
    }

    /// Whether a barrier has to be answered before acquisitions are sent.
    fn is_barred(&self) -> bool {
        self.barrier.wanted || self.barrier.current.is_some()
    }

    /// Whether a barrier has no answer yet that was not sent before this moment, or is to be sent next.
    pub fn is_barred_since(&self, then: Moment) -> bool {
        let barrier = &self.barrier;
        let sent = barrier.current.as_ref();
        sent.map_or(barrier.wanted, |(since, _)| *since >= then)
    }

    /// The barrier to be sent now, if any: the session key, its revision as it is known, and the lease; and whether it is to show
    /// whether etcd has lost its history.
    pub fn next_barrier(&mut self, now: Moment) -> Option<(Key, Option<Revision>, LeaseId, bool)> {
        let lease = self.lease.as_ref().filter(|_| !self.is_lost())?;
        if self.barrier.current.is_none() && std::mem::take(&mut self.barrier.wanted) {
            self.barrier.current = Some((now, Attempt::at(now)));
        }
        let (_, current) = self.barrier.current.as_mut()?;
        let due = current.is_due(now);
        current.under_way |= due;
        due.then(|| {
            let suspicious = std::mem::take(&mut self.barrier.suspicious);
            (lease.session_key.clone(), lease.modified, lease.id, suspicious)
        })
    }

    /// A barrier was answered: the session key is at this revision now; `None`: it is gone, or another client's.
    pub fn barrier_answered(&mut self, modified: Option<Revision>) {
        self.barrier.current = None;
        if let Some(lease) = &mut self.lease {
            lease.modified = modified.or(lease.modified);
            lease.unfenced = modified.is_none();
        }
    }

    /// A barrier had no answer, or was `refused`: it is sent again at this moment. True if it has failed for too long: then
    /// acquisitions go on under another session; this one is barred until etcd has answered, as long as it lives.
    pub fn barrier_failed(&mut self, now: Moment, again: Moment, refused: bool) -> bool {
        let (Some(lease), Some((since, current))) = (&self.lease, &mut self.barrier.current) else {
            return false;
        };
        *current = Attempt::at(again);
        lease.modified.is_some() && (refused || now - *since >= lease.ttl)
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

/// All sessions of a process: one for each TTL in use, and a few where thousands of locks are held (rule P27). What a session
/// takes with it when it is lost is bounded by that, and so is what etcd keeps under one lease.
#[derive(Debug, Default)]
pub struct Sessions {
    all: BTreeMap<SessionId, Session>,
    /// Those that calls of a TTL use, the oldest first.
    by_ttl: BTreeMap<i64, Vec<SessionId>>,
    /// Those that may have something to send.
    awake: BTreeSet<SessionId>,
    last: u64,
    revocations: Vec<LeaseId>,
    /// The last leases that were to be revoked: their keys may be seen until etcd has answered, and a little later.
    over: VecDeque<LeaseId>,
}

impl Sessions {
    /// The session a call of this TTL is to use: the oldest that has room, so that the others come to rest. Where none has, a
    /// new one is asked for, and meanwhile they take more.
    pub fn choose(&mut self, now: Moment, ttl_secs: i64, room: usize) -> SessionId {
        let ids = self.by_ttl.get(&ttl_secs).map_or(&[][..], Vec::as_slice);
        let known = ids.iter().filter_map(|id| Some((*id, self.all.get(id)?)));
        let mut with_room = known
            .clone()
            .filter(|(_, session)| session.has_opened() && session.contenders.len() < room);
        if let Some((id, _)) = with_room.next() {
            return id;
        }
        let opening = known.clone().any(|(_, session)| !session.has_opened());
        let best = known.min_by_key(|(_, it)| (!it.has_opened(), it.contenders.len()));
        match best {
            Some((id, _)) if opening || ids.len() >= MOST => id,
            best => {
                let best = best.map(|(id, _)| id);
                let new = self.open(now, ttl_secs);
                best.unwrap_or(new)
            }
        }
    }

    fn open(&mut self, now: Moment, ttl_secs: i64) -> SessionId {
        self.last += 1;
        let id = SessionId::from(self.last);
        self.all.insert(id, Session::new(now, ttl_secs));
        self.by_ttl.entry(ttl_secs).or_default().push(id);
        self.awake.insert(id);
        id
    }

    /// A call only wanted to know that a session is open, and does no more.
    pub fn stop_warming(&mut self, call: CallId) {
        for session in self.all.values_mut() {
            session.warming.remove(&call);
        }
    }

    /// Whether no call uses a session, and calls of its TTL have another one.
    pub fn is_spare(&self, id: SessionId) -> bool {
        self.all.get(&id).is_some_and(|session| {
            let first = self.by_ttl.get(&session.ttl_secs).and_then(|ids| ids.first());
            session.is_open() && session.is_unused() && first.is_some_and(|first| *first != id)
        })
    }

    pub fn get(&self, id: SessionId) -> Option<&Session> {
        self.all.get(&id)
    }

    pub fn get_mut(&mut self, id: SessionId) -> Option<&mut Session> {
        self.all.get_mut(&id)
    }

    /// The same: it may have something to send.
    pub fn wake(&mut self, id: SessionId) -> Option<&mut Session> {
        self.awake.insert(id);
        self.all.get_mut(&id)
    }

    /// The same, if etcd still knows its lease.
    pub fn alive(&mut self, id: SessionId) -> Option<&mut Session> {
        self.wake(id).filter(|session| session.is_alive())
    }

    /// The next session that may have something to send.
    pub fn next_awake(&mut self) -> Option<SessionId> {
        self.awake.pop_first()
    }

    /// What is under way may never be answered, and holds no put back any more.
    pub fn reopen_windows(&mut self) {
        for (id, session) in &mut self.all {
            session.puts.reopen_window();
            self.awake.insert(*id);
        }
    }

    /// No more calls for this session.
    pub fn withdraw(&mut self, id: SessionId) {
        let ttl_secs = self.all.get(&id).map(Session::ttl_secs);
        if let Some(ids) = ttl_secs.and_then(|ttl_secs| self.by_ttl.get_mut(&ttl_secs)) {
            ids.retain(|of| *of != id);
        }
    }

    /// A session is over, or could not be had: its lease is to be revoked.
    pub fn end(&mut self, id: SessionId) -> Option<Session> {
        self.withdraw(id);
        let session = self.all.remove(&id)?;
        self.revoke(session.lease());
        Some(session)
    }

    /// A shutdown ends sessions. One whose body does not end is left to run out.
    pub fn end_idle(&mut self) {
        let idle = self.all.iter().filter(|(_, session)| session.bodies == 0);
        for id in idle.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.end(id);
        }
    }

    /// These leases are to be revoked.
    pub fn revoke(&mut self, leases: impl IntoIterator<Item = LeaseId>) {
        for lease in leases {
            self.revocations.push(lease);
            self.over.retain(|of| *of != lease);
            self.over.push_back(lease);
        }
        self.over.drain(..self.over.len().saturating_sub(OVER));
    }

    /// Whether a lease is that of a session which is lost, or was to be revoked lately.
    pub fn have_lost(&self, lease: LeaseId) -> bool {
        let mut lost = self.all.values().filter(|session| session.is_lost());
        self.over.contains(&lease) || lost.any(|session| session.lease() == Some(lease))
    }

    /// The lease to be revoked next.
    pub fn next_revocation(&mut self) -> Option<LeaseId> {
        self.revocations.pop()
    }

    pub fn has_revocations(&self) -> bool {
        !self.revocations.is_empty()
    }

    /// All of them: a few for each TTL.
    pub fn iter(&self) -> impl Iterator<Item = (SessionId, &Session)> {
        self.all.iter().map(|(id, session)| (*id, session))
    }
}
