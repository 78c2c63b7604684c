//! An etcd of just what the core asks of it: pure, deterministic, time passed in.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Moment;
use crate::core::request::{
    Compare, Event, Failure, Key, Kv, LeaseId, Op, OpAnswer, Order, Refusal, Request, Response,
    Revision, Txn, TxnAnswer,
};

/// A key in one incarnation.
pub(crate) type Incarnation = (Vec<u8>, Revision);

type Keys = BTreeMap<Vec<u8>, Kv>;

/// How many states a stale read may choose from.
const PAST: usize = 6;

#[derive(Debug, Default)]
pub(crate) struct Store {
    pub(crate) keys: Keys,
    pub(crate) revision: Revision,
    leases: BTreeMap<LeaseId, (Duration, Moment)>,
    granted: LeaseId,
    history: Vec<Event>,
    compacted: Revision,
    past: VecDeque<(Revision, Keys)>,
    /// Incarnations that went, for the checker to take.
    pub(crate) removed: Vec<Incarnation>,
    /// Keys with this in them may not be written.
    pub(crate) forbidden: Option<&'static str>,
}

impl Store {
    pub(crate) fn new() -> Self {
        Self {
            revision: 1,
            granted: 0xa0,
            ..Self::default()
        }
    }

    pub(crate) fn apply(&mut self, now: Moment, request: &Request) -> Result<Response, Failure> {
        self.expire(now);
        match request {
            Request::Grant { ttl_secs } => {
                let ttl = Duration::from_secs(ttl_secs.unsigned_abs());
                Ok(Response::Granted {
                    lease: self.grant(now, ttl),
                    ttl,
                })
            }
            Request::KeepAlive { lease, .. } => Ok(Response::KeptAlive {
                ttl: self
                    .leases
                    .get_mut(lease)
                    .map_or(Duration::ZERO, |(ttl, until)| {
                        *until = now + *ttl;
                        *ttl
                    }),
            }),
            Request::Revoke { lease } => {
                self.revoke(*lease);
                Ok(Response::Revoked)
            }
            Request::Txn(txn) => self.transact(txn).map(Response::Txn),
        }
    }

    pub(crate) fn grant(&mut self, now: Moment, ttl: Duration) -> LeaseId {
        self.granted += 1;
        self.leases.insert(self.granted, (ttl, now + ttl));
        self.granted
    }

    pub(crate) fn leases(&self) -> Vec<LeaseId> {
        self.leases.keys().copied().collect()
    }

    pub(crate) fn next_expiry(&self) -> Option<Moment> {
        self.leases.values().map(|(_, until)| *until).min()
    }

    pub(crate) fn expire(&mut self, now: Moment) {
        while let Some(lease) = self
            .leases
            .iter()
            .find(|(_, (_, until))| *until <= now)
            .map(|(lease, _)| *lease)
        {
            self.revoke(lease);
        }
    }

    pub(crate) fn revoke(&mut self, lease: LeaseId) {
        self.leases.remove(&lease);
        self.write(|store, revision| {
            let keys: Vec<_> = store
                .keys
                .values()
                .filter(|kv| kv.lease == lease)
                .map(|kv| kv.key.clone())
                .collect();
            keys.into_iter()
                .filter(|key| store.remove(key, revision))
                .count()
                > 0
        });
    }

    pub(crate) fn delete(&mut self, key: &[u8]) {
        self.write(|store, revision| store.remove(key, revision));
    }

    pub(crate) fn put(&mut self, key: &[u8], lease: LeaseId) {
        self.write(|store, revision| {
            store.insert(key, &[], lease, revision);
            true
        });
    }

    /// Forgets everything and starts again at revision 1, as a fresh cluster under the old address would.
    pub(crate) fn wipe(&mut self) {
        *self = Self {
            granted: self.granted,
            forbidden: self.forbidden,
            ..Self::new()
        };
    }

    pub(crate) fn compact(&mut self) {
        self.compacted = self.revision;
    }

    /// What happened below a prefix from this revision on; `None`: that is compacted.
    pub(crate) fn events(&self, prefix: &str, from: Revision) -> Option<Vec<Event>> {
        let below = |event: &&Event| key_of(event).starts_with(prefix.as_bytes());
        let first = self
            .history
            .partition_point(|event| revision_of(event) < from);
        (from > self.compacted).then(|| {
            self.history[first..]
                .iter()
                .filter(below)
                .cloned()
                .collect()
        })
    }

    /// What a member that lags `back` writes behind answers to a transaction that only reads.
    pub(crate) fn stale(&self, txn: &Txn, back: usize) -> TxnAnswer {
        let (revision, keys) = self
            .past
            .iter()
            .rev()
            .nth(back)
            .map_or((self.revision, &self.keys), |(at, keys)| (*at, keys));
        TxnAnswer {
            revision,
            succeeded: true,
            answers: txn.then.iter().map(|op| read(keys, op)).collect(),
        }
    }

