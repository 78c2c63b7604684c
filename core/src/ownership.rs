//! Ownership: how the calls of this process hold one contender, through all hand-overs (rules P22, P23, P37).
//!
//! While other processes wait, an ownership ends after [`RUN`]: then the key is deleted, and the calls of this process queue again,
//! behind the others. Readers may join for [`OPEN`] after a read has shown that no contender waits because of them.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::ids::{CallId, Revision};
use crate::moment::Moment;

/// How long a key is handed over before a read has to show that no other process waits. A number of hand-overs instead would make
/// short bodies read all the time.
const RUN: Duration = Duration::from_millis(10);

/// How long to wait for that read: after that, another process is assumed to wait.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long a read of what waits behind a reader's key is relied on, counted from its response, however far away etcd is.
const OPEN: Duration = Duration::from_millis(50);

/// How long a call holds its lock before its keys are watched and its record is written: short sections pay nothing (rule P18).
pub const SETTLED: Duration = Duration::from_secs(1);

/// Whether a reader may join.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    Open,
    /// A read has to show first that no contender waits because of the readers.
    Unknown,
    /// A contender waits, or the key is about to be deleted.
    Closed,
}

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
    /// When a read last showed that no other process waits, or when the ownership began.
    unwanted_at: Moment,
    /// When a read was asked for that has no response yet.
    pub asked: Option<Moment>,
    /// The revision of the last read, when it came, and whether it showed that another process waits.
    behind: Option<(Revision, Moment, bool)>,
    /// The key is gone or its session is lost: no call can rely on it.
    pub lost: bool,
}

impl Ownership {
    /// Begins without a holder. `alone`: the response that admitted it, of this revision, has shown no younger contender.
    pub fn begin(now: Moment, alone: Option<Revision>) -> Self {
        Self {
            holders: BTreeSet::new(),
            since: now,
            named: None,
            handover: 0,
            unwanted_at: now,
            asked: None,
            behind: alone.map(|revision| (revision, now, false)),
            lost: false,
        }
    }

    /// The calls that hold it, the first granted first.
    pub fn holders(&self) -> impl Iterator<Item = CallId> + '_ {
        self.holders.iter().map(|(_, call)| *call)
    }

    /// The call that was granted first.
    pub fn first(&self) -> Option<CallId> {
        self.holders().next()
    }

    /// Returns true if no call holds it: its key lingers for the next.
    pub fn lingers(&self) -> bool {
        self.holders.is_empty()
    }

    /// One more call holds it. Returns true if a read has to show whether another process waits.
    pub fn add(&mut self, now: Moment, call: CallId, first: bool) -> bool {
        if self.holders.is_empty() {
            self.since = now;
        }
        self.handover += u16::from(!first);
        self.holders.insert((self.handover, call));
        self.is_spent(now) && !self.is_contended() && self.ask(now)
    }

    /// A call's body is gone; `handover`: the number in its token. Returns true if it was the last.
    pub fn leave(&mut self, call: CallId, handover: u16) -> bool {
        self.holders.remove(&(handover, call));
        self.holders.is_empty()
    }

    /// When the record at etcd has to name the first holder, unless it does.
    pub fn record_due(&self) -> Option<Moment> {
        let unnamed = !self.lost && !self.lingers() && self.first() != self.named;
        unnamed.then_some(self.since + SETTLED)
    }

    /// A read of this revision has shown whether another process waits. One that a later read has overtaken does not count.
    pub fn read(&mut self, now: Moment, revision: Revision, contended: bool) {
        if self.behind.is_some_and(|(seen, ..)| seen > revision) {
            return;
        }
        self.asked = None;
        self.behind = Some((revision, now, contended));
        if !contended {
            self.unwanted_at = now;
        }
    }

    /// Asks for a read. Returns true unless one is under way.
    pub fn ask(&mut self, now: Moment) -> bool {
        let first = self.asked.is_none();
        self.asked.get_or_insert(now);
        first
    }

    /// Returns true if another process waits, as far as the last read has shown.
    pub fn is_contended(&self) -> bool {
        self.behind.is_some_and(|(.., contended)| contended)
    }

    /// Returns true if [`RUN`] is over: then the key stays only while no other process is known to wait.
    fn is_spent(&self, now: Moment) -> bool {
        now - self.unwanted_at >= RUN
    }

    /// Returns true if the key may be handed over once more.
    pub fn may_pass(&self, now: Moment) -> bool {
        let patient = self.asked.is_none_or(|at| now - at < PATIENCE);
        let unspent = !self.is_spent(now) || (!self.is_contended() && patient);
        !self.lost && self.handover < u16::MAX && unspent
    }

    /// Whether a reader may join.
    pub fn gate(&self, now: Moment) -> Gate {
        if self.lost || self.handover == u16::MAX {
            return Gate::Closed;
        }
        match self.behind.filter(|(_, came, _)| now - *came <= OPEN) {
            Some((.., true)) => Gate::Closed,
            Some((.., false)) => Gate::Open,
            None => Gate::Unknown,
        }
    }
}
