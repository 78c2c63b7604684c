//! Registry of an engine's calls: which of them wait and which hold, to be read without the engine.
//!
//! A call is one entry from the moment it queues until its caller begins to give it back. Entering, changing and leaving take one of
//! sixteen locks for one step in a small map. A reader takes each of them for as long as it copies its entries. The combiner's lock
//! around the core has no part in this, so that a status holds up no hand-over.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use etcd_locked_core::{CallId, Mode};

use super::ownership::OwnedLocks;
use crate::clock::Moment;
use crate::values::name::Name;

/// Calls in a row are in different shards, so their threads seldom meet.
const SHARDS: usize = 16;

/// One call that waits or holds.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    /// Path of the annotated function.
    pub(crate) function: Option<&'static str>,
    /// When it queued.
    pub(crate) queued: Moment,
    /// How it shares its names.
    pub(crate) mode: Mode,
    /// Its names, in its order.
    pub(crate) names: Arc<[Name]>,
    /// Its locks, once its caller has them.
    pub(crate) held: Option<Arc<OwnedLocks>>,
}

/// All calls of an engine that wait or hold.
#[derive(Debug, Default)]
pub(super) struct Registry([Mutex<BTreeMap<CallId, Call>>; SHARDS]);

impl Registry {
    /// A call queues.
    pub(super) fn enter(&self, id: CallId, call: Call) {
        self.shard(id).insert(id, call);
    }

    /// Its caller has these locks.
    pub(super) fn hold(&self, id: CallId, locks: Arc<OwnedLocks>) {
        if let Some(call) = self.shard(id).get_mut(&id) {
            call.held = Some(locks);
        }
    }

    /// It neither waits nor holds any more.
    pub(super) fn leave(&self, id: CallId) {
        let left = self.shard(id).remove(&id);
        drop(left); // without the shard
    }

    /// All calls, shard after shard.
    pub(super) fn calls(&self) -> Vec<Call> {
        let mut calls = Vec::new();
        for shard in &self.0 {
            calls.extend(locked(shard).values().cloned());
        }
        calls
    }

    fn shard(&self, id: CallId) -> MutexGuard<'_, BTreeMap<CallId, Call>> {
        let shards = SHARDS as u64;
        let at = usize::try_from(id.get() % shards).unwrap_or_default();
        locked(&self.0[at])
    }
}

fn locked(shard: &Mutex<BTreeMap<CallId, Call>>) -> MutexGuard<'_, BTreeMap<CallId, Call>> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}
