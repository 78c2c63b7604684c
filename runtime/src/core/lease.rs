//! One lease: granted, given a session key, renewed, and in the end retired or lost.
//!
//! `Granting → Sealing (creates the session key) → Open(m) ⇄ Sealing(m) → Retired | Lost`

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Moment;
use crate::core::call::Bid;
use crate::core::deadline::Deadline;
use crate::core::request::{Cause, Key, LeaseId, Revision};
use crate::core::{CallId, RequestId};

/// A lease's number in this process, known before etcd has granted it.
pub(crate) type LeaseRef = u64;

/// How far our clock and etcd's may drift apart within one TTL (rule P28).
const DRIFT: f64 = 0.01;

/// Where a lease is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// Asked of etcd.
    Granting,
    /// A seal is under way, the first of which creates the session key (rule P10): nothing is put meanwhile.
    Sealing,
    /// Acquisitions may use it.
    Open,
    /// No acquisitions any more; revoked once its last body is dropped.
    Retired,
    /// Not to be relied on any more; revoked, as a courtesy, once its last body is dropped.
    Lost,
}

/// One lease.
#[derive(Debug)]
pub(crate) struct Lease {
    pub(crate) state: State,
    /// The TTL asked for, in seconds: calls of this TTL share the lease (rule P27).
    pub(crate) ttl_secs: i64,
    pub(crate) id: LeaseId,
    /// The TTL etcd granted, which may be longer.
    pub(crate) ttl: Duration,
    /// The session key and its mod revision `m`; 0: not created yet.
    pub(crate) session: Key,
    pub(crate) session_revision: Revision,
    valid_until: Moment,
    pub(crate) deadline: Arc<Deadline>,
    /// etcd says that there is no such lease.
    pub(crate) ended: bool,
    pub(crate) renewing: bool,
    /// When the next renewal is due; one that comes earlier moves it on, so that there is one timer's worth of them.
    pub(crate) renew_at: Moment,
    /// Renewals that failed in a row.
    pub(crate) failures: u32,
    /// What waits to be put.
    pub(crate) pending: VecDeque<Bid>,
    /// Bundles under way.
    pub(crate) in_flight: usize,
    /// Names whose put may or may not have been applied.
    pub(crate) doubt: Vec<Key>,
    /// Names that are ours but for a fresh enough lease (rule P12).
    pub(crate) unfresh: BTreeSet<Key>,
    /// Names that readers of this process would join others in, once etcd has answered: a look, or a renewal.
    pub(crate) joining: BTreeSet<Key>,
    /// Calls that only want to know that the lease is open, and since when.
    pub(crate) warming: Vec<(CallId, Moment)>,
    /// Bodies that run under it.
    pub(crate) bodies: usize,
    /// etcd is not reached for it.
    pub(crate) trouble: Option<Trouble>,
    /// Not before this is anything but a renewal sent again.
    pub(crate) hold_off: Moment,
    /// The seal under way, as sent, to be resent unchanged.
    pub(crate) seal: Option<Seal>,
}

/// Exchanges fail, and none has succeeded since.
#[derive(Debug, Clone)]
pub(crate) struct Trouble {
    /// When the first of them was sent.
    pub(crate) since: Moment,
    /// Why the last one failed.
    pub(crate) cause: Cause,
    /// When to see next whether calls have waited too long.
    pub(crate) step: Option<Moment>,
}

/// A seal that has no answer yet.
#[derive(Debug)]
pub(crate) struct Seal {
    pub(crate) names: Vec<Key>,
    pub(crate) since: Moment,
    pub(crate) sent: Option<RequestId>,
}

impl Lease {
    pub(crate) fn asked(now: Moment, ttl_secs: i64) -> Self {
        Self {
            state: State::Granting,
            ttl_secs,
            id: 0,
            ttl: Duration::from_secs(ttl_secs.unsigned_abs()),
            session: "".into(),
            session_revision: 0,
            valid_until: now,
            deadline: Arc::new(Deadline::new(now)),
            ended: false,
            renewing: false,
            renew_at: now,
            failures: 0,
            pending: VecDeque::new(),
            in_flight: 0,
            doubt: Vec::new(),
            unfresh: BTreeSet::new(),
            joining: BTreeSet::new(),
            warming: Vec::new(),
            bodies: 0,
            trouble: None,
            hold_off: now,
            seal: None,
        }
    }

    /// etcd granted it; `sent` is when it was asked, from which its time is counted (rule P28).
    pub(crate) fn granted(&mut self, sent: Moment, id: LeaseId, ttl: Duration, session: Key) {
        self.state = State::Sealing;
        self.id = id;
        self.ttl = ttl;
        self.session = session;
        self.valid_until = sent + ttl.mul_f64(1.0 - DRIFT);
        self.deadline = Arc::new(Deadline::new(self.valid_until - self.margin()));
    }

    /// A renewal sent at `sent` was answered; false if that came too late.
    pub(crate) fn renewed(&mut self, now: Moment, sent: Moment, ttl: Duration) -> bool {
        self.valid_until = self.valid_until.max(sent + ttl.mul_f64(1.0 - DRIFT));
        self.deadline.extend(now, self.valid_until - self.margin())
    }

    /// An exchange for it, sent at `sent`, failed.
    pub(crate) fn failed(&mut self, sent: Moment, cause: Cause) {
        let (since, step) = match self.trouble.take() {
            Some(Trouble { since, step, .. }) => (since, step),
            None => (sent, None),
        };
        self.trouble = Some(Trouble { since, cause, step });
    }

    /// Names that get nowhere while etcd is not reached.
    pub(crate) fn stuck(&self) -> Vec<Key> {
        let sealing = self.seal.iter().flat_map(|seal| &seal.names);
        let pending = self.pending.iter().flat_map(|bid| &*bid.names);
        let names = pending.chain(&self.doubt).chain(sealing);
        names.chain(&self.joining).cloned().collect()
    }

    /// At least half the TTL is left (rule P12).
    pub(crate) fn is_fresh(&self, now: Moment) -> bool {
        self.valid_until - now >= self.ttl / 2
    }

    /// How long before expiry bodies stop, so that a poll under way can end.
    fn margin(&self) -> Duration {
        self.ttl.mul_f64(0.1).max(Duration::from_millis(300))
    }

    /// When the next renewal is due after one sent at `sent` (rule P30).
    pub(crate) fn renewal_after(&self, sent: Moment) -> Moment {
        sent + self.ttl / 3
    }

    /// How long one renewal may take before another endpoint is tried (rule P30).
    pub(crate) fn renewal_timeout(&self) -> Duration {
        (self.ttl / 8).clamp(Duration::from_millis(300), Duration::from_secs(2))
    }

    /// Whether etcd still knows it, as far as we know.
    pub(crate) fn is_alive(&self) -> bool {
        matches!(self.state, State::Sealing | State::Open | State::Retired)
    }
}