    fn transact(&mut self, txn: &Txn) -> Result<TxnAnswer, Failure> {
        let succeeded = txn.when.iter().all(|compare| self.holds(compare));
        let ops = if succeeded { &txn.then } else { &txn.or_else };
        for op in ops {
            match op {
                Op::Put { key, .. } if self.forbidden.is_some_and(|word| key.contains(word)) => {
                    return Err(refused(Refusal::PermissionDenied));
                }
                Op::Put { lease, .. } if !self.leases.contains_key(lease) => {
                    return Err(refused(Refusal::LeaseNotFound));
                }
                _ => {}
            }
        }
        let mut answers = Vec::new();
        self.write(|store, revision| {
            let mut wrote = false;
            for op in ops {
                answers.push(match op {
                    Op::Put { key, value, lease } => {
                        wrote = true;
                        OpAnswer::Put {
                            previous: store.insert(key.as_bytes(), value, *lease, revision),
                        }
                    }
                    Op::Delete { key } => {
                        wrote |= store.remove(key.as_bytes(), revision);
                        OpAnswer::Deleted
                    }
                    read_only => read(&store.keys, read_only),
                });
            }
            wrote
        });
        Ok(TxnAnswer {
            revision: self.revision,
            succeeded,
            answers,
        })
    }

    fn holds(&self, compare: &Compare) -> bool {
        let of = |key: &Key| self.keys.get(key.as_bytes());
        match compare {
            Compare::CreateRevision { key, revision } => {
                of(key).map_or(0, |kv| kv.create_revision) == *revision
            }
            Compare::ModRevision { key, revision } => {
                of(key).map_or(0, |kv| kv.mod_revision) == *revision
            }
            Compare::NoneUnder { prefix } => !self
                .keys
                .keys()
                .any(|key| key.starts_with(prefix.as_bytes())),
        }
    }

    /// Runs a change at the next revision, which is used up only if it wrote.
    fn write(&mut self, change: impl FnOnce(&mut Self, Revision) -> bool) {
        let before = self.keys.clone();
        if change(self, self.revision + 1) {
            self.past.push_back((self.revision, before));
            if self.past.len() > PAST {
                self.past.pop_front();
            }
            self.revision += 1;
        }
    }

    fn insert(
        &mut self,
        key: &[u8],
        value: &[u8],
        lease: LeaseId,
        revision: Revision,
    ) -> Option<Kv> {
        let create_revision = self.keys.get(key).map_or(revision, |kv| kv.create_revision);
        let kv = Kv {
            key: key.into(),
            value: value.into(),
            create_revision,
            mod_revision: revision,
            lease,
        };
        self.history.push(Event::Put(kv.clone()));
        self.keys.insert(key.into(), kv)
    }

    fn remove(&mut self, key: &[u8], revision: Revision) -> bool {
        let Some(kv) = self.keys.remove(key) else {
            return false;
        };
        self.removed.push((kv.key.clone(), kv.create_revision));
        self.history.push(Event::Delete {
            key: kv.key,
            revision,
        });
        true
    }
}

fn read(keys: &Keys, op: &Op) -> OpAnswer {
    let bare = |kv: &Kv| Kv {
        value: Vec::new(),
        ..kv.clone()
    };
    let kvs = match op {
        Op::Range {
            prefix,
            limit,
            values,
            order,
            older_than,
        } => {
            let older = |kv: &&Kv| older_than.is_none_or(|than| kv.create_revision < than);
            let mut kvs: Vec<&Kv> = keys
                .values()
                .filter(|kv| kv.key.starts_with(prefix.as_bytes()))
                .filter(older)
                .collect();
            kvs.sort_by_key(|kv| {
                if *order == Order::OldestFirst {
                    kv.create_revision
                } else {
                    -kv.create_revision
                }
            });
            kvs.truncate(if *limit == 0 {
                usize::MAX
            } else {
                usize::try_from(*limit).expect("a small limit")
            });
            kvs.into_iter()
                .map(|kv| if *values { kv.clone() } else { bare(kv) })
                .collect()
        }
        Op::Get { key } => keys.get(key.as_bytes()).map(bare).into_iter().collect(),
        Op::Put { .. } | Op::Delete { .. } => unreachable!("not a read"),
    };
    OpAnswer::Found { kvs }
}

pub(crate) fn key_of(event: &Event) -> &[u8] {
    match event {
        Event::Put(kv) => &kv.key,
        Event::Delete { key, .. } => key,
    }
}

pub(crate) fn revision_of(event: &Event) -> Revision {
    match event {
        Event::Put(kv) => kv.mod_revision,
        Event::Delete { revision, .. } => *revision,
    }
}

pub(crate) fn refused(kind: Refusal) -> Failure {
    Failure::Refused {
        kind,
        cause: Arc::from(Box::from("refused")),
    }
}

pub(crate) fn unknown() -> Failure {
    Failure::Unknown(Arc::from(Box::from("timed out")))
}

pub(crate) fn unavailable() -> Failure {
    Failure::Unavailable(Arc::from(Box::from("not reached")))
}
