//! Store of an embedded etcd: keys, leases and revisions as a pure, deterministic value.
//!
//! A [`Store`] is one etcd without its network, disk and clock. The same requests at the same times give the same responses,
//! including lease ids. Responses, revisions, gRPC codes and messages are those of etcd 3.7; in particular
//!
//! - a transaction is one revision, however many keys it changes; one that changes nothing makes no revision;
//! - a lease that ends deletes its keys in one revision, in the order of their names;
//! - the conditions of nested transactions are all decided on the state before the outer one.
//!
//! It differs in two ways. A lease ends at the moment it expires; etcd takes up to a second longer. If keys are equal in a
//! sorted range, the smaller name comes first; etcd does not promise an order.

mod check;
mod compact;
mod compare;
mod history;
mod keys;
mod kv;
mod lease;
mod leases;
mod range;
mod refusal;
mod span;
mod txn;
mod write;

use etcd_client::proto::PbResponseHeader;

pub use self::history::Compacted;
pub use self::refusal::Refusal;

pub(crate) use self::keys::Change;
pub(crate) use self::span::Span;

use self::history::History;
use self::keys::Keys;
use self::leases::Leases;

/// Id of the cluster, in every response's header.
pub const CLUSTER_ID: u64 = 0x00e7_cd10_cced_0001;

/// Id of the only member, in every response's header.
pub const MEMBER_ID: u64 = 0x00e7_cd10_cced_0002;

/// Release of etcd that this store behaves like.
pub const VERSION: &str = "3.7.3";

/// Default of the first lease id that a store chooses.
const FIRST_LEASE: i64 = 0x00e7_cd10_0000_0001;

/// Keys with their earlier versions, and leases.
#[derive(Debug, Clone)]
pub struct Store {
    keys: Keys,
    history: History,
    leases: Leases,
    revision: i64,
    /// -1 before the first compaction, as in etcd: that one may be at revision 0.
    compacted: i64,
    term: u64,
}

impl Default for Store {
    fn default() -> Self {
        Self::new()
    }
}

impl Store {
    /// Makes an empty store, at revision 1 like a new etcd.
    #[must_use]
    pub fn new() -> Self {
        Self::with_first_lease(FIRST_LEASE)
    }

    /// Makes an empty store that chooses lease ids starting with `first`, which must be positive.
    ///
    /// With a different `first`, an etcd that replaces another does not grant the same ids again.
    #[must_use]
    pub fn with_first_lease(first: i64) -> Self {
        Self {
            keys: Keys::default(),
            history: History::default(),
            leases: Leases::starting_at(first),
            revision: 1,
            compacted: -1,
            term: 2,
        }
    }

    /// Returns the revision of the last change.
    #[must_use]
    pub fn revision(&self) -> i64 {
        self.revision
    }

    /// Returns the revision of the last compaction, or 0 before the first one. Earlier revisions are forgotten.
    #[must_use]
    pub fn compacted(&self) -> i64 {
        self.compacted.max(0)
    }

    /// Returns the leader's term; [`Store::promote`] adds one.
    #[must_use]
    pub fn term(&self) -> u64 {
        self.term
    }

    /// Makes the header of a response.
    pub(crate) fn header(&self) -> PbResponseHeader {
        PbResponseHeader {
            cluster_id: CLUSTER_ID,
            member_id: MEMBER_ID,
            revision: self.revision,
            raft_term: self.term,
        }
    }
}

/// Makes the header of a response inside a transaction's response: etcd sets only the revision.
fn inner_header(revision: i64) -> PbResponseHeader {
    PbResponseHeader { revision, ..PbResponseHeader::default() }
}
