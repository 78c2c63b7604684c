//! Differences between versions of etcd that the comparison leaves out.
//!
//! The embedded etcd follows 3.7. The table lists, with its reason, each difference between it and some version of etcd. Operations
//! that would show the difference are left out on that version.

use crate::op::{End, Lease, Op, Rev, Txn, Watch};
use crate::pair::At;

/// Difference of some versions.
struct Difference {
    /// Returns true for the minor versions that have it.
    versions: fn(u64) -> bool,
    /// Returns true if an operation would show it.
    shows: fn(&Op, &At) -> bool,
}

const DIFFERENCES: &[Difference] = &[
    Difference {
        // A keys-only range returns leases. 3.7 serves it from its index, which does not contain leases (etcd#22209).
        versions: |minor| minor <= 6,
        shows: |op, _| match op {
            Op::Range(it) => it.keys_only,
            Op::Txn(txn) => any(txn, &|op| matches!(op, Op::Range(it) if it.keys_only)),
            _ => false,
        },
    },
    Difference {
        // Compaction removes a deletion at the very revision of the compaction: a watch from there does not receive it
        // (P16, etcd#18274). Later versions keep it.
        versions: |minor| minor <= 4,
        shows: |op, at| matches!(op, Op::Watch(Watch { start, .. }) if at.of(*start) == at.compacted),
    },
    Difference {
        // 3.4.23 responds to a progress request at once. Later versions do not respond on a stream without a watch. After
        // compaction has ended a watch, they do not respond until it is cancelled: they wait for it to catch up (etcd#15220).
        versions: |minor| minor <= 4,
        shows: |op, at| matches!(op, Op::Progress { stream } if at.stuck[*stream]),
    },
    Difference {
        // A watch from a negative revision is accepted. Later versions refuse it as compacted (etcd#20693).
        versions: |minor| minor <= 4,
        shows: |op, _| matches!(op, Op::Watch(Watch { start: Rev::Plain(..0), .. })),
    },
    Difference {
        // If several operations of a transaction are invalid, etcd reports puts before ranges. 3.6 and later report the first
        // in order.
        versions: |minor| minor <= 5,
        shows: |op, _| {
            let may_fail = |op: &Op| keeps(op) || has_lease(op);
            matches!(op, Op::Txn(txn) if any(txn, &may_fail) && any(txn, &has_revision))
        },
    },
    Difference {
        // If a put in a transaction lacks both its lease and its key, etcd reports the key. 3.7 reports the lease.
        versions: |minor| minor <= 6,
        shows: |op, _| {
            let may_fail_twice = |op: &Op| keeps(op) && has_lease(op);
            matches!(op, Op::Txn(txn) if any(txn, &may_fail_twice))
        },
    },
    Difference {
        // The check for duplicate keys misses keys in a range without end. Such a range may delete the key whose value or
        // lease a put of the same transaction keeps. A real etcd then terminates with "unexpected error during txn with
        // writes". The embedded etcd does the put.
        versions: |_| true,
        shows: |op, _| matches!(op, Op::Txn(txn) if deletes_without_end(txn) && any(txn, &keeps)),
    },
    Difference {
        // The same gap lets a transaction delete a key and create it again at one revision. A compaction at that revision loses
        // the key (etcd#22376). A read of it then terminates etcd with "range failed to find revision pair".
        versions: |minor| minor >= 5,
        shows: |op, at| matches!(op, Op::Compact { at: it, .. } if at.reborn.contains(&at.of(*it))),
    },
];

/// Returns true if `is` holds for an operation of the transaction, including nested ones.
fn any(txn: &Txn, is: &dyn Fn(&Op) -> bool) -> bool {
    txn.then.iter().chain(&txn.otherwise).any(|op| match op {
        Op::Txn(within) => any(within, is),
        op => is(op),
    })
}

fn deletes_without_end(txn: &Txn) -> bool {
    any(txn, &|op| match op {
        Op::Delete(it) => match it.end {
            End::Open => true,
            // No key sorts after these prefixes.
            End::Prefix => matches!(it.key, b"" | b"\xff"),
            End::Before(end) => end == b"\0",
            End::Key => false,
        },
        _ => false,
    })
}

/// Returns true if a transaction may delete a key and put it again.
pub(crate) fn may_put_again(txn: &Txn) -> bool {
    deletes_without_end(txn) && any(txn, &|op| matches!(op, Op::Put(_)))
}

fn keeps(op: &Op) -> bool {
    matches!(op, Op::Put(it) if it.ignore_value || it.ignore_lease)
}

fn has_lease(op: &Op) -> bool {
    matches!(op, Op::Put(it) if it.lease != Lease::None)
}

fn has_revision(op: &Op) -> bool {
    matches!(op, Op::Range(it) if it.revision != Rev::Plain(0))
}

/// Minor version of a real etcd.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Version(u64);

impl Version {
    pub(crate) fn new(version: &str) -> Self {
        let minor = version.split('.').nth(1).and_then(|it| it.parse().ok());
        Self(minor.unwrap_or_else(|| panic!("{version} is a version")))
    }

    /// Returns true if an operation would show a known difference of this version.
    pub(crate) fn leaves_out(&self, op: &Op, at: &At) -> bool {
        DIFFERENCES.iter().any(|it| (it.versions)(self.0) && (it.shows)(op, at))
    }
}
