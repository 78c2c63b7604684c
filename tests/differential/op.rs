//! Operation on an etcd, as data that is generated, played on both sides, and shrunk.

use etcd_client::{CompareOp, SortOrder, SortTarget};

/// Key, one of a few, so that operations often concern the same key.
pub(crate) type Key = &'static [u8];

/// All keys: some below others, some with the smallest and the greatest byte.
///
/// There are at most twelve. Go's sort is not stable: with thirteen or more, etcd may return equal ones in another order.
pub(crate) const KEYS: &[Key] =
    &[b"\0", b"a", b"a/1", b"a/2", b"a/2/x", b"ab", b"b", b"b\xff", b"\xff"];

/// Revision that means the same on both sides, although their numbers differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rev {
    /// The same number on both sides: 0 is "none", and negative numbers are invalid.
    Plain(i64),
    /// Counted from the newest revision; positive numbers are in the future.
    Now(i64),
    /// Counted from the start of the case, at which both sides are compacted.
    Start(i64),
}

impl Default for Rev {
    fn default() -> Self {
        Self::Plain(0)
    }
}

/// Lease that means the same on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lease {
    None,
    /// Lease whose id the client chooses.
    Given(i64),
    /// The n-th lease whose id etcd chose; if there are fewer, one that does not exist.
    Auto(usize),
}

/// End of a range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum End {
    /// The range is only the key.
    #[default]
    Key,
    Prefix,
    /// The key and everything after it.
    Open,
    Before(Key),
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Range {
    pub(crate) key: Key,
    pub(crate) end: End,
    pub(crate) limit: i64,
    pub(crate) revision: Rev,
    pub(crate) sort: Option<(SortTarget, SortOrder)>,
    pub(crate) serializable: bool,
    pub(crate) keys_only: bool,
    pub(crate) count_only: bool,
    pub(crate) min_mod: Rev,
    pub(crate) max_mod: Rev,
    pub(crate) min_create: Rev,
    pub(crate) max_create: Rev,
}

#[derive(Clone, Debug)]
pub(crate) struct Put {
    pub(crate) key: Key,
    pub(crate) value: &'static [u8],
    pub(crate) lease: Lease,
    pub(crate) prev_kv: bool,
    pub(crate) ignore_value: bool,
    pub(crate) ignore_lease: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Delete {
    pub(crate) key: Key,
    pub(crate) end: End,
    pub(crate) prev_kv: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum Target {
    Version(i64),
    Create(Rev),
    Mod(Rev),
    Value(&'static [u8]),
    Lease(Lease),
}

#[derive(Clone, Debug)]
pub(crate) struct Compare {
    pub(crate) key: Key,
    pub(crate) end: End,
    pub(crate) is: CompareOp,
    pub(crate) target: Target,
}

#[derive(Clone, Debug)]
pub(crate) struct Txn {
    pub(crate) compares: Vec<Compare>,
    /// Ranges, puts, deletes and transactions, as in the other branch.
    pub(crate) then: Vec<Op>,
    pub(crate) otherwise: Vec<Op>,
}

/// List of a transaction that the operation fills.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Many {
    Compares,
    Then,
    Otherwise,
    /// Operations of a nested transaction.
    Nested,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Watch {
    /// Number of the stream in the case.
    pub(crate) stream: usize,
    /// Id of the watch; with 0, etcd chooses one.
    pub(crate) id: i64,
    pub(crate) key: Key,
    pub(crate) end: End,
    pub(crate) start: Rev,
    pub(crate) no_put: bool,
    pub(crate) no_delete: bool,
    pub(crate) prev_kv: bool,
    pub(crate) fragment: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum Op {
    Range(Range),
    Put(Put),
    /// Put of a value with this many bytes.
    Huge(usize),
    Delete(Delete),
    Txn(Txn),
    /// Transaction with this many operations or compares in one list.
    Many(Many, usize),
    Compact {
        at: Rev,
        physical: bool,
    },
    Grant {
        lease: Lease,
        ttl: i64,
    },
    Revoke(Lease),
    TimeToLive {
        lease: Lease,
        keys: bool,
    },
    KeepAlive(Lease),
    /// Lease that is renewed, revoked, and renewed again on one stream.
    KeepAliveRevoked(Lease),
    Leases,
    Watch(Watch),
    Cancel {
        stream: usize,
        id: i64,
    },
    Progress {
        stream: usize,
    },
}

impl Put {
    pub(crate) fn new(key: Key, value: &'static [u8], lease: Lease) -> Self {
        Self { key, value, lease, prev_kv: false, ignore_value: false, ignore_lease: false }
    }
}

/// Shows bytes as readable text.
pub(crate) fn text(bytes: &[u8]) -> String {
    format!("\"{}\"", bytes.escape_ascii())
}
