//! Fresh etcd: its first revisions, which random cases never see.

use crate::op::{Delete, End, Lease, Op, Put, Range, Rev, Watch};
use crate::pair::Pair;
use crate::random::{self, real, runtime};
use crate::side::Side;

fn everything(revision: i64) -> Op {
    let revision = Rev::Plain(revision);
    Op::Range(Range { key: b"\0", end: End::Open, revision, ..Range::default() })
}

fn put(key: &'static [u8], lease: Lease) -> Op {
    Op::Put(Put::new(key, b"1", lease))
}

fn compact(at: i64) -> Op {
    Op::Compact { at: Rev::Plain(at), physical: true }
}

fn watch(stream: usize, start: i64) -> Op {
    let (end, start) = (End::Prefix, Rev::Plain(start));
    Op::Watch(Watch { stream, key: b"a", end, start, prev_kv: true, ..Watch::default() })
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
    let runtime = runtime();
    let played = runtime.block_on(async {
        let etcd = random::start().await;
        let (real, version) = real(&etcd).await;
        let mut pair = Pair::new(real, Side::embedded().await, version);
        pair.play_as_they_are(&ops).await
    });
    if let Err(difference) = played {
        panic!("{difference}");
    }
}
