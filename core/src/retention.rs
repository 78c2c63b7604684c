//! Retention: keys that stay locked after their call, on a lease of their own (rule P39).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::ids::{ContenderId, LeaseId};
use crate::moment::Moment;

/// The shortest lease etcd grants, in whole seconds.
const SHORTEST: i64 = 2;

/// What a call has left locked.
#[derive(Debug)]
struct Retention {
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

/// All retentions of a process.
#[derive(Debug, Default)]
pub struct Retentions {
    all: BTreeMap<ContenderId, Retention>,
    /// Those whose keys are still under a session that may keep them.
    moving: BTreeSet<ContenderId>,
}

impl Retentions {
    /// The keys of a contender are to stay until then.
    pub fn begin(&mut self, id: ContenderId, until: Moment, record: Arc<[u8]>) {
        let retention = Retention {
            until,
            record,
            lease: None,
            moved: false,
            under_way: false,
        };
        self.all.insert(id, retention);
        self.moving.insert(id);
    }

    /// When its time is over.
    pub fn until(&self, id: ContenderId) -> Option<Moment> {
        Some(self.all.get(&id)?.until)
    }

    /// What it needs now, which is under way from now on; `None`: nothing, or an answer.
    pub fn step(&mut self, id: ContenderId, now: Moment) -> Option<Step> {
        let kept = self.all.get_mut(&id)?;
        if kept.moved || std::mem::replace(&mut kept.under_way, true) {
            return None;
        }
        let rest = (kept.until - now).as_millis().div_ceil(1000);
        let ttl_secs = i64::try_from(rest).unwrap_or(i64::MAX).max(SHORTEST);
        Some(match kept.lease {
            None => Step::Reserve(ttl_secs),
            Some(lease) => Step::Move(lease, kept.record.clone()),
        })
    }

    /// A step was answered, or not: which lease its keys are to have, if it has one.
    pub fn answered(&mut self, id: ContenderId, lease: Option<LeaseId>) -> Option<()> {
        let kept = self.all.get_mut(&id)?;
        kept.under_way = false;
        kept.lease = lease;
        Some(())
    }

    /// Its keys hang on its lease.
    pub fn moved(&mut self, id: ContenderId) -> Option<()> {
        self.moving.remove(&id);
        self.all.get_mut(&id)?.moved = true;
        Some(())
    }

    /// The session is lost that its keys are still under.
    pub fn session_lost(&mut self, id: ContenderId) {
        self.moving.remove(&id);
    }

    /// Its time is over, or its keys are gone: whether they hung on its lease, and else that lease, which keeps nothing.
    pub fn end(&mut self, id: ContenderId) -> Option<(bool, Option<LeaseId>)> {
        self.moving.remove(&id);
        let kept = self.all.remove(&id)?;
        Some((kept.moved, kept.lease.filter(|_| !kept.moved)))
    }

    /// Whether a session has to keep keys until they have their own lease.
    pub fn are_moving(&self) -> bool {
        !self.moving.is_empty()
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}
