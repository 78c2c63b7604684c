//! Etcd of the simulator: the embedded store, with faults of an operator and of a member that lags.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use etcd_client::proto::{
    PbDeleteRequest, PbLeaseGrantRequest, PbLeaseRevokeRequest, PbLeaseTimeToLiveRequest,
    PbPutRequest,
};
use etcd_locked_embedded::store::Store;

use super::convert;
use crate::world::Revision;
use etcd_locked_core::{
    Event, Failure, Key, Kv, LeaseId, Moment, Op, Refusal, Request, Response, Seat, Settings, Txn,
    TxnAnswer,
};

/// A key with its create revision.
pub type Incarnation = (Vec<u8>, etcd_locked_core::Revision);

/// The id before that of the first lease.
const LEASES: LeaseId = 0xa0;

/// Whether etcd accepts writes, or has reached its quota (rule P34).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Space {
    /// There is room.
    Enough,
    /// etcd refuses writes, but not deletes, reads and renewals. It applies this number of the next writes nevertheless.
    Crossing(u32),
}

/// The content of a backup.
#[derive(Debug, Clone)]
pub struct Snapshot {
    store: Store,
    keys: BTreeMap<Vec<u8>, Kv>,
}

/// A model of etcd: the embedded store, with faults that a test can switch on.
#[derive(Debug)]
pub struct Etcd {
    store: Store,
    /// The id of the last lease. It is kept over a wipe and a restore.
    last_lease: LeaseId,
    /// All keys at the last revision that was seen, for the checker.
    keys: BTreeMap<Vec<u8>, Kv>,
    seen: Revision,
    /// When each lease was last renewed.
    pub renewed: BTreeMap<LeaseId, Moment>,
    /// Incarnations that were deleted, for the checker to take.
    pub removed: Vec<Incarnation>,
    /// All keys that were deleted, with the revision of the deletion.
    pub gone: Vec<(Kv, Revision)>,
    /// Keys that contain this may be neither put nor deleted.
    pub forbidden: Option<&'static str>,
    /// A second such text, set by the nemesis.
    pub denied: Option<&'static str>,
    /// Whether it accepts writes.
    pub space: Space,
}

impl Default for Etcd {
    fn default() -> Self {
        Self::new()
    }
}

impl Etcd {
    /// Makes an empty etcd.
    #[must_use]
    pub fn new() -> Self {
        Self::after(LEASES)
    }

    fn after(last_lease: LeaseId) -> Self {
        let store = Store::with_first_lease(last_lease + 1);
        Self {
            seen: store.revision(),
            store,
            last_lease,
            keys: BTreeMap::new(),
            renewed: BTreeMap::new(),
            removed: Vec::new(),
            gone: Vec::new(),
            forbidden: None,
            denied: None,
            space: Space::Enough,
        }
    }

    /// Carries out a request. Returns the response.
    pub fn apply(&mut self, now: Moment, request: &Request) -> Result<Response, Failure> {
        self.expire(now);
        let no_space = self.writes(request);
        if no_space == Some(false) {
            return Err(refused(Refusal::NoSpace));
        }
        let answer = match request {
            Request::Grant(ttl_secs) => {
                let ttl = Duration::from_secs(ttl_secs.unsigned_abs());
                let (lease, ttl) = self.lease(now, ttl);
                Ok(Response::Granted { lease, ttl })
            }
            Request::KeepAlive { lease, .. } => {
                let answer = self.store.lease_keep_alive(now.since_boot(), *lease);
                let ttl = Duration::from_secs(answer.ttl.unsigned_abs());
                self.renewed.insert(*lease, now);
                let revision = etcd_locked_core::Revision::new(self.store.revision());
                Ok(Response::KeptAlive { ttl, revision, stale: false })
            }
            Request::Revoke(lease) => {
                self.revoke(*lease);
                Ok(Response::Revoked)
            }
            Request::List(lease) => {
                let request = PbLeaseTimeToLiveRequest { id: *lease, keys: true };
                let found = self.store.lease_time_to_live(now.since_boot(), &request);
                match found.ttl {
                    ..0 => Err(refused(Refusal::LeaseNotFound)),
                    _ => Ok(Response::Listed(Some(found.keys))),
                }
            }
            Request::Txn(txn) if self.forbids(txn) => Err(refused(Refusal::PermissionDenied)),
            Request::Txn(txn) => self
                .store
                .txn(&convert::txn(txn))
                .map(|answer| Response::Txn(convert::answer(txn, answer)))
                .map_err(convert::failure),
        };
        self.track();
        match no_space {
            Some(true) if answer.is_ok() => Err(refused(Refusal::NoSpace)),
            _ => answer,
        }
    }

