//! Registry of an engine's calls, waiting or holding, for readers that must not lock the engine.
//!
//! A call is one entry from when it queues until its caller begins to release it. Entering and leaving lock one of sixteen mutexes, for
//! one step in a small map. A reader locks each of them while it copies the entries. The mutex around the core is not involved, so a
//! status does not delay a hand-over.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use etcd_locked_core::{CallId, Mode};

use super::ownership::OwnedLocks;
use crate::clock::Moment;
use crate::mutex::lock;
use crate::values::Name;

/// Consecutive calls are in different shards, so their threads seldom meet.
const SHARDS: usize = 16;

/// A call that waits or holds.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) id: CallId,
    /// Path of the annotated function.
    pub(crate) function: Option<&'static str>,
    pub(crate) queued: Moment,
    /// How the call shares its names.
    pub(crate) mode: Mode,
    pub(crate) names: Arc<[Name]>,
    /// Its locks, once its caller has them.
    pub(crate) held: OnceLock<Arc<OwnedLocks>>,
}

/// All calls of an engine that wait or hold.
#[derive(Debug, Default)]
pub(super) struct Registry([Mutex<Shard>; SHARDS]);

type Shard = BTreeMap<CallId, Arc<Call>>;

impl Registry {
    pub(super) fn enter(&self, call: Arc<Call>) {
        self.shard(call.id).insert(call.id, call);
    }

    /// Removes a call that neither waits nor holds any more.
    pub(super) fn leave(&self, id: CallId) {
        let left = self.shard(id).remove(&id);
        drop(left); // outside the shard's mutex
    }

    pub(super) fn calls(&self) -> Vec<Arc<Call>> {
        self.0.iter().flat_map(|shard| lock(shard).values().cloned().collect::<Vec<_>>()).collect()
    }

    fn shard(&self, id: CallId) -> MutexGuard<'_, Shard> {
        let shards = SHARDS as u64;
        let at = usize::try_from(id.0 % shards).unwrap_or_default();
        lock(&self.0[at])
    }
}
