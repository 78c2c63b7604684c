//! Differences between versions of etcd that the comparison leaves out.
//!
//! The embedded etcd follows 3.5. The table has each difference of another version with its reason. Operations that would
//! show it are left out on that version.

use crate::op::{End, Op, Txn, TxnOp, Watch};
use crate::pair::At;

/// One difference of some versions.
struct Difference {
    /// First part of the versions that have it.
    versions: &'static str,
    /// Returns true if an operation would show it.
    shows: fn(&Op, &At) -> bool,
}

const DIFFERENCES: &[Difference] = &[
    Difference {
        // Compaction removes a deletion at the very revision of the compaction: a watch from there does not receive it
        // (P16). 3.5 keeps it.
        versions: "3.4.",
        shows: |op, at| matches!(op, Op::Watch(Watch { start, .. }) if at.of(*start) == at.compacted),
    },
    Difference {
        // A stream without a watch does not answer requests for progress. Nor does one with a watch that compaction has
        // ended, until it is cancelled: 3.5 waits for it to catch up. 3.4 answers at once.
        versions: "3.4.",
        shows: |op, at| matches!(op, Op::Progress { stream } if at.stuck[*stream]),
    },
    Difference {
        // The check for duplicate keys misses keys in a range without end. Such a range may delete the key whose value or
        // lease a put of the same transaction keeps. A real etcd, 3.4 or 3.5, then ends itself with "unexpected error
        // during txn with writes". The embedded etcd does the put.
        versions: "3.",
        shows: |op, _| matches!(op, Op::Txn(txn) if deletes_without_end(txn) && ignores(txn)),
    },
    Difference {
        // The same gap lets a transaction delete a key and put it again at one revision. Version 3.5.16 forgets the key if it
        // compacts at that very revision. A read of it then ends etcd with "range failed to find revision pair".
        versions: "3.5.",
        shows: |op, at| matches!(op, Op::Compact { at: it, .. } if at.reborn.contains(&at.of(*it))),
    },
];

/// Returns true if `is` holds for an operation of the transaction, nested ones included.
fn any(txn: &Txn, is: &dyn Fn(&TxnOp) -> bool) -> bool {
    txn.then.iter().chain(&txn.otherwise).any(|op| match op {
        TxnOp::Txn(within) => any(within, is),
        op => is(op),
    })
}

fn deletes_without_end(txn: &Txn) -> bool {
    any(txn, &|op| match op {
        TxnOp::Delete(it) => match it.end {
            End::Open => true,
            // No key comes after these prefixes.
            End::Prefix => matches!(it.key, b"" | b"\xff"),
            End::Before(end) => end == b"\0",
            End::Key => false,
        },
        _ => false,
    })
}

/// Returns true if a transaction may delete a key and put it again.
pub(crate) fn may_put_again(txn: &Txn) -> bool {
    deletes_without_end(txn) && any(txn, &|op| matches!(op, TxnOp::Put(_)))
}

fn ignores(txn: &Txn) -> bool {
    any(
        txn,
        &|op| matches!(op, TxnOp::Put(it) if it.ignore_value || it.ignore_lease),
    )
}

/// Version of a real etcd.
#[derive(Clone, Debug)]
pub(crate) struct Version(String);

impl Version {
    pub(crate) fn new(version: &str) -> Self {
        Self(version.to_owned())
    }

    /// Returns true if an operation would show a known difference of this version.
    pub(crate) fn leaves_out(&self, op: &Op, at: &At) -> bool {
        DIFFERENCES
            .iter()
            .any(|it| self.0.starts_with(it.versions) && (it.shows)(op, at))
    }
}
