//! What the core asks of etcd and what etcd answers, as plain values.
//!
//! The engine's `wire` turns them into etcd-client calls; the simulator feeds them to a store of its own.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

/// An etcd lease id.
pub(crate) type LeaseId = i64;

/// An etcd store revision.
pub(crate) type Revision = i64;

/// A key of ours: always ASCII, because names are escaped.
pub(crate) type Key = Arc<str>;

/// Why something failed, as the client told it; shared because one answer may fail many calls.
pub(crate) type Cause = Arc<dyn Error + Send + Sync>;

/// One exchange with etcd. The wire tries it once, on one endpoint after the other while none was reached.
#[derive(Debug, Clone)]
pub(crate) enum Request {
    /// Grant a lease of this TTL, in whole seconds.
    Grant { ttl_secs: i64 },
    /// Renew a lease.
    KeepAlive { lease: LeaseId, timeout: Duration },
    /// Revoke a lease and with it all its keys.
    Revoke { lease: LeaseId },
    /// One flat transaction (rule P6).
    Txn(Txn),
}

/// A flat transaction: no nesting (rule P6), at most 128 operations a branch.
#[derive(Debug, Clone, Default)]
pub(crate) struct Txn {
    pub(crate) when: Vec<Compare>,
    pub(crate) then: Vec<Op>,
    pub(crate) or_else: Vec<Op>,
}

/// A condition of a transaction; a revision of 0 stands for "no such key".
#[derive(Debug, Clone)]
pub(crate) enum Compare {
    /// The key's create revision equals this.
    CreateRevision { key: Key, revision: Revision },
    /// The key's mod revision equals this.
    ModRevision { key: Key, revision: Revision },
    /// No key begins with this prefix.
    NoneUnder { prefix: Key },
}

/// One operation of a transaction.
#[derive(Debug, Clone)]
pub(crate) enum Op {
    /// Put the key, attached to the lease; answers the previous key-value.
    Put {
        key: Key,
        value: Arc<[u8]>,
        lease: LeaseId,
    },
    /// Read one key, without its value.
    Get { key: Key },
    /// The keys below the prefix, oldest create revision first (or newest first), values included if asked.
    Range {
        prefix: Key,
        limit: i64,
        values: bool,
        order: Order,
        older_than: Option<Revision>,
    },
    /// Delete the key.
    Delete { key: Key },
}

/// The order of a range, by create revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// Lowest create revision first: the owner.
    OldestFirst,
    /// Highest create revision first: with `older_than`, the predecessor.
    NewestFirst,
}

/// etcd's answer to a [`Request`].
#[derive(Debug, Clone)]
pub(crate) enum Response {
    /// The lease and the TTL etcd granted, which may be longer than asked.
    Granted { lease: LeaseId, ttl: Duration },
    /// The TTL the lease has now; zero: there is no such lease.
    KeptAlive { ttl: Duration },
    /// The lease is gone, or was not there.
    Revoked,
    /// A transaction was carried out.
    Txn(TxnAnswer),
}

/// The answer to a [`Txn`].
#[derive(Debug, Clone)]
pub(crate) struct TxnAnswer {
    /// The outer header's revision.
    pub(crate) revision: Revision,
    /// Whether the conditions held.
    pub(crate) succeeded: bool,
    /// One answer for each operation of the branch taken.
    pub(crate) answers: Vec<OpAnswer>,
}

/// The answer to an [`Op`].
#[derive(Debug, Clone)]
pub(crate) enum OpAnswer {
    /// What the key held before, if it existed.
    Put { previous: Option<Kv> },
    /// What a get or range found.
    Found { kvs: Vec<Kv> },
    /// The key is gone.
    Deleted,
}

/// A key-value as etcd stores it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kv {
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
    pub(crate) create_revision: Revision,
    pub(crate) mod_revision: Revision,
    pub(crate) lease: LeaseId,
}

/// Why a [`Request`] has no answer (rule P34).
#[derive(Debug, Clone)]
pub(crate) enum Failure {
    /// Nothing was applied; later it may work: no endpoint reached, no leader, too many requests.
    Unavailable(Cause),
    /// Nothing was applied; the same request will fail again: permission, no space, too large, bad credentials.
    Refused { kind: Refusal, cause: Cause },
    /// It may have been applied, or may be applied later (rule P10).
    Unknown(Cause),
}

impl Failure {
    pub(crate) fn cause(&self) -> Cause {
        match self {
            Self::Unavailable(cause) | Self::Refused { cause, .. } | Self::Unknown(cause) => {
                cause.clone()
            }
        }
    }
}

/// What kind of definite refusal it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// `requested lease not found`.
    LeaseNotFound,
    /// The user may not touch the key.
    PermissionDenied,
    /// Anything else.
    Other,
}

/// What a watch tells.
#[derive(Debug, Clone)]
pub(crate) enum WatchNews {
    /// A key below the watched prefix changed.
    Event(Event),
    /// The revision the watch was to start from is compacted: read again, watch again (rule P16).
    Compacted,
}

/// One change of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    /// The key was put.
    Put(Kv),
    /// The key was deleted at this revision.
    Delete { key: Vec<u8>, revision: Revision },
}
