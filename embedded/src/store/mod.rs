//! What etcd keeps, and what it answers: pure and deterministic.
//!
//! A [`Store`] is one etcd without its network, disk and clock. The same requests at the same times give the same answers,
//! lease ids included. Answers, revisions, gRPC codes and messages are those of etcd 3.5; in particular
//!
//! - a transaction is one revision, however many keys it changes, and one that changes nothing is none;
//! - a lease that ends takes its keys along in one revision, in the order of their names;
//! - the conditions of nested transactions are all decided on the state before the outer one.
//!
//! Where it differs: a lease ends at the very moment it runs out (etcd takes up to a second more), and of equal keys in a
//! sorted range the smaller name comes first (etcd promises no order).

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
#[cfg(test)]
mod tests;
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

/// The id of the cluster in every answer's header.
pub const CLUSTER_ID: u64 = 0x00e7_cd10_cced_0001;

/// The id of the only member, in every answer's header.
pub const MEMBER_ID: u64 = 0x00e7_cd10_cced_0002;

/// The release whose behaviour this is.
pub const VERSION: &str = "3.5.16";

/// The first lease id that is chosen here, unless said otherwise.
const FIRST_LEASE: i64 = 0x00e7_cd10_0000_0001;

/// Keys, their past, and leases.
#[derive(Debug, Clone)]
pub struct Store {
    keys: Keys,
    history: History,
    leases: Leases,
    revision: i64,
    /// -1: never, as etcd has it; its first compaction may be at revision 0.
    compacted: i64,
    term: u64,
}

impl Default for Store {
    fn default() -> Self {
        Self::new()
    }
}

impl Store {
    /// An empty store, at revision 1 as an etcd that has just been set up.
    #[must_use]
    pub fn new() -> Self {
        Self::with_first_lease(FIRST_LEASE)
    }

    /// An empty store that counts the leases whose ids it chooses from `first` on, which is to be positive: an etcd set up
    /// in the place of another does not give out the same ids again.
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

    /// The revision of the last change.
    #[must_use]
    pub fn revision(&self) -> i64 {
        self.revision
    }

    /// The revision before which nothing is remembered; 0 as long as nothing was compacted.
    #[must_use]
    pub fn compacted(&self) -> i64 {
        self.compacted.max(0)
    }

    /// The number of the election that the leader has won; [`Store::promote`] is one more.
    #[must_use]
    pub fn term(&self) -> u64 {
        self.term
    }

    /// What stands at the top of an answer.
    pub(crate) fn header(&self) -> PbResponseHeader {
        PbResponseHeader {
            cluster_id: CLUSTER_ID,
            member_id: MEMBER_ID,
            revision: self.revision,
            raft_term: self.term,
        }
    }
}

/// What stands at the top of an answer inside a transaction's answer: etcd fills in no more.
fn inner_header(revision: i64) -> PbResponseHeader {
    PbResponseHeader {
        revision,
        ..PbResponseHeader::default()
    }
}
