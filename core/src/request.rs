//! Requests and responses: the exchanges between core and etcd, as plain values.
//!
//! The engine's transport turns them into etcd-client calls. The simulator passes them to its own model of etcd.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use crate::ids::{Key, LeaseId, Revision};

/// Why something failed, as the client reported it. Shared by all calls that fail because of it.
pub type Cause = Arc<dyn Error + Send + Sync>;

/// One exchange with etcd. A write is sent once, to the first endpoint that the transport reaches. A stale read is tried at the
/// other endpoints (rule P20), and a renewal may be sent to several (rule P30).
#[derive(Debug, Clone)]
pub enum Request {
    /// Grant a lease of this TTL, in whole seconds.
    Grant(i64),
    /// Renew a lease, within this time for all endpoints together (rule P30).
    KeepAlive { lease: LeaseId, timeout: Duration },
    /// Revoke a lease and with it all its keys.
    Revoke(LeaseId),
    /// List the keys that are attached to a lease. The response may come from a member that lags, or that no longer leads.
    List(LeaseId),
    /// One flat transaction (rule P6).
    Txn(Txn),
}

/// A flat transaction: no nesting (rule P6), at most 128 operations in each branch.
#[derive(Debug, Clone, Default)]
pub struct Txn {
    /// The conditions. If all hold, `then` is carried out, else `or_else`.
    pub when: Vec<Compare>,
    pub then: Vec<Op>,
    pub or_else: Vec<Op>,
}

impl Txn {
    /// Returns true if it changes nothing. Sending it twice is then harmless.
    pub fn only_reads(&self) -> bool {
        let mut ops = self.then.iter().chain(&self.or_else);
        ops.all(|op| matches!(op, Op::Get { .. } | Op::Range { .. }))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Compare {
    /// The key's create revision.
    Created(Key, Revision),
    /// The key's mod revision.
    Modified(Key, Revision),
    Absent(Key),
    /// No key begins with this prefix.
    NoneUnder(Key),
}

/// One operation of a transaction. With `values`, a read returns values and leases too.
#[derive(Debug, Clone)]
pub enum Op {
    /// Put the key, attached to the lease.
    Put { key: Key, value: Arc<[u8]>, lease: LeaseId },
    /// Read one key.
    Get { key: Key, values: bool },
    /// Read the keys with this prefix that were created up to a revision, the oldest first.
    Range { prefix: Key, limit: Option<u32>, values: bool, up_to: Option<Revision> },
    /// Delete the key.
    Delete(Key),
}

/// The response to a [`Request`].
#[derive(Debug, Clone)]
pub enum Response {
    /// etcd granted a lease. Its TTL may be longer than requested.
    Granted { lease: LeaseId, ttl: Duration },
    /// etcd renewed a lease; with a TTL of zero, there is no such lease. `revision` is the header's, which lags if a follower
    /// responds (rule P35), or that of a read if the lease is gone. `stale` as in [`TxnAnswer`].
    KeptAlive { ttl: Duration, revision: Option<Revision>, stale: bool },
    /// The lease is gone, or did not exist.
    Revoked,
    /// The keys attached to a lease; `None`: they could not be listed.
    Listed(Option<Vec<Vec<u8>>>),
    /// A transaction was carried out.
    Txn(TxnAnswer),
}

impl Response {
    /// Returns the response to a transaction. Any other response is an error.
    pub fn txn(self) -> Answer {
        let Self::Txn(answer) = self else {
            let cause = format!("a response to a request that was not sent: {self:?}");
            return Err(Failure::Unknown(Arc::from(Box::from(cause))));
        };
        Ok(answer)
    }
}

/// The result of a [`Txn`].
pub type Answer = Result<TxnAnswer, Failure>;

/// The response to a [`Txn`].
#[derive(Debug, Clone)]
pub struct TxnAnswer {
    /// The revision of the outer header.
    pub revision: Revision,
    /// True if a read returned a revision lower than one known before: a member lags, or etcd lost its history (rules P20, P35).
    pub stale: bool,
    /// True if the conditions held.
    pub succeeded: bool,
    /// For each operation of the branch that ran, the key-values that it read; empty for a write.
    pub answers: Vec<Vec<Kv>>,
}

impl TxnAnswer {
    /// Returns the first key-value of each operation.
    pub fn firsts(self) -> impl Iterator<Item = Option<Kv>> {
        let answers = self.answers.into_iter();
        answers.map(|found| found.into_iter().next())
    }
}

/// A key-value as etcd stores it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kv {
    pub key: Vec<u8>,
    /// Empty if only keys were read.
    pub value: Vec<u8>,
    pub create_revision: Revision,
    pub mod_revision: Revision,
    /// The lease that the key is attached to, 0 if none. `None` if only keys were read: etcd 3.7 omits it there (etcd#22209).
    pub lease: Option<LeaseId>,
}

/// Why there is no response to a [`Request`] (rule P34).
#[derive(Debug, Clone)]
pub enum Failure {
    /// Nothing was applied, and a later try may work: no endpoint reached, no leader, too many requests.
    Unavailable(Cause),
    /// etcd refused it, and will not apply any of it later.
    Refused(Refusal, Cause),
    /// It may have been applied, or may still be applied (rule P10).
    Unknown(Cause),
}

impl Failure {
    pub fn cause(&self) -> Cause {
        let (Self::Unavailable(cause) | Self::Refused(_, cause) | Self::Unknown(cause)) = self;
        cause.clone()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// There is no such lease; nothing was applied.
    LeaseNotFound,
    /// The user may not touch the key; nothing was applied.
    PermissionDenied,
    /// etcd is at its quota. It may have applied the write nevertheless (rule P34).
    NoSpace,
    /// Anything else; nothing was applied.
    Other,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    Put(Kv),
    Delete { key: Vec<u8>, revision: Revision },
}
