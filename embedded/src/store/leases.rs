//! Leases of the store, each with its end and its keys.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

#[derive(Debug, Clone)]
pub(super) struct Lease {
    pub(super) ttl: i64,
    pub(super) until: Duration,
    pub(super) keys: BTreeSet<Vec<u8>>,
}

#[derive(Debug, Clone)]
pub(super) struct Leases {
    leases: BTreeMap<i64, Lease>,
    by_end: BTreeSet<(Duration, i64)>,
    next: i64,
}

impl Leases {
    pub(super) fn starting_at(first: i64) -> Self {
        Self { leases: BTreeMap::new(), by_end: BTreeSet::new(), next: first.max(1) }
    }

    /// Chooses an unused id.
    pub(super) fn choose(&mut self) -> i64 {
        loop {
            let id = self.next;
            self.next = id.checked_add(1).unwrap_or(1);
            if !self.contains(id) {
                return id;
            }
        }
    }

    pub(super) fn contains(&self, id: i64) -> bool {
        self.leases.contains_key(&id)
    }

    pub(super) fn get(&self, id: i64) -> Option<&Lease> {
        self.leases.get(&id)
    }

    pub(super) fn insert(&mut self, id: i64, ttl: i64, now: Duration) {
        let until = now.saturating_add(seconds(ttl));
        self.by_end.insert((until, id));
        self.leases.insert(id, Lease { ttl, until, keys: BTreeSet::new() });
    }

    pub(super) fn remove(&mut self, id: i64) -> Option<Lease> {
        let lease = self.leases.remove(&id)?;
        self.by_end.remove(&(lease.until, id));
        Some(lease)
    }

    /// Gives a lease its whole TTL again, and returns it in seconds.
    pub(super) fn renew(&mut self, id: i64, now: Duration) -> Option<i64> {
        let lease = self.leases.get_mut(&id)?;
        self.by_end.remove(&(lease.until, id));
        lease.until = now.saturating_add(seconds(lease.ttl));
        self.by_end.insert((lease.until, id));
        Some(lease.ttl)
    }

    pub(super) fn ids(&self) -> Vec<i64> {
        self.leases.keys().copied().collect()
    }

    /// Returns the lease that ends first, and its end.
    pub(super) fn first(&self) -> Option<(Duration, i64)> {
        self.by_end.first().copied()
    }

    /// Returns all leases with their ends, in the order in which they end.
    pub(super) fn by_end(&self) -> impl Iterator<Item = (Duration, i64)> {
        self.by_end.iter().copied()
    }

    pub(super) fn attach(&mut self, id: i64, key: &[u8]) {
        if let Some(lease) = self.leases.get_mut(&id) {
            lease.keys.insert(key.to_vec());
        }
    }

    pub(super) fn detach(&mut self, id: i64, key: &[u8]) {
        if let Some(lease) = self.leases.get_mut(&id) {
            lease.keys.remove(key);
        }
    }
}

fn seconds(ttl: i64) -> Duration {
    Duration::from_secs(u64::try_from(ttl).unwrap_or(0))
}
