//! Fresh etcd: its first revisions, which random cases never see, and operations that they play too rarely.

use etcd_client::{SortOrder, SortTarget};

use crate::etcd;
use crate::op::{Delete, End, Lease, Op, Put, Range, Rev, Txn, Watch};
use crate::pair::Pair;
use crate::random::{real, runtime};
use crate::side::Side;

fn range(revision: i64) -> Range {
    Range { revision: Rev::Plain(revision), ..Range::new(b"\0", End::Open) }
}

fn everything(revision: i64) -> Op {
    Op::Range(range(revision))
}

fn put(key: &'static [u8], lease: Lease) -> Op {
    Op::Put(Put::new(key, b"1", lease))
}

fn compact(at: i64) -> Op {
    Op::Compact { at: Rev::Plain(at), physical: true }
}

fn watch(stream: usize, start: i64) -> Op {
    Op::Watch(Watch {
        stream,
        id: 0,
        key: b"a",
        end: End::Prefix,
        start: Rev::Plain(start),
        no_put: false,
        no_delete: false,
        prev_kv: true,
        fragment: false,
    })
}

#[test]
fn fresh_etcds_answer_alike() {
    let ops = [
        everything(0),
        everything(1),
        everything(2),
        everything(-1),
        compact(-1),
        compact(0),
        compact(2),
        Op::Leases,
        watch(0, 1),
        Op::Delete(Delete { key: b"a", end: End::Key, prev_kv: true }),
        everything(0),
        compact(1),
        compact(1),
        everything(1),
        watch(0, 1),
        put(b"a", Lease::None),
        everything(1),
        everything(2),
        Op::Delete(Delete { key: b"a", end: End::Key, prev_kv: true }),
        put(b"a/1", Lease::None),
        everything(2),
        watch(1, 2),
        compact(2),
        everything(1),
        everything(2),
        everything(3),
        watch(1, 1),
        watch(1, 3),
        watch(1, i64::MIN),
        compact(4),
        compact(5),
        everything(4),
        everything(i64::MIN),
        everything(i64::MAX),
        Op::Huge(1_000_000),
        Op::Huge(1_600_000),
        Op::Huge(3_000_000),
        put(b"a", Lease::Given(-1)),
        Op::Leases,
        everything(0),
    ];
    alike(&ops);
}

#[test]
fn ranges_of_keys_alone_answer_alike() {
    let all = Range { keys_only: true, ..range(0) };
    let mut ranges = vec![all.clone(); 6];
    ranges[0].revision = Rev::Plain(3);
    (ranges[1].key, ranges[1].end) = (b"a", End::Key);
    ranges[2].serializable = true;
    ranges[3].count_only = true;
    (ranges[4].min_mod, ranges[4].max_mod) = (Rev::Plain(3), Rev::Plain(4));
    (ranges[5].min_create, ranges[5].max_create) = (Rev::Plain(3), Rev::Plain(3));
    for order in [SortOrder::None, SortOrder::Ascend, SortOrder::Descend] {
        for target in [
            SortTarget::Key,
            SortTarget::Version,
            SortTarget::Create,
            SortTarget::Mod,
            SortTarget::Value,
        ] {
            ranges.extend([0, 1].map(|limit| Range {
                limit,
                sort: Some((target, order)),
                ..all.clone()
            }));
        }
    }
    let within = Txn {
        compares: Vec::new(),
        then: ranges.iter().cloned().map(Op::Range).collect(),
        otherwise: Vec::new(),
    };
    let outer = Txn { then: vec![Op::Txn(within.clone())], ..within.clone() };
    let grant = Op::Grant { lease: Lease::Given(7), ttl: 60 };
    let written =
        [grant, put(b"a", Lease::Given(7)), put(b"b", Lease::Given(7)), put(b"a", Lease::Given(7))];
    let reads = ranges.into_iter().map(Op::Range);
    let ops = written.into_iter().chain(reads);
    let ops: Vec<_> = ops.chain([Op::Txn(within), Op::Txn(outer)]).collect();
    alike(&ops);
}

/// Plays operations on a new etcd of each kind, and asserts that both answer alike.
fn alike(ops: &[Op]) {
    let runtime = runtime();
    let played = runtime.block_on(async {
        let etcd = etcd::start().await;
        let (real, version) = real(&etcd).await;
        let mut pair = Pair::new(real, Side::embedded().await, version);
        pair.play_as_they_are(ops).await
    });
    if let Err(difference) = played {
        panic!("{difference}");
    }
}
