//! Ownership: how calls of this process hold one contender, through all hand-overs (rules P22, P23, P37).
//!
//! If other processes wait, an ownership ends after [`RUN`]: the key is deleted, and the calls of this process queue behind the
//! others. Readers may join for [`OPEN`] after a read has shown that no contender waits because of them.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::ids::{CallId, Revision};
use crate::moment::Moment;

/// How long a key is handed over before a read must show that no other process waits.
const RUN: Duration = Duration::from_millis(10);

/// How long to wait for that read. After that, another process is assumed to wait.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long a read of the contenders behind a reader's key is valid. It counts from the response, however far away etcd is.
const OPEN: Duration = Duration::from_millis(50);

/// How long a lock is held before its keys are watched and its record is written. Short sections avoid that cost (rule P18).
pub const SETTLED: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct Ownership {
    /// The holders, each with its hand-over number: the first granted comes first.
    holders: BTreeSet<(u16, CallId)>,
    /// When the first of the present holders was granted. A hand-over resets it; readers that join or leave do not.
    pub since: Moment,
    /// The call that the record at etcd names, or that is being written there.
    pub named: Option<CallId>,
    /// The number of hand-overs, for the token.
    pub handover: u16,
    /// When a read was requested that has no response yet.
    pub asked: Option<Moment>,
    /// The revision and the arrival of the last read. Without a revision: the beginning of the ownership.
    read: (Option<Revision>, Moment),
    /// True if that read showed that another process waits.
    contended: bool,
    /// True if the key is gone or its session is lost.
    pub lost: bool,
    /// How long the key lingers after the last body. `None`: it is deleted with that body (rule P22).
    pub stays: Option<Moment>,
}

impl Ownership {
    /// Begins with one holder. `alone`: the revision of the response that admitted it, if that showed no younger contender.
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

    /// Returns the holders, the first granted first.
    pub fn holders(&self) -> impl Iterator<Item = CallId> + '_ {
        self.holders.iter().map(|(_, call)| *call)
    }

    /// Returns the call that was granted first; `None`: no body is left, and the key is handed over, lingers, or is deleted.
    pub fn first(&self) -> Option<CallId> {
        self.holders().next()
    }

    /// Adds a holder. Returns true if a read must show whether another process waits.
    pub fn add(&mut self, now: Moment, call: CallId) -> bool {
        if self.holders.is_empty() {
            self.since = now;
        }
        self.handover += 1;
        self.holders.insert((self.handover, call));
        !self.contended && self.is_old(now) && self.ask(now)
    }

    /// Removes a holder, whose token has this `handover`. Returns true if it was the last: then the key may stay until `stays`.
    pub fn leave(&mut self, (call, handover): (CallId, u16), stays: Option<Moment>) -> bool {
        self.holders.remove(&(handover, call));
        self.stays = stays;
        self.holders.is_empty()
    }

    /// Returns when the record at etcd must name the first holder; `None` if it does.
    pub fn record_due(&self) -> Option<Moment> {
        let unnamed = !self.lost && self.first().is_some_and(|first| self.named != Some(first));
        unnamed.then_some(self.since + SETTLED)
    }

    /// Takes in whether a read of this revision showed that another process waits. It does not count if a later read came first.
    pub fn read(&mut self, now: Moment, revision: Revision, contended: bool) {
        if self.read.0 <= Some(revision) {
            (self.asked, self.read, self.contended) = (None, (Some(revision), now), contended);
        }
    }

    /// Requests a read. Returns false if one is already under way.
    pub fn ask(&mut self, now: Moment) -> bool {
        let first = self.asked.is_none();
        self.asked.get_or_insert(now);
        first
    }

    /// Returns true if another process may have come since the last read.
    fn is_old(&self, now: Moment) -> bool {
        now - self.read.1 >= RUN
    }

    /// Returns true if the key may be handed over once more, now that the last body is gone.
    pub fn may_pass(&self, now: Moment) -> bool {
        let patient = self.asked.is_none_or(|at| now - at < PATIENCE);
        let unwanted = !self.contended && (patient || !self.is_old(now));
        !self.lost && self.stays.is_some() && self.handover < u16::MAX && unwanted
    }

    /// Returns true if no reader may join: a contender waits, or the key will soon be deleted. `None`: a read must show it.
    pub fn is_closed(&self, now: Moment) -> Option<bool> {
        match self.read {
            _ if self.lost || self.handover == u16::MAX => Some(true),
            (Some(_), came) if now - came <= OPEN => Some(self.contended),
            _ => None,
        }
    }
}
