//! Faults that random schedules rarely produce: a refusal that ends, a restore, a compaction.

use std::time::Duration;

use etcd_locked_core::Kv;

use super::stage::{call, plays, stage};
use crate::world::bench::Bench;
use crate::world::clients::Call;
use crate::world::violation::must;

/// How long etcd's user may not write.
const DENIED: Duration = Duration::from_secs(5);
/// How long the name may stay blocked after that.
const FREE: Duration = Duration::from_secs(30);
/// How long a lock may take to pass to a process with a working watch.
const QUICK: Duration = Duration::from_millis(300);
/// How soon a holder must be notified that an operator has deleted its key.
const SOON: Duration = Duration::from_secs(2);

/// A put gets no response, and etcd then refuses the barrier for a while (rules P10, P34). Another process gets the name in time,
/// although the session of the first one still exists.
#[test]
fn refused_barrier_is_sent_again() {
    plays(|| {
        let mut stage = stage(2);
        let held = stage.take_lock(0, "held");
        stage.faults.answer_lost = 1.0;
        let asks = stage.ask(0, call("ambiguous"));
        stage.run(Duration::from_secs(1));
        stage.store.forbidden = Some("locks%s");
        stage.faults.answer_lost = 0.0;
        stage.run(DENIED);
        stage.store.forbidden = None;
        stage.cancel(asks);
        stage.drop_body(asks);
        let other = stage.ask(1, call("ambiguous"));
        let served = stage.until(FREE, |stage| stage.has(other));
        must!(I4, served, "a key blocks the name, though no call holds it");
        must!(Truth, stage.has(held), "the held lock is lost");
    });
}

/// Returns how long a waiter waits whose watch is older than a restore, if the lock is released this long after the restore.
fn served_after(released: Duration) -> Duration {
    let mut stage = stage(2);
    let take = |stage: &mut Bench, name: &str| {
        let id = stage.ask(0, Call { ttl_secs: 6, ..call(name) });
        stage.serve(id);
        id
    };
    let holder = take(&mut stage, "passed on");
    let waiter = stage.ask(1, call("passed on"));
    stage.run(Duration::from_secs(1));
    let snapshot = stage.store.snapshot();
    // Many revisions, so that a watch from the next one would wait long.
    for n in 0..500 {
        let other = take(&mut stage, &format!("other-{n}"));
        stage.drop_body(other);
    }
    stage.come_back(snapshot);
    stage.run(released);
    stage.drop_body(holder);
    let since = stage.now;
    let served = stage.until(Duration::from_secs(20), |stage| stage.has(waiter));
    must!(Progress, served, "the waiter is never served");
    stage.now - since
}

/// etcd is restored from a snapshot: keys and revision go back, while the leases of the snapshot still exist (rule P35). The
/// watches are older than the restore, which a write has proved.
#[test]
fn watches_work_again_after_a_restore() {
    plays(|| {
        // By then each process has sent a renewal and a write. Some of these moments are not close to a read of the waiter.
        let moments = (0..10).map(|n| Duration::from_millis(12_000 + n * 700));
        let slowest = moments.map(served_after).max().unwrap_or_default();
        must!(InTime, slowest < QUICK, "long after a restore, a lock takes {slowest:?} to pass");
    });
}

#[test]
fn holder_notices_its_deleted_key_after_a_compaction() {
    plays(|| {
        let mut stage = stage(2);
        let held = stage.take_lock(0, "name");
        stage.take_lock(1, "other");
        stage.store.compact();
        // After one second of holding, the key is watched.
        stage.run(Duration::from_secs(4));
        let below = |kv: &&Kv| kv.key.starts_with(b"locks/name/");
        let keys: Vec<_> = stage.store.kvs().filter(below).map(|kv| kv.key.clone()).collect();
        keys.iter().for_each(|key| stage.store.delete(key));
        stage.store.removed.clear(); // by an operator, not by a process
        let stopped = stage.until(SOON, |stage| !stage.has(held));
        must!(InTime, stopped, "its key is deleted, but its body runs on");
    });
}
