//! Ownership: how the calls of this process hold one contender, through all hand-overs (rules P22, P23, P37).
//!
//! While other processes wait, an ownership ends after [`RUN`]: then the key is deleted, and the calls of this process queue again,
//! behind the others. Readers may join for [`OPEN`] after a read has shown that no contender waits because of them.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::ids::{CallId, Revision};
use crate::moment::Moment;

/// How long a key is handed over before a read has to show that no other process waits.
const RUN: Duration = Duration::from_millis(10);

/// How long to wait for that read: after that, another process is assumed to wait.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long a read of what waits behind a reader's key is relied on, counted from its response, however far away etcd is.
const OPEN: Duration = Duration::from_millis(50);

/// How long a call holds its lock before its keys are watched and its record is written: short sections pay nothing (rule P18).
pub const SETTLED: Duration = Duration::from_secs(1);

/// How the calls of this process hold one contender.
#[derive(Debug)]
pub struct Ownership {
    /// Each with the number of hand-overs when it was granted: the first granted is the first.
    holders: BTreeSet<(u16, CallId)>,
    /// When the first of them was granted.
    pub since: Moment,
    /// The call that the record at etcd names, or is being written to name.
    pub named: Option<CallId>,
    /// The number of hand-overs, for the token.
    pub handover: u16,
    /// When a read was asked for that has no response yet.
    pub asked: Option<Moment>,
    /// The revision of the last read, and when it came. Without a revision: when the ownership began.
    read: (Option<Revision>, Moment),
    /// It has shown that another process waits.
    contended: bool,
    /// The key is gone or its session is lost: no call can rely on it.
    pub lost: bool,
    /// Until when the key lingers once the last body has gone. `None`: it goes with that body (rule P22).
    pub stays: Option<Moment>,
}

impl Ownership {
    /// Begins with this holder. `alone`: the response that admitted it, of this revision, has shown no younger contender.
    pub fn begin(now: Moment, call: CallId, alone: Option<Revision>) -> Self {
        Self {
            holders: BTreeSet::from([(0, call)]),
            since: now,
            named: None,
            handover: 0,
            asked: None,
            read: (alone, now),
            contended: false,
            lost: false,
            stays: None,
        }
    }

    /// The calls that hold it, the first granted first.
    pub fn holders(&self) -> impl Iterator<Item = CallId> + '_ {
        self.holders.iter().map(|(_, call)| *call)
    }

    /// The call that was granted first; `None`: the key goes to the next, lingers, or is deleted.
    pub fn first(&self) -> Option<CallId> {
        self.holders().next()
    }

    /// One more call holds it. Returns true if a read has to show whether another process waits.
    pub fn add(&mut self, now: Moment, call: CallId) -> bool {
        if self.holders.is_empty() {
            self.since = now;
        }
        self.handover += 1;
        self.holders.insert((self.handover, call));
        !self.contended && self.is_old(now) && self.ask(now)
    }

    /// A call's body is gone; `handover`: the number in its token. Returns true if it was the last: then the key may stay until `stays`.
    pub fn leave(&mut self, (call, handover): (CallId, u16), stays: Option<Moment>) -> bool {
        self.holders.remove(&(handover, call));
        self.stays = stays;
        self.holders.is_empty()
    }

    /// When the record at etcd has to name the first holder, unless it does.
    pub fn record_due(&self) -> Option<Moment> {
        let unnamed = !self.lost && self.first().is_some_and(|first| self.named != Some(first));
        unnamed.then_some(self.since + SETTLED)
    }

    /// A read of this revision has shown whether another process waits. One that a later read has overtaken does not count.
    pub fn read(&mut self, now: Moment, revision: Revision, contended: bool) {
        if self.read.0 <= Some(revision) {
            (self.asked, self.read, self.contended) = (None, (Some(revision), now), contended);
        }
    }

    /// Asks for a read. Returns true unless one is under way.
    pub fn ask(&mut self, now: Moment) -> bool {
        let first = self.asked.is_none();
        self.asked.get_or_insert(now);
        first
    }

    /// Returns true if another process may have come since the last read.
    fn is_old(&self, now: Moment) -> bool {
        now - self.read.1 >= RUN
    }

    /// Returns true if the key may be handed over once more, now that the last body has gone.
    pub fn may_pass(&self, now: Moment) -> bool {
        let patient = self.asked.is_none_or(|at| now - at < PATIENCE);
        let unwanted = !self.contended && (patient || !self.is_old(now));
        !self.lost && self.stays.is_some() && self.handover < u16::MAX && unwanted
    }

    /// Whether no other reader may join: a contender waits, or the key is about to be deleted. `None`: a read has to show that first.
    pub fn is_closed(&self, now: Moment) -> Option<bool> {
        match self.read {
            _ if self.lost || self.handover == u16::MAX => Some(true),
            (Some(_), came) if now - came <= OPEN => Some(self.contended),
            _ => None,
        }
    }
}
