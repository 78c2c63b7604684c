//! Ring of endpoints: which one exchanges begin with, and which comes next (rule P32).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use super::endpoint::Endpoint;
use crate::mutex::lock;

/// All endpoints of a client. They change only if it follows the cluster's member list.
pub(super) struct Ring {
    endpoints: Mutex<Arc<[Arc<Endpoint>]>>,
    current: AtomicUsize,
}

impl Ring {
    /// Begins with endpoint `first`.
    pub(super) fn new(endpoints: Vec<Arc<Endpoint>>, first: usize) -> Self {
        Self { endpoints: Mutex::new(endpoints.into()), current: AtomicUsize::new(first) }
    }

    pub(super) fn all(&self) -> Arc<[Arc<Endpoint>]> {
        lock(&self.endpoints).clone()
    }

    /// Which endpoint is the current one, counted from 0.
    pub(super) fn position(&self) -> usize {
        self.current.load(Ordering::Relaxed)
    }

    /// All endpoints, the current one first.
    pub(super) fn round(&self) -> impl Iterator<Item = Arc<Endpoint>> + use<> {
        let all = self.all();
        let first = self.position();
        (first..first + all.len()).filter_map(move |i| all.get(i % all.len()).cloned())
    }

    /// Exchanges begin elsewhere, unless another one has already seen to that.
    pub(super) fn move_on(&self, from: &Arc<Endpoint>) {
        let all = self.all();
        let from = all.iter().position(|other| Arc::ptr_eq(other, from));
        if let Some(from) = from {
            let next = (from + 1) % all.len();
            let (same, different) = (Ordering::Relaxed, Ordering::Relaxed);
            let _ = self.current.compare_exchange(from, next, same, different);
        }
    }

    /// Replaces the endpoints; the current one stays the current one, if it is still among them.
    pub(super) fn replace(&self, endpoints: Vec<Arc<Endpoint>>) {
        let current = self.round().next();
        let at = |current| endpoints.iter().position(|other| Arc::ptr_eq(other, &current));
        let current = current.and_then(at).unwrap_or(0);
        // A round between the two begins with another endpoint, which does no harm.
        self.current.store(current, Ordering::Relaxed);
        *lock(&self.endpoints) = endpoints.into();
    }
}
