//! Session: one lease with its renewals and its session key, from the wish for it until it is lost or revoked; and the pool of
//! them.
//!
//! ```text
//! Asking ─granted─► Barred ⇄ Open ─► Retired ─► Lost
//! ```
//!
//! Acquisitions are sent only under an open session. A retired one is renewed for its bodies, and revoked once the last is dropped.
//! A *barrier* is one write of the session key, after which nothing that was sent before it can apply any more (rule P10). It is
//! sent again, unchanged, until etcd has answered it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::mem::take;
use std::sync::Arc;
use std::time::Duration;

use crate::batch::Line;
use crate::ids::{ContenderId, Key, LeaseId, Name, Revision, SessionId};
use crate::loss::LossCause;
use crate::moment::{Deadline, Moment};
use crate::transactions::Fence;

/// How far this process's clock and etcd's may drift apart within one TTL (rule P28).
const DRIFT: f64 = 0.01;

/// How long a renewal may take: at most half the TTL too, and not beyond the stop time.
const RENEWAL: Duration = Duration::from_secs(2);

/// How often the keys of a lease are listed while calls hold some, although their watches are silent (rule P17).
pub const LIST: Duration = Duration::from_secs(60);

/// The TTLs for which no contender has used a session when it retires: the last one of a TTL with room, and any other.
const IDLE: [u32; 2] = [20, 1];

/// How many leases are remembered that were lost or revoked: more than sessions end in the time of a read.
const OVER: usize = 1_024;

/// A lease that etcd has granted.
#[derive(Debug)]
struct Lease {
    id: LeaseId,
    ttl: Duration,
    session_key: Key,
    /// The session key's mod revision; `None`: not created yet, or found missing or foreign.
    modified: Option<Revision>,
    deadline: Arc<Deadline>,
}

/// Where a session is in its life. It has a lease in all states but the first.
#[derive(Debug)]
enum Life {
    /// Its lease is asked for.
    Asking,
    /// Acquisitions wait for a barrier. The first one creates the session key.
    Barred(Barrier),
    /// Acquisitions may be sent.
    Open,
    /// It takes no acquisitions any more, and its bodies go on. A barrier may have to settle earlier puts.
    Retired(Option<Barrier>),
    /// Its bodies stop.
    Lost(LossCause),
}

/// A barrier that etcd has not answered.
#[derive(Debug)]
struct Barrier {
    /// When it is sent; `None`: it is under way.
    due: Option<Moment>,
    /// When it was first sent.
    since: Option<Moment>,
    /// etcd may have lost its history: it is to show that when it is sent next.
    suspected: bool,
}

impl Barrier {
    fn new(now: Moment, suspected: bool) -> Self {
        Self { due: Some(now), since: None, suspected }
    }
}

/// What a session needs now.
#[derive(Debug)]
pub enum Need {
    /// A lease of this TTL, in seconds.
    Grant(i64),
    /// A renewal, within this time (rule P30).
    Renew(LeaseId, Duration),
    /// A barrier: the session key, its revision as it is known, and its lease. If `suspected`, it is to show whether etcd has lost its
    /// history.
    Barrier { key: Key, modified: Option<Revision>, lease: LeaseId, suspected: bool },
    /// A list of the keys of its lease (rule P17).
    List(LeaseId),
    /// Its bodies are to stop: its stop time has come.
    Stop,
    /// No call has used it for long: it is to retire.
    Retire,
}