    /// Returns, for a write at the quota, whether etcd applies it although it refuses it; `None`: etcd accepts it.
    fn writes(&mut self, request: &Request) -> Option<bool> {
        let puts = |txn: &Txn| {
            let mut ops = txn.then.iter().chain(&txn.or_else);
            ops.any(|op| matches!(op, Op::Put { .. }))
        };
        match (request, &mut self.space) {
            (_, Space::Enough) => None,
            (Request::Txn(txn), _) if !puts(txn) => None,
            (Request::KeepAlive { .. } | Request::Revoke(_) | Request::List(_), _) => None,
            (_, Space::Crossing(left)) if *left > 0 => {
                *left -= 1;
                Some(true)
            }
            _ => Some(false),
        }
    }

    /// Returns true if access control denies it. Like etcd's, it checks both branches.
    fn forbids(&self, txn: &Txn) -> bool {
        let words = [self.forbidden, self.denied];
        let forbidden = |key: &Key| words.iter().flatten().any(|word| key.contains(word));
        txn.then
            .iter()
            .chain(&txn.or_else)
            .any(|op| matches!(op, Op::Put { key, .. } | Op::Delete(key) if forbidden(key)))
    }

    fn lease(&mut self, now: Moment, ttl: Duration) -> (LeaseId, Duration) {
        let request = PbLeaseGrantRequest {
            ttl: ttl.as_secs().try_into().expect("a TTL of some years"),
            // A restored store would reuse ids that were granted after the snapshot. etcd would not.
            id: self.last_lease + 1,
        };
        let granted = self.store.lease_grant(now.since_boot(), &request).expect("a lease");
        self.last_lease = granted.id;
        self.renewed.insert(granted.id, now);
        (granted.id, Duration::from_secs(granted.ttl.unsigned_abs()))
    }

    /// Grants a lease.
    pub fn grant(&mut self, now: Moment, ttl: Duration) -> LeaseId {
        self.lease(now, ttl).0
    }

    /// Returns the store's revision.
    pub fn revision(&self) -> Revision {
        self.store.revision()
    }

    /// Returns the key-value of a key.
    pub fn kv(&self, key: &[u8]) -> Option<&Kv> {
        self.keys.get(key)
    }

    /// Returns true if this incarnation exists.
    pub fn has(&self, (key, created): &Incarnation) -> bool {
        self.kv(key).is_some_and(|kv| kv.create_revision == *created)
    }

    /// Returns all key-values, ordered by key.
    pub fn kvs(&self) -> impl Iterator<Item = &Kv> + Clone {
        self.keys.values()
    }

    /// Returns the contenders for a name, which are its direct children (rule P2).
    pub fn below<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Kv> + Clone {
        self.kvs().filter(|kv| contends(name, &kv.key))
    }

    /// Returns all leases.
    pub fn leases(&self) -> Vec<LeaseId> {
        let leases = self.store.lease_leases().leases;
        leases.into_iter().map(|lease| lease.id).collect()
    }

    /// Returns when the next lease expires.
    pub fn next_expiry(&self) -> Option<Moment> {
        self.store.next_expiry().map(Moment::after_boot)
    }

    /// Ends the leases that have expired.
    pub fn expire(&mut self, now: Moment) {
        self.store.expire(now.since_boot());
        self.track();
    }

    /// Elects a new leader, which extends all leases to their full TTL (rule P31).
    pub fn promote(&mut self, now: Moment) {
        self.store.promote(now.since_boot());
    }

    /// Revokes a lease.
    pub fn revoke(&mut self, lease: LeaseId) {
        // If the lease is gone already, nothing remains to be done.
        let _ = self.store.lease_revoke(&PbLeaseRevokeRequest { id: lease });
        self.track();
    }

    /// Deletes a key.
    pub fn delete(&mut self, key: &[u8]) {
        let request = PbDeleteRequest { key: key.into(), ..PbDeleteRequest::default() };
        self.store.delete_range(&request).expect("a delete");
        self.track();
    }

    /// Puts a key without a value.
    pub fn put(&mut self, key: &[u8], lease: LeaseId) {
        let request = PbPutRequest { key: key.into(), lease, ..PbPutRequest::default() };
        self.store.put(&request).expect("a put");
        self.track();
    }

    /// Deletes everything and restarts at revision 1, as a new cluster at the old address would.
    pub fn wipe(&mut self) {
        *self = Self {
            forbidden: self.forbidden,
            denied: self.denied,
            space: self.space,
            ..Self::after(self.last_lease)
        };
    }

