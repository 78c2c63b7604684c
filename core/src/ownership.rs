//! Ownership: one ownership of a contender's keys by this process, through all hand-overs (rules P22, P23, P37).
//!
//! While other processes wait, an ownership ends after [`RUN`]: then the keys are deleted, and the calls here queue again, behind
//! the others. Readers may join for [`OPEN`] after an answer has shown that no contender is kept
//! waiting by that.

use std::time::Duration;

use crate::ids::{CallId, Revision};
use crate::moment::Moment;

/// For how long a key is handed over before a read has to show that no other process waits. A number of hand-overs would have short
/// bodies read all the time.
const RUN: Duration = Duration::from_millis(10);

/// How long to wait for that read: then another process is assumed to wait.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long an answer that shows what waits behind a reader's key is relied on: from when it came, however far away etcd is.
const OPEN: Duration = Duration::from_millis(50);

/// Whether a reader may join.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    /// It may.
    Open,
    /// A read has to show first that no contender is kept waiting by that.
    Unknown,
    /// A contender is kept waiting, or the key is on its way out.
    Closed,
}

/// One ownership of a contender's keys.
#[derive(Debug)]
pub struct Ownership {
    created: Revision,
    /// In the order of their grants; at most as many as a token counts hand-overs.
    holders: Vec<CallId>,
    /// When the first of them was granted it.
    got: Moment,
    /// Whether a write of the holder into their records was asked for since the keys last lingered.
    described: bool,
    /// For the token.
    handover: u16,
    /// When a read last showed that no other process waits, or when it began.
    since: Moment,
    /// When a read was asked for.
    asked: Option<Moment>,
    /// The last state that has shown whether another process waits behind it, when that came, and whether one does.
    behind: Option<(Revision, Moment, bool)>,
    lost: bool,
}

impl Ownership {
    /// Begins with the first holder. `alone`: the answer that admitted it has shown that no younger contender was there.
    pub fn begin(now: Moment, created: Revision, holder: CallId, alone: bool) -> Self {
        Self {
            created,
            holders: vec![holder],
            got: now,
            described: false,
            handover: 0,
            since: now,
            asked: None,
            behind: alone.then_some((created, now, false)),
            lost: false,
        }
    }

    /// The create revision of its keys.
    pub fn created(&self) -> Revision {
        self.created
    }

    /// The number of hand-overs, for the token.
    pub fn handover(&self) -> u16 {
        self.handover
    }

    /// The calls that hold it, in the order of their grants.
    pub fn holders(&self) -> impl Iterator<Item = CallId> + '_ {
        self.holders.iter().copied()
    }

    /// When the first of its holders was granted it.
    pub fn got(&self) -> Moment {
        self.got
    }

    /// Notes whether the records of its keys are, or will be, about that holder; true if that is new.
    pub fn set_described(&mut self, described: bool) -> bool {
        std::mem::replace(&mut self.described, described) != described
    }

    /// Another call holds it too, or after one that has left. True if a read has to show whether another process waits.
    pub fn add(&mut self, now: Moment, call: CallId) -> bool {
        if self.holders.is_empty() {
            self.got = now;
        }
        self.holders.push(call);
        self.handover += 1;
        self.is_spent(now) && !self.is_contended() && self.ask(now)
    }

    /// Whether no call holds it: its keys linger for the next.
    pub fn lingers(&self) -> bool {
        self.holders.is_empty()
    }

    /// A call's body is gone; true if it was the last.
    pub fn leave(&mut self, call: CallId) -> bool {
        self.holders.retain(|of| *of != call);
        self.holders.is_empty()
    }

    /// No call can rely on it any more.
    pub fn lose(&mut self) {
        self.lost = true;
    }

    /// Whether no call can rely on it any more.
    pub fn is_lost(&self) -> bool {
        self.lost
    }

    /// A read has shown whether a contender waits behind it, at this revision. One that a later read has overtaken counts no more.
    pub fn read(&mut self, now: Moment, revision: Revision, contended: bool) {
        if self.behind.is_some_and(|(seen, ..)| seen > revision) {
            return;
        }
        self.asked = None;
        self.behind = Some((revision, now, contended));
        if !contended {
            self.since = now;
        }
    }

    /// Asks for a read unless one is on its way; true if one has to be sent.
    pub fn ask(&mut self, now: Moment) -> bool {
        let first = self.asked.is_none();
        self.asked.get_or_insert(now);
        first
    }

    /// Whether a read was asked for that has not been answered.
    pub fn is_asked(&self) -> bool {
        self.asked.is_some()
    }

    /// Whether another process waits, as far as the last read has shown.
    pub fn is_contended(&self) -> bool {
        self.behind.is_some_and(|(.., contended)| contended)
    }

    /// Whether `RUN` is used up: then the keys stay only while no other process is known to wait.
    fn is_spent(&self, now: Moment) -> bool {
        now - self.since >= RUN
    }

    /// Whether the keys may be handed over once more.
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
        let recent = self.behind.filter(|(_, came, _)| now - *came <= OPEN);
        match recent {
            Some((.., true)) => Gate::Closed,
            Some((.., false)) => Gate::Open,
            None => Gate::Unknown,
        }
    }
}
