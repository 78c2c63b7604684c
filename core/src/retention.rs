//! Retention: keys that stay locked after their call, on a lease of their own (rule P39).

use std::sync::Arc;

use crate::ids::{LeaseId, Revision};
use crate::moment::Moment;

/// The shortest lease etcd grants, in whole seconds.
const SHORTEST: i64 = 2;

/// What a call has left locked.
#[derive(Debug)]
pub struct Retention {
    created: Revision,
    until: Moment,
    record: Arc<[u8]>,
    /// The lease its keys are to have; and whether they hang on it.
    lease: Option<LeaseId>,
    moved: bool,
    under_way: bool,
}

/// What a retention needs now.
#[derive(Debug)]
pub enum Step {
    /// A lease of this TTL, in seconds.
    Reserve(i64),
    /// Its keys under that lease, with this record.
    Move(LeaseId, Arc<[u8]>),
}

impl Retention {
    /// The keys that were created at this revision are to stay until then.
    pub fn new(created: Revision, until: Moment, record: Arc<[u8]>) -> Self {
        Self { created, until, record, lease: None, moved: false, under_way: false }
    }

    /// The create revision of its keys.
    pub fn created(&self) -> Revision {
        self.created
    }

    /// When its time is over.
    pub fn until(&self) -> Moment {
        self.until
    }

    /// What it needs now, which is under way from now on; `None`: nothing, or an answer.
    pub fn step(&mut self, now: Moment) -> Option<Step> {
        if self.moved || std::mem::replace(&mut self.under_way, true) {
            return None;
        }
        let rest = (self.until - now).as_millis().div_ceil(1000);
        let ttl_secs = i64::try_from(rest).unwrap_or(i64::MAX).max(SHORTEST);
        Some(match self.lease {
            None => Step::Reserve(ttl_secs),
            Some(lease) => Step::Move(lease, self.record.clone()),
        })
    }

    /// A step was answered, or not: which lease its keys are to have, if it has one.
    pub fn answered(&mut self, lease: Option<LeaseId>) {
        self.under_way = false;
        self.lease = lease;
    }

    /// Its keys hang on its lease.
    pub fn moved(&mut self) {
        self.moved = true;
    }

    /// Whether its keys hang on its lease.
    pub fn is_moved(&self) -> bool {
        self.moved
    }

    /// At its end: whether its keys hang on its lease, and else that lease, which keeps nothing.
    pub fn rest(&self) -> (bool, Option<LeaseId>) {
        (self.moved, self.lease.filter(|_| !self.moved))
    }
}