    /// Makes a backup.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot { store: self.store.clone(), keys: self.keys.clone() }
    }

    /// Goes back to a snapshot and its revision. Leases get their full TTL again.
    pub fn restore(&mut self, now: Moment, snapshot: Snapshot) {
        self.store = snapshot.store;
        self.keys = snapshot.keys;
        self.seen = self.store.revision();
        self.removed.clear();
        self.promote(now);
    }

    /// Compacts the whole history.
    pub fn compact(&mut self) {
        let request = etcd_client::proto::PbCompactionRequest {
            revision: self.store.revision(),
            physical: false,
        };
        // There may be nothing to compact since the last time.
        let _ = self.store.compact(&request);
    }

    /// Returns the events below a prefix from this revision onwards; `None`: they are compacted.
    pub fn events(&self, prefix: &str, from: Revision) -> Option<Vec<Event>> {
        let end = convert::end_of(prefix.as_bytes());
        let events = self.store.events(prefix.as_bytes(), &end, from, false).ok()?;
        Some(events.into_iter().flatten().map(convert::event).collect())
    }

    /// Returns the response to a read-only transaction from a member that is `back` revisions behind.
    pub fn stale(&self, txn: &Txn, back: usize) -> TxnAnswer {
        let back = Revision::try_from(back).unwrap_or_default();
        let oldest = self.store.compacted().max(1);
        let revision = (self.store.revision() - back).max(oldest);
        let read = |op: &Op| {
            let mut range = convert::range(op);
            range.revision = revision;
            convert::found(op, self.store.range(&range).expect("a range").kvs)
        };
        TxnAnswer {
            revision: crate::world::revision(revision),
            stale: false,
            succeeded: true,
            answers: txn.then.iter().map(read).collect(),
        }
    }

    /// Notes what has changed.
    fn track(&mut self) {
        if self.store.revision() == self.seen {
            return;
        }
        let from = self.seen + 1;
        self.seen = self.store.revision();
        let events = self.store.events(b"\0", b"\0", from, false);
        for event in events.expect("what is not compacted").into_iter().flatten() {
            match convert::event(event) {
                Event::Put(kv) => {
                    self.keys.insert(kv.key.clone(), kv);
                }
                Event::Delete { key, revision } => {
                    let kv = self.keys.remove(&key).expect("a key that was there");
                    self.removed.push((key, kv.create_revision));
                    self.gone.push((kv, revision.get()));
                }
            }
        }
    }
}

/// Returns true if `key` is a direct child of a name.
pub(crate) fn contends(name: &str, key: &[u8]) -> bool {
    let child = key.strip_prefix(name.as_bytes()).and_then(|rest| rest.strip_prefix(b"/"));
    child.is_some_and(|child| !child.contains(&b'/'))
}

/// Returns the key of a lease on a seat of a name (rules P1, P37).
pub fn key_of(name: &str, lease: LeaseId, seat: Seat) -> String {
    format!("{name}/{lease:x}{seat}")
}

/// Returns the revision of an event.
pub fn revision_of(event: &Event) -> Revision {
    match event {
        Event::Put(kv) => kv.mod_revision.get(),
        Event::Delete { revision, .. } => revision.get(),
    }
}

/// Returns a refusal of this kind.
pub fn refused(kind: Refusal) -> Failure {
    Failure::Refused(kind, Arc::from(Box::from("refused")))
}

/// Returns the failure of a request that had no response in time.
pub fn unknown() -> Failure {
    Failure::Unknown(Arc::from(Box::from("timed out")))
}

/// Returns the failure of a request that reached no endpoint.
pub fn unavailable() -> Failure {
    Failure::Unavailable(Arc::from(Box::from("not reached")))
}

/// Returns the settings of a core, unless a test needs others.
pub fn settings(seed: u64) -> Settings {
    Settings {
        prefix: "locks/".into(),
        connect_timeout: Duration::from_secs(5),
        silence: Arc::from(Box::from("etcd does not answer")),
        describe: described,
        keys_per_session: None,
        near: 16,
        max_waiters: None,
        defers: false,
        seed,
    }
}

/// Describes a call that holds its lock, for its record.
fn described(record: &[u8], waited: Duration) -> Arc<[u8]> {
    let object = record.strip_suffix(b"}").unwrap_or(record);
    let field = format!(",\"waited\":{}}}", waited.as_millis());
    [object, field.as_bytes()].concat().into()
}
