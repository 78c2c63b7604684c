//! Requests and responses: what the core asks of etcd and what etcd answers, as plain values.
//!
//! The engine's transport turns them into etcd-client calls; the simulator feeds them to a store of its own.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use crate::ids::{Key, LeaseId, Revision};

/// Why something failed, as the client said it; shared by all calls that it fails.
pub type Cause = Arc<dyn Error + Send + Sync>;

/// One exchange with etcd. The transport tries it once, on one endpoint after the other while none was reached.
#[derive(Debug, Clone)]
pub enum Request {
    /// Grant a lease of this TTL, in whole seconds.
    Grant(i64),
    /// Renew a lease, within this time for all endpoints together (rule P30).
    KeepAlive { lease: LeaseId, timeout: Duration },
    /// Revoke a lease and with it all its keys.
    Revoke(LeaseId),
    /// List the keys that hang on a lease. A member may answer that is behind, or leads no more.
    List(LeaseId),
    /// One flat transaction (rule P6).
    Txn(Txn),
}

/// A flat transaction: no nesting (rule P6), at most 128 operations a branch.
#[derive(Debug, Clone, Default)]
pub struct Txn {
    /// Its conditions: `then` is carried out if all of them hold.
    pub when: Vec<Compare>,
    pub then: Vec<Op>,
    pub or_else: Vec<Op>,
}

impl Txn {
    /// Whether it changes nothing, so that sending it twice does no harm.
    pub fn only_reads(&self) -> bool {
        let mut ops = self.then.iter().chain(&self.or_else);
        ops.all(|op| matches!(op, Op::Get { .. } | Op::Range { .. }))
    }
}

/// A condition of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Compare {
    /// The key's create revision.
    Created(Key, Revision),
    /// The key's mod revision.
    Modified(Key, Revision),
    Absent(Key),
    /// No key begins with this.
    NoneUnder(Key),
}

/// One operation of a transaction. With `values`, a read shows the keys' values and leases too.
#[derive(Debug, Clone)]
pub enum Op {
    /// Put the key, attached to the lease.
    Put { key: Key, value: Arc<[u8]>, lease: LeaseId },
    /// Read one key.
    Get { key: Key, values: bool },
    /// Read the keys that begin with the prefix and were created up to a revision, the oldest first: the owner.
    Range { prefix: Key, limit: Option<u32>, values: bool, up_to: Option<Revision> },
    /// Delete the key.
    Delete(Key),
}

/// etcd's answer to a [`Request`].
#[derive(Debug, Clone)]
pub enum Response {
    /// etcd granted a lease. Its TTL may be longer than asked.
    Granted { lease: LeaseId, ttl: Duration },
    /// etcd renewed a lease. A TTL of zero: there is no such lease. `revision`: the header's, which lags where a follower answers (rule
    /// P35), or a read's if the lease is gone; `None` if there was none. It may be `stale`, as that of a transaction.
    KeptAlive { ttl: Duration, revision: Option<Revision>, stale: bool },
    /// The lease is gone, or was not there.
    Revoked,
    /// The keys that hang on a lease; `None`: they could not be listed.
    Listed(Option<Vec<Vec<u8>>>),
    /// A transaction was carried out.
    Txn(TxnAnswer),
}

impl Response {
    /// The transaction's answer, if it is one.
    pub fn txn(self) -> Result<TxnAnswer, Failure> {
        let Self::Txn(answer) = self else {
            let cause = format!("an answer that was not asked for: {self:?}");
            return Err(Failure::Unknown(Arc::from(Box::from(cause))));
        };
        Ok(answer)
    }
}

/// The answer to a [`Txn`].
#[derive(Debug, Clone)]
pub struct TxnAnswer {
    /// The outer header's.
    pub revision: Revision,
    /// A read of a lower revision than was known: a member lags, or etcd has lost its history. [`Reach`](crate::Reach) marks it.
    pub stale: bool,
    /// The conditions held.
    pub succeeded: bool,
    /// For each operation of the branch taken the key-values that a read found; none of a write.
    pub answers: Vec<Vec<Kv>>,
}

impl TxnAnswer {
    /// The first key-value of each answer.
    pub fn firsts(self) -> impl Iterator<Item = Option<Kv>> {
        let answers = self.answers.into_iter();
        answers.map(|found| found.into_iter().next())
    }
}

/// A key-value as etcd stores it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kv {
    pub key: Vec<u8>,
    /// Empty where only keys were read.
    pub value: Vec<u8>,
    pub create_revision: Revision,
    pub mod_revision: Revision,
    /// The lease it is attached to; 0: none. `None` where only keys were read, because etcd 3.7 omits it there (etcd#22209).
    pub lease: Option<LeaseId>,
}

/// Why a [`Request`] has no answer (rule P34).
#[derive(Debug, Clone)]
pub enum Failure {
    /// Nothing was applied; later it may work: no endpoint reached, no leader, too many requests.
    Unavailable(Cause),
    /// etcd refused it, and nothing of it comes later.
    Refused(Refusal, Cause),
    /// It may have been applied, or may be applied later (rule P10).
    Unknown(Cause),
}

impl Failure {
    pub fn cause(&self) -> Cause {
        let (Self::Unavailable(cause) | Self::Refused(_, cause) | Self::Unknown(cause)) = self;
        cause.clone()
    }
}

/// What kind of refusal it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// There is no such lease; nothing was applied.
    LeaseNotFound,
    /// The user may not touch the key; nothing was applied.
    PermissionDenied,
    /// etcd is at its quota; it may have applied the write all the same (rule P34).
    NoSpace,
    /// Anything else; nothing was applied.
    Other,
}

/// One change of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    Put(Kv),
    Delete { key: Vec<u8>, revision: Revision },
}