/// One session.
#[derive(Debug)]
pub struct Session {
    ttl_secs: i64,
    life: Life,
    lease: Option<Lease>,
    /// When the next grant or renewal is sent, once none is under way.
    renewal: Moment,
    renewing: bool,
    /// How often in a row it failed.
    failures: u32,
    /// When its keys are listed next; `None`: that is under way.
    list: Option<Moment>,
    /// The contenders whose keys are, or may be, under its lease, and how many keys each has, and all have.
    contenders: BTreeMap<ContenderId, usize>,
    keys: usize,
    /// Of these, those that wait to be put, and the puts under way.
    puts: Line<ContenderId>,
    /// Of these, held ones of which a key was seen to be gone, and when that was.
    missing: Vec<(Moment, ContenderId)>,
    /// How many have a body, or keep the lease alive like one.
    bodies: usize,
    last_used: Moment,
    /// Names whose call would be served if the lease were fresh (rule P12).
    unfresh: BTreeSet<Name>,
}

impl Session {
    fn new(now: Moment, ttl_secs: i64) -> Self {
        Self {
            ttl_secs,
            life: Life::Asking,
            lease: None,
            renewal: now,
            renewing: false,
            failures: 0,
            list: Some(now + LIST),
            contenders: BTreeMap::new(),
            keys: 0,
            puts: Line::default(),
            missing: Vec::new(),
            bodies: 0,
            last_used: now,
            unfresh: BTreeSet::new(),
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
        let lease = self.lease.as_ref()?;
        Some(Fence { key: lease.session_key.clone(), modified: lease.modified? })
    }

    /// Whether acquisitions may be sent under it now.
    pub fn is_open(&self) -> bool {
        matches!(self.life, Life::Open)
    }

    /// Whether acquisitions may use it, now or later.
    pub fn accepts(&self) -> bool {
        matches!(self.life, Life::Asking | Life::Barred(_) | Life::Open)
    }

    /// Whether etcd still knows its lease, as far as this process knows.
    pub fn is_alive(&self) -> bool {
        !matches!(self.life, Life::Asking | Life::Lost(_))
    }

    /// How it was lost, if it was.
    pub fn loss(&self) -> Option<LossCause> {
        match self.life {
            Life::Lost(cause) => Some(cause),
            _ => None,
        }
    }

    /// Whether it is not to be relied on any more.
    pub fn is_lost(&self) -> bool {
        self.loss().is_some()
    }

    /// Whether edges may be written under it: what was sent before is settled.
    pub fn takes_edges(&self) -> bool {
        matches!(self.life, Life::Open | Life::Retired(None))
    }

    /// Whether at least half its TTL is left (rule P12).
    pub fn is_fresh(&self, now: Moment) -> bool {
        self.lease.as_ref().is_some_and(|lease| {
            let stop = lease.deadline.stop().filter(|stop| *stop > now);
            stop.is_some_and(|stop| stop + margin(lease.ttl) - now >= lease.ttl / 2)
        })
    }

    /// The barrier that has no answer.
    fn barrier(&self) -> Option<&Barrier> {
        match &self.life {
            Life::Barred(barrier) | Life::Retired(Some(barrier)) => Some(barrier),
            _ => None,
        }
    }

    /// When it has to be looked after next.
    pub fn due(&self, now: Moment) -> Option<Moment> {
        let stop = self.deadline().and_then(|deadline| deadline.stop());
        let renewal = (!self.renewing).then_some(self.renewal);
        let barrier = self.barrier().and_then(|barrier| barrier.due);
        let due = [stop, renewal, barrier, self.list].into_iter().flatten();
        due.filter(|due| *due > now && !self.is_lost()).min()
    }

    /// What it needs now, if anything; a request counts as sent. `sends`: whether more than renewals may be sent. `spare`: another
    /// session of its TTL has room.
    fn need(&mut self, now: Moment, sends: bool, spare: bool) -> Option<Need> {
        let wanted = !self.unfresh.is_empty() && self.failures == 0;
        let renews = !self.renewing && (wanted || self.renewal <= now);
        let Some(lease) = &self.lease else {
            self.renewing |= sends && renews;
            return (sends && renews).then_some(Need::Grant(self.ttl_secs));
        };
        if self.is_lost() {
            return None;
        }
        let Some(stop) = lease.deadline.stop().filter(|stop| *stop > now) else {
            return Some(Need::Stop);
        };
        if renews {
            self.renewing = true;
            self.renewal = now + lease.ttl / 3;
            let idle = lease.ttl * IDLE[usize::from(spare)];
            if self.contenders.is_empty() && now - self.last_used >= idle {
                return Some(Need::Retire);
            }
            // What comes after its bodies have stopped would only keep their keys.
            let timeout = (lease.ttl / 2).min(RENEWAL).min(stop - now);
            return Some(Need::Renew(lease.id, timeout));
        }
        if !sends {
            return None;
        }
        if let Life::Barred(barrier) | Life::Retired(Some(barrier)) = &mut self.life
            && barrier.due.take_if(|due| *due <= now).is_some()
        {
            barrier.since.get_or_insert(now);
            let suspected = take(&mut barrier.suspected);
            let (key, modified) = (lease.session_key.clone(), lease.modified);
            return Some(Need::Barrier { key, modified, lease: lease.id, suspected });
        }
        self.list.take_if(|due| *due <= now)?;
        if self.bodies == 0 {
            self.list = Some(now + LIST);
            return None;
        }
        Some(Need::List(lease.id))
    }

    /// etcd granted its lease; `sent`: when it was asked for, from which its time is counted (rule P28).
    pub fn granted(
        &mut self,
        now: Moment,
        sent: Moment,
        (id, ttl): (LeaseId, Duration),
        session_key: Key,
    ) {
        (self.renewal, self.renewing, self.failures) = (sent + ttl / 3, false, 0);
        let deadline = Arc::new(Deadline::new(stop_time(sent, ttl)));
        self.lease = Some(Lease { id, ttl, session_key, modified: None, deadline });
        self.life = Life::Barred(Barrier::new(now, false));
    }

    /// It is renewed now; if a renewal is under way, after that, which says nothing of what has happened since it was sent.
    pub fn hurry(&mut self, now: Moment) {
        self.renewal = now;
    }

    /// A renewal sent at `sent` was answered; answers the names that waited for it, or `None` if it came too late.
    pub fn renewed(&mut self, now: Moment, sent: Moment, ttl: Duration) -> Option<BTreeSet<Name>> {
        (self.renewing, self.failures) = (false, 0);
        let extended = self.deadline()?.extend(now, stop_time(sent, ttl));
        extended.then(|| take(&mut self.unfresh))
    }

    /// A grant or renewal had no answer, which says nothing of the lease: it is sent again, the first time at once (rule P30), then
    /// after the pause.
    pub fn renewal_failed(&mut self, now: Moment, pause: Duration) {
        self.renewal = if self.failures == 0 { now } else { now + pause };
        self.renewing = false;
        self.failures += 1;
    }

    /// It takes no acquisitions any more.
    pub fn retire(&mut self) {
        self.life = match std::mem::replace(&mut self.life, Life::Asking) {
            Life::Barred(barrier) => Life::Retired(Some(barrier)),
            _ => Life::Retired(None),
        };
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
        self.contenders.keys().copied()
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

    /// A call of this name would be served if the lease were fresh: it is renewed, unless that has failed and is tried again later.
    pub fn wants_fresh(&mut self, name: Name) {
        self.unfresh.insert(name);
    }

    /// A barrier is wanted: to settle a put without an answer, because the session key has moved, or (`suspected`) to show whether
    /// etcd has lost its history. One under way settles all puts before it, but shows nothing of a later suspicion.
    pub fn bar(&mut self, now: Moment, suspected: bool) {
        match &mut self.life {
            Life::Barred(barrier) | Life::Retired(Some(barrier)) => barrier.suspected |= suspected,
            Life::Open => self.life = Life::Barred(Barrier::new(now, suspected)),
            Life::Retired(none) => *none = Some(Barrier::new(now, suspected)),
            Life::Asking | Life::Lost(_) => {}
        }
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

    /// Its keys were listed, or not: they are to be listed at that moment.
    pub fn listed(&mut self, next: Moment) {
        self.list = Some(next);
    }

    /// Whether a barrier has no answer yet that was not sent before this moment, or is to be sent next.
    pub fn is_barred_since(&self, then: Moment) -> bool {
        let since = |barrier: &Barrier| barrier.since.is_none_or(|since| since >= then);
        self.barrier().is_some_and(since)
    }

    /// A barrier was answered: the session key is at this revision now; `None`: it is gone, or another client's.
    pub fn barrier_answered(&mut self, now: Moment, modified: Option<Revision>) {
        let suspected = self.barrier().is_some_and(|barrier| barrier.suspected);
        let next = suspected.then(|| Barrier::new(now, true));
        self.life = match (self.accepts(), next) {
            (true, Some(next)) => Life::Barred(next),
            (true, None) => Life::Open,
            (false, next) => Life::Retired(next),
        };
        if let Some(lease) = &mut self.lease {
            lease.modified = modified;
        }
    }

    /// A barrier had no answer, or was `refused`: it is sent again at this moment. True if it has failed for too long: then
    /// acquisitions go on under another session; this one is barred until etcd has answered, as long as it lives.
    pub fn barrier_failed(&mut self, now: Moment, again: Moment, refused: bool) -> bool {
        let (Life::Barred(barrier) | Life::Retired(Some(barrier))) = &mut self.life else {
            return false;
        };
        barrier.due = Some(again);
        let since = barrier.since;
        self.lease.as_ref().is_some_and(|lease| {
            let too_long = since.is_some_and(|since| now - since >= lease.ttl);
            lease.modified.is_some() && (refused || too_long)
        })
    }
}

/// When bodies stop that rely on a TTL that was asked for at `sent`: so long before its end that a poll under way can end, whatever
/// the clocks' drift (rule P28).
fn stop_time(sent: Moment, ttl: Duration) -> Moment {
    sent + ttl.mul_f64(1.0 - DRIFT) - margin(ttl)
}

fn margin(ttl: Duration) -> Duration {
    ttl.mul_f64(0.1).max(Duration::from_millis(300))
}

/// All sessions of a process: one for each TTL in use, or as many as its contenders need where a session takes only some (rule P27).
#[derive(Debug, Default)]
pub struct Sessions {
    all: BTreeMap<SessionId, Session>,
    last: u64,
    /// How many keys a session takes; `None`: any number.
    limit: Option<usize>,
    /// Those that have room, by their TTL.
    with_room: BTreeMap<i64, BTreeSet<SessionId>>,
    /// Those that may need something; and those that wait until more than renewals may be sent.
    awake: BTreeSet<SessionId>,
    held_back: BTreeSet<SessionId>,
    revocations: Vec<LeaseId>,
    /// The last leases that were lost or were to be revoked: their keys may be seen until etcd has answered, and a little later.
    over: VecDeque<LeaseId>,
}

impl Sessions {
    /// None yet; `limit`: how many keys each takes.
    pub fn new(limit: Option<usize>) -> Self {
        Self { limit, ..Self::default() }
    }

    /// The session that a call of this TTL is to use: the oldest that has room, so that the others come to rest, or a new one.
    pub fn choose(&mut self, now: Moment, ttl_secs: i64) -> SessionId {
        let with_room = self.with_room.entry(ttl_secs).or_default();
        if let Some(oldest) = with_room.first() {
            return *oldest;
        }
        self.last += 1;
        let id = SessionId::from(self.last);
        with_room.insert(id);
        self.all.insert(id, Session::new(now, ttl_secs));
        self.awake.insert(id);
        id
    }

    /// A contender's keys are to be put under a session.
    pub fn attach(&mut self, now: Moment, id: SessionId, contender: ContenderId, keys: usize) {
        let limit = self.limit;
        let Some(session) = self.wake(id) else { return };
        session.last_used = now;
        session.contenders.insert(contender, keys);
        session.keys += keys;
        // Those that gave up while etcd was away are still in the line.
        let wanted = &session.contenders;
        session.puts.tidy(wanted.len(), |id| wanted.contains_key(id));
        session.puts.push(contender);
        if limit.is_some_and(|limit| session.keys >= limit) {
            self.withdraw(id);
        }
    }

    /// A contender has no key under its session any more.
    pub fn detach(&mut self, now: Moment, id: SessionId, contender: ContenderId) {
        let Some(session) = self.all.get_mut(&id) else { return };
        session.last_used = now;
        session.keys -= session.contenders.remove(&contender).unwrap_or(0);
        if self.limit.is_some_and(|limit| session.keys < limit) && session.accepts() {
            self.with_room.entry(session.ttl_secs).or_default().insert(id);
        }
    }

    pub fn get(&self, id: SessionId) -> Option<&Session> {
        self.all.get(&id)
    }

    pub fn get_mut(&mut self, id: SessionId) -> Option<&mut Session> {
        self.all.get_mut(&id)
    }

    /// The same: it may need something.
    pub fn wake(&mut self, id: SessionId) -> Option<&mut Session> {
        self.awake.insert(id);
        self.all.get_mut(&id)
    }

    /// The same, if etcd still knows its lease.
    pub fn alive(&mut self, id: SessionId) -> Option<&mut Session> {
        self.wake(id).filter(|session| session.is_alive())
    }

    /// The next session that may need something.
    pub fn next_awake(&mut self) -> Option<SessionId> {
        self.awake.pop_first()
    }

    /// What a session needs now, if anything. `sends`: whether more than renewals may be sent.
    pub fn need(&mut self, id: SessionId, now: Moment, sends: bool) -> Option<Need> {
        let session = self.all.get_mut(&id)?;
        let with_room = self.with_room.get(&session.ttl_secs);
        let spare = with_room.is_some_and(|ids| ids.len() > 1);
        session.need(now, sends, spare)
    }

    /// A session waits until more than renewals may be sent.
    pub fn hold_back(&mut self, id: SessionId) {
        self.held_back.insert(id);
    }

    pub fn has_held_back(&self) -> bool {
        !self.held_back.is_empty()
    }

    /// More than renewals may be sent.
    pub fn wake_held_back(&mut self) {
        self.awake.append(&mut self.held_back);
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
        if let Some(with_room) = ttl_secs.and_then(|of| self.with_room.get_mut(&of)) {
            with_room.remove(&id);
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

    /// A session is not to be relied on any more. Returns how it was lost; `None` if it was lost before.
    pub fn lose(&mut self, id: SessionId, cause: LossCause) -> Option<LossCause> {
        let session = self.alive(id)?;
        let lease = session.lease.as_ref()?;
        // What a body has seen first stands.
        let (lease, cause) = (lease.id, lease.deadline.lose(cause));
        session.life = Life::Lost(cause);
        self.note_end(lease);
        Some(cause)
    }

    /// These leases are to be revoked.
    pub fn revoke(&mut self, leases: impl IntoIterator<Item = LeaseId>) {
        for lease in leases {
            self.revocations.push(lease);
            self.note_end(lease);
        }
    }

    /// A lease is lost, or to be revoked.
    fn note_end(&mut self, lease: LeaseId) {
        if !self.have_lost(lease) {
            self.over.truncate(OVER - 1);
            self.over.push_front(lease);
        }
    }

    /// Whether a lease was lost, or was to be revoked lately.
    pub fn have_lost(&self, lease: LeaseId) -> bool {
        self.over.contains(&lease)
    }

    /// The lease to be revoked next.
    pub fn next_revocation(&mut self) -> Option<LeaseId> {
        self.revocations.pop()
    }

    pub fn has_revocations(&self) -> bool {
        !self.revocations.is_empty()
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (SessionId, &Session)> {
        self.all.iter().map(|(id, session)| (*id, session))
    }
}
