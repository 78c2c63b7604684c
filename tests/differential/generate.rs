//! Generator of random sequences of operations.

use etcd_client::{CompareOp, SortOrder, SortTarget};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use proptest::strategy::Union;

use crate::op::{
    Compare, Delete, End, KEYS, Key, Lease, Many, Op, Put, Range, Rev, Target, Txn, Watch,
};

/// Values of keys. There are few, so that compares and sorting find equal ones.
const VALUES: &[&[u8]] = &[b"", b"0", b"1", b"11", b"2", b"\0\xff"];

/// Generates the operations of one case.
pub(crate) fn sequence() -> impl Strategy<Value = Vec<Op>> {
    // Leases and keys come first, so that there is something to find.
    let plain = |(key, value, lease)| Op::Put(Put::new(key, value, lease));
    let leases = vec![Lease::Given(1), Lease::Given(2), Lease::None];
    let grants = leases.into_iter().map(|lease| Op::Grant { lease, ttl: 60 });
    let lease = select(vec![Lease::None, Lease::Given(1), Lease::Given(2), Lease::Auto(0)]);
    let puts = vec((select(KEYS), value(), lease).prop_map(plain), 0..12);
    (subsequence(grants.collect::<Vec<_>>(), 0..=3), puts, vec(op(), 1..56))
        .prop_map(|(grants, puts, ops)| [grants, puts, ops].concat())
}

fn op() -> impl Strategy<Value = Op> {
    let lists = vec![Many::Compares, Many::Then, Many::Otherwise, Many::Nested];
    prop_oneof![
        20 => range().prop_map(Op::Range),
        24 => put().prop_map(Op::Put),
        6 => delete().prop_map(Op::Delete),
        20 => txn().prop_map(Op::Txn),
        1 => (select(lists), 127..=129_usize).prop_map(|(list, count)| Op::Many(list, count)),
        5 => (revision(), any::<bool>()).prop_map(|(at, physical)| Op::Compact { at, physical }),
        8 => (lease(), ttl()).prop_map(|(lease, ttl)| Op::Grant { lease, ttl }),
        4 => lease().prop_map(Op::Revoke),
        5 => (lease(), any::<bool>()).prop_map(|(lease, keys)| Op::TimeToLive { lease, keys }),
        2 => lease().prop_map(Op::KeepAlive),
        1 => lease().prop_map(Op::KeepAliveRevoked),
        2 => Just(Op::Leases),
        5 => watch().prop_map(Op::Watch),
        2 => (0..2_usize, 0..3_i64).prop_map(|(stream, id)| Op::Cancel { stream, id }),
        1 => (0..2_usize).prop_map(|stream| Op::Progress { stream }),
    ]
}

/// Generates `usual` in four of five cases.
fn mostly<T: Clone + std::fmt::Debug + 'static>(
    usual: T,
    others: impl Strategy<Value = T> + 'static,
) -> Union<BoxedStrategy<T>> {
    Union::new_weighted(vec![(4, Just(usual).boxed()), (1, others.boxed())])
}

fn key() -> impl Strategy<Value = Key> {
    prop_oneof![120 => select(KEYS), 1 => Just(&b""[..])]
}

fn end() -> impl Strategy<Value = End> {
    prop_oneof![
        4 => Just(End::Key),
        4 => Just(End::Prefix),
        2 => Just(End::Open),
        3 => key().prop_map(End::Before),
    ]
}

fn value() -> impl Strategy<Value = &'static [u8]> {
    select(VALUES)
}

/// Generates a revision of a request, mostly one of the past that is not compacted.
fn revision() -> impl Strategy<Value = Rev> {
    prop_oneof![
        8 => (-4..=0_i64).prop_map(Rev::Now),
        4 => (-16..=-5_i64).prop_map(Rev::Now),
        1 => (1..=2_i64).prop_map(Rev::Now),
        1 => (-1..=1_i64).prop_map(Rev::Start),
        2 => select(vec![-1, 0, i64::MAX]).prop_map(Rev::Plain),
    ]
}

fn lease() -> impl Strategy<Value = Lease> {
    prop_oneof![
        9 => (1..=2_i64).prop_map(Lease::Given),
        3 => (0..2_usize).prop_map(Lease::Auto),
        1 => Just(Lease::Given(3)),
        1 => select(vec![-5, 0x7777, i64::MAX]).prop_map(Lease::Given),
        1 => Just(Lease::None),
    ]
}

fn ttl() -> impl Strategy<Value = i64> {
    prop_oneof![
        12 => select(vec![30, 60, 3_600]),
        // Below the shortest TTL, and around the longest one.
        2 => select(vec![0, 1, 2, -1, i64::MIN]),
        2 => select(vec![9_000_000_000, 9_000_000_001, i64::MAX]),
    ]
}

