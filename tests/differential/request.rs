//! Requests of etcd-client for an operation, with the revisions and leases of one side.

use etcd_client::{
    Compare as EtcdCompare, DeleteOptions, GetOptions, PutOptions, Txn as EtcdTxn, TxnOp,
    WatchFilterType, WatchOptions,
};

use crate::op::{Compare, Delete, End, Lease, Many, Op, Put, Range, Rev, Target, Txn, Watch};
use crate::view::View;

/// Ends the range of any request.
macro_rules! upto {
    ($request:expr, $end:expr) => {
        match $end {
            End::Key => $request,
            End::Prefix => $request.with_prefix(),
            End::Open => $request.with_range(b"\0"),
            End::Before(end) => $request.with_range(end),
        }
    };
}

impl View {
    /// Returns this side's number of a revision.
    pub(crate) fn revision(&self, revision: Rev) -> i64 {
        match revision {
            Rev::Plain(it) => it,
            // Revisions before this sequence of operations are compacted on both sides, but the sides differ in their number.
            Rev::Now(it) => (self.base + self.now + it).max(1),
            Rev::Start(it) => self.base + it,
        }
    }

    /// Returns this side's id of a lease.
    pub(crate) fn lease(&self, lease: Lease) -> i64 {
        match lease {
            Lease::None => 0,
            Lease::Given(id) => id,
            Lease::Auto(nth) => self.chosen.get(nth).copied().unwrap_or(0x7fff_0000),
        }
    }

    pub(crate) fn get(&self, it: &Range) -> GetOptions {
        let mut options = GetOptions::new()
            .with_limit(it.limit)
            .with_revision(self.revision(it.revision))
            .with_min_mod_revision(self.revision(it.min_mod))
            .with_max_mod_revision(self.revision(it.max_mod))
            .with_min_create_revision(self.revision(it.min_create))
            .with_max_create_revision(self.revision(it.max_create));
        options = upto!(options, it.end);
        if let Some((target, order)) = it.sort {
            options = options.with_sort(target, order);
        }
        if it.serializable {
            options = options.with_serializable();
        }
        if it.keys_only {
            options = options.with_keys_only();
        }
        if it.count_only {
            options = options.with_count_only();
        }
        options
    }

    pub(crate) fn put(&self, it: &Put) -> PutOptions {
        let mut options = PutOptions::new().with_lease(self.lease(it.lease));
        if it.prev_kv {
            options = options.with_prev_key();
        }
        if it.ignore_value {
            options = options.with_ignore_value();
        }
        if it.ignore_lease {
            options = options.with_ignore_lease();
        }
        options
    }

    pub(crate) fn delete(&self, it: &Delete) -> DeleteOptions {
        let mut options = DeleteOptions::new();
        options = upto!(options, it.end);
        if it.prev_kv {
            options = options.with_prev_key();
        }
        options
    }

    fn compare(&self, it: &Compare) -> EtcdCompare {
        let compare = match it.target {
            Target::Version(version) => EtcdCompare::version(it.key, it.is, version),
            Target::Create(at) => EtcdCompare::create_revision(it.key, it.is, self.revision(at)),
            Target::Mod(at) => EtcdCompare::mod_revision(it.key, it.is, self.revision(at)),
            Target::Value(value) => EtcdCompare::value(it.key, it.is, value),
            Target::Lease(lease) => EtcdCompare::lease(it.key, it.is, self.lease(lease)),
        };
        upto!(compare, it.end)
    }

    pub(crate) fn txn(&self, it: &Txn) -> EtcdTxn {
        let compares: Vec<_> = it.compares.iter().map(|it| self.compare(it)).collect();
        let ops = |ops: &[Op]| ops.iter().map(|it| self.txn_op(it)).collect::<Vec<_>>();
        EtcdTxn::new().when(compares).and_then(ops(&it.then)).or_else(ops(&it.otherwise))
    }

    fn txn_op(&self, it: &Op) -> TxnOp {
        match it {
            Op::Range(it) => TxnOp::get(it.key, Some(self.get(it))),
            Op::Put(it) => TxnOp::put(it.key, it.value, Some(self.put(it))),
            Op::Delete(it) => TxnOp::delete(it.key, Some(self.delete(it))),
            Op::Txn(it) => TxnOp::txn(self.txn(it)),
            other => unreachable!("{other:?} in a transaction"),
        }
    }

    pub(crate) fn watch(&self, it: &Watch) -> WatchOptions {
        let mut options =
            WatchOptions::new().with_watch_id(it.id).with_start_revision(self.revision(it.start));
        options = upto!(options, it.end);
        let filters =
            [(it.no_put, WatchFilterType::NoPut), (it.no_delete, WatchFilterType::NoDelete)];
        let filters = filters.into_iter().filter(|(on, _)| *on).map(|(_, filter)| filter);
        options = options.with_filters(filters.collect::<Vec<_>>());
        if it.prev_kv {
            options = options.with_prev_key();
        }
        if it.fragment {
            options = options.with_fragment();
        }
        options
    }
}

/// Makes a transaction with this many entries in one list, around etcd's limit.
pub(crate) fn many(list: Many, count: usize) -> EtcdTxn {
    let txn = EtcdTxn::new();
    let ops = || vec![TxnOp::get("a", Some(GetOptions::new().with_count_only())); count];
    match list {
        Many::Compares => {
            let compare = EtcdCompare::version("a", etcd_client::CompareOp::Greater, -1);
            txn.when(vec![compare; count])
        }
        Many::Then => txn.and_then(ops()),
        Many::Otherwise => txn.or_else(ops()),
        Many::Nested => txn.and_then([TxnOp::txn(EtcdTxn::new().and_then(ops()))]),
    }
}
