//! The etcd of the simulator: the embedded store, and what an operator and a member that lags make of it.

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

/// A key in one incarnation.
pub type Incarnation = (Vec<u8>, etcd_locked_core::Revision);

/// The id before the first lease.
const LEASES: LeaseId = 0xa0;

/// Whether etcd takes writes, or has reached its quota (rule P34).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Space {
    /// There is room.
    Enough,
    /// etcd refuses writes; deletes, reads and renewals go on. The next so many writes it applies, though it answers that there is no space.
    Crossing(u32),
}

/// What a backup of etcd holds.
#[derive(Debug, Clone)]
pub struct Snapshot {
    store: Store,
    keys: BTreeMap<Vec<u8>, Kv>,
}

/// An etcd: the embedded store, with faults that a test can switch on.
#[derive(Debug)]
pub struct Etcd {
    store: Store,
    /// The id of the last lease granted; kept over a wipe and a restore.
    last_lease: LeaseId,
    /// All keys, for the checker, as of the revision that was seen last.
    keys: BTreeMap<Vec<u8>, Kv>,
    seen: Revision,
    /// When each lease was last renewed.
    pub renewed: BTreeMap<LeaseId, Moment>,
    /// Incarnations that went, for the checker to take.
    pub removed: Vec<Incarnation>,
    /// All keys that went, each with the revision at which it did.
    pub gone: Vec<(Kv, Revision)>,
    /// Keys with this in them may be neither put nor deleted.
    pub forbidden: Option<&'static str>,
    /// A second such word, which the nemesis sets.
    pub denied: Option<&'static str>,
    /// Whether it takes writes.
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

    /// Carries a request out, and answers it.
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

    /// A write at the quota: whether etcd applies it, though it refuses it. `None`: etcd carries it out and says so.
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

    /// etcd's access control checks both branches.
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
            // A restored store would choose ids that were given out after the snapshot; etcd would not.
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

    /// The store's revision.
    pub fn revision(&self) -> Revision {
        self.store.revision()
    }

    /// The key-value of a key.
    pub fn kv(&self, key: &[u8]) -> Option<&Kv> {
        self.keys.get(key)
    }

    /// Returns true if this incarnation is there.
    pub fn has(&self, (key, created): &Incarnation) -> bool {
        self.kv(key).is_some_and(|kv| kv.create_revision == *created)
    }

    /// All key-values, in the order of their keys.
    pub fn kvs(&self) -> impl Iterator<Item = &Kv> + Clone {
        self.keys.values()
    }

    /// The contenders for a name: its direct children, with no further `/` (rule P2).
    pub fn below<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Kv> + Clone {
        self.kvs().filter(|kv| contends(name, &kv.key))
    }

    /// All leases.
    pub fn leases(&self) -> Vec<LeaseId> {
        let leases = self.store.lease_leases().leases;
        leases.into_iter().map(|lease| lease.id).collect()
    }

    /// When the next lease runs out.
    pub fn next_expiry(&self) -> Option<Moment> {
        self.store.next_expiry().map(Moment::after_boot)
    }

    /// Ends the leases that have run out.
    pub fn expire(&mut self, now: Moment) {
        self.store.expire(now.since_boot());
        self.track();
    }

    /// A new leader: all leases have their whole time again (rule P31).
    pub fn promote(&mut self, now: Moment) {
        self.store.promote(now.since_boot());
    }

    /// Revokes a lease.
    pub fn revoke(&mut self, lease: LeaseId) {
        // It may be gone, and that is as good.
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

    /// Forgets everything and starts again at revision 1, as a fresh cluster under the old address would.
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

    /// Goes back to a snapshot, revision and all. Leases have their whole time again.
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
        // Nothing may have happened since the last time.
        let _ = self.store.compact(&request);
    }

    /// What happened below a prefix from this revision on; `None`: that is compacted.
    pub fn events(&self, prefix: &str, from: Revision) -> Option<Vec<Event>> {
        let end = convert::end_of(prefix.as_bytes());
        let events = self.store.events(prefix.as_bytes(), &end, from, false).ok()?;
        Some(events.into_iter().flatten().map(convert::event).collect())
    }

    /// What a member that lags `back` revisions behind answers to a transaction that only reads.
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

/// Whether `key` is a direct child of a name.
pub(crate) fn contends(name: &str, key: &[u8]) -> bool {
    let child = key.strip_prefix(name.as_bytes()).and_then(|rest| rest.strip_prefix(b"/"));
    child.is_some_and(|child| !child.contains(&b'/'))
}

/// The key of a lease on a seat of a name (rules P1, P37).
pub fn key_of(name: &str, lease: LeaseId, seat: Seat) -> String {
    format!("{name}/{lease:x}{seat}")
}

/// The revision at which something happened.
pub fn revision_of(event: &Event) -> Revision {
    match event {
        Event::Put(kv) => kv.mod_revision.get(),
        Event::Delete { revision, .. } => revision.get(),
    }
}

/// A refusal of this kind.
pub fn refused(kind: Refusal) -> Failure {
    Failure::Refused(kind, Arc::from(Box::from("refused")))
}

/// A request had no answer in time.
pub fn unknown() -> Failure {
    Failure::Unknown(Arc::from(Box::from("timed out")))
}

/// No endpoint was reached.
pub fn unavailable() -> Failure {
    Failure::Unavailable(Arc::from(Box::from("not reached")))
}

/// What a core around it is made with, unless a test wants something else.
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

/// What a record says of a call that holds its lock.
fn described(record: &[u8], waited: Duration) -> Arc<[u8]> {
    let object = record.strip_suffix(b"}").unwrap_or(record);
    let field = format!(",\"waited\":{}}}", waited.as_millis());
    [object, field.as_bytes()].concat().into()
}