fn range() -> impl Strategy<Value = Range> {
    let wide = prop_oneof![1 => end(), 1 => Just(End::Open)];
    let sort = (
        select(vec![
            SortTarget::Key,
            SortTarget::Version,
            SortTarget::Create,
            SortTarget::Mod,
            SortTarget::Value,
        ]),
        select(vec![SortOrder::None, SortOrder::Ascend, SortOrder::Descend]),
    );
    let bound = || prop_oneof![9 => Just(Rev::Plain(0)), 1 => revision()];
    (
        (key(), wide, mostly(0, -1..5_i64), mostly(Rev::Plain(0), revision())),
        proptest::option::of(sort),
        (any::<bool>(), mostly(false, Just(true)), mostly(false, Just(true))),
        (bound(), bound(), bound(), bound()),
    )
        .prop_map(
            |(
                (key, end, limit, revision),
                sort,
                (serializable, keys_only, count_only),
                (min_mod, max_mod, min_create, max_create),
            )| Range {
                key,
                end,
                limit,
                revision,
                sort,
                serializable,
                keys_only,
                count_only,
                min_mod,
                max_mod,
                min_create,
                max_create,
            },
        )
}

fn put() -> impl Strategy<Value = Put> {
    let ignore = prop_oneof![
        40 => Just((false, false)),
        3 => Just((true, false)),
        3 => Just((false, true)),
        1 => Just((true, true)),
    ];
    (key(), value(), mostly(Lease::None, lease()), any::<bool>(), ignore, mostly(true, Just(false)))
        .prop_map(|(key, value, lease, prev_kv, (ignore_value, ignore_lease), clean)| Put {
            key,
            // Mostly without the value or lease that is ignored, as etcd requires.
            value: if ignore_value && clean { b"" } else { value },
            lease: if ignore_lease && clean { Lease::None } else { lease },
            prev_kv,
            ignore_value,
            ignore_lease,
        })
}

fn delete() -> impl Strategy<Value = Delete> {
    let end = prop_oneof![2 => Just(End::Key), 1 => end()];
    (key(), end, any::<bool>()).prop_map(|(key, end, prev_kv)| Delete { key, end, prev_kv })
}

fn compare() -> impl Strategy<Value = Compare> {
    let is = vec![CompareOp::Equal, CompareOp::NotEqual, CompareOp::Less, CompareOp::Greater];
    let target = prop_oneof![
        (0..4_i64).prop_map(Target::Version),
        revision().prop_map(Target::Create),
        Just(Target::Create(Rev::Plain(0))),
        revision().prop_map(Target::Mod),
        value().prop_map(Target::Value),
        lease().prop_map(Target::Lease),
    ];
    let end = Union::new_weighted(vec![(3, Just(End::Key).boxed()), (1, end().boxed())]);
    (key(), end, select(is), target).prop_map(|(key, end, is, target)| Compare {
        key,
        end,
        is,
        target,
    })
}

fn txn() -> impl Strategy<Value = Txn> {
    // Mostly valid operations, because one mistake refuses the whole transaction.
    let plain = (select(KEYS), value(), any::<bool>())
        .prop_map(|(key, value, prev_kv)| Put { prev_kv, ..Put::new(key, value, Lease::None) });
    let leaf = prop_oneof![
        4 => range().prop_map(Op::Range),
        4 => plain.prop_map(Op::Put),
        1 => put().prop_map(Op::Put),
        2 => delete().prop_map(Op::Delete),
    ]
    .boxed();
    let within = txn_of(leaf.clone()).prop_map(Op::Txn);
    let nested = prop_oneof![2 => leaf.clone(), 1 => within].boxed();
    let deeper = txn_of(nested.clone()).prop_map(Op::Txn);
    let deep = prop_oneof![2 => leaf.clone(), 1 => deeper].boxed();
    prop_oneof![4 => txn_of(leaf), 2 => txn_of(nested), 1 => txn_of(deep)]
}

fn txn_of(op: BoxedStrategy<Op>) -> impl Strategy<Value = Txn> {
    (vec(compare(), 0..3), vec(op.clone(), 0..4), vec(op, 0..4))
        .prop_map(|(compares, then, otherwise)| Txn { compares, then, otherwise })
}

fn watch() -> impl Strategy<Value = Watch> {
    let filters = prop_oneof![
        6 => Just((false, false)),
        2 => Just((true, false)),
        2 => Just((false, true)),
    ];
    (
        (0..2_usize, mostly(0, 1..3_i64)),
        (key(), end()),
        prop_oneof![2 => Just(Rev::Plain(0)), 1 => revision()],
        filters,
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(
            |((stream, id), (key, end), start, (no_put, no_delete), prev_kv, fragment)| Watch {
                stream,
                id,
                key,
                end,
                // No case reaches that revision.
                start: match start {
                    Rev::Plain(i64::MAX) => Rev::Now(1),
                    start => start,
                },
                no_put,
                no_delete,
                prev_kv,
                fragment,
            },
        )
}
