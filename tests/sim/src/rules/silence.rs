//! What etcd does not say, or says too late: nobody waits for it for ever, and nobody takes it for an answer.

use std::time::Duration;

use super::rig::Rig;
use etcd_locked_core::Refused;
use etcd_locked_core::WatchEvent;
use etcd_locked_core::LossCause;
use etcd_locked_core::Wait;
use crate::world::etcd::{unavailable, unknown};

fn last_event(rig: &Rig) -> WatchEvent {
    let mut events = rig.store.events("locks/", rig.store.revision()).unwrap();
    WatchEvent::Changed(events.pop().unwrap())
}

/// One predecessor goes, and the other while who is left is being read.
#[test]
fn a_predecessor_that_goes_while_we_read_is_not_missed() {
    let mut rig = Rig::warm();
    rig.contend("locks/a/zx");
    rig.contend("locks/a/zy");
    rig.acquire(1, "locks/a", Wait::Forever);
    rig.serve();
    rig.store.delete(b"locks/a/zy");
    rig.news(last_event(&rig));
    rig.pass(Duration::from_secs(6));
    let (look, request) = rig.take();
    let seen = rig.store.apply(rig.now, &request); // zx is there
    rig.store.delete(b"locks/a/zx");
    rig.news(last_event(&rig)); // earlier than the answer
    rig.answer(look, seen);
    rig.serve();
    rig.granted(1);
}

#[test]
fn silence_is_not_taken_for_a_holder() {
    for mut rig in [Rig::warm(), Rig::new()] {
        rig.acquire(1, "locks/a", Wait::For(Duration::from_secs(1)));
        rig.pass(Duration::from_secs(1));
        assert!(matches!(rig.refused(1), Refused::Backend(_)));
    }
}

#[test]
fn a_holder_hears_of_a_deleted_key_though_its_watch_is_silent() {
    let mut rig = Rig::warm();
    rig.acquire(1, "locks/a", Wait::Forever);
    rig.serve();
    rig.granted(1);
    rig.live(Duration::from_secs(3));
    rig.store.delete(b"locks/a/a1");
    rig.live(Duration::from_secs(6));
    assert_eq!(rig.lost(1), LossCause::Deleted);
}

#[test]
fn a_key_that_a_seal_finds_does_not_stay_with_a_retired_lease() {
    let mut rig = Rig::warm();
    rig.acquire(1, "locks/long", Wait::Forever);
    rig.serve();
    rig.granted(1);
    rig.acquire(2, "locks/b", Wait::Forever);
    let (id, put) = rig.take_puts();
    rig.store.apply(rig.now, &put).unwrap(); // applied, unseen
    rig.store.delete(b"locks%s/a1"); // an operator tidies up
    rig.answer(id, Err(unknown()));
    rig.serve();
    rig.live(Duration::from_secs(1));
    rig.granted(2);
    assert!(!rig.has("locks/b/a1"));
    assert!(rig.has("locks/long/a1"), "its body goes on");
}

#[test]
fn names_of_calls_that_gave_up_do_not_pile_up_in_an_outage() {
    let mut rig = Rig::new();
    for call in 0..2_000 {
        let name = format!("locks/orders/{call}");
        rig.acquire(call, &name, Wait::For(Duration::from_millis(100)));
        rig.pass(Duration::from_millis(5));
        for (id, _) in std::mem::take(&mut rig.sent) {
            rig.answer(id, Err(unavailable()));
        }
    }
    let pending: usize = rig.core.leases.values().map(|l| l.pending.len()).sum();
    assert!(pending < 500, "{pending}");
}

#[test]
fn after_a_wipe_a_waiter_watches_anew() {
    let mut rig = Rig::warm();
    for _ in 0..50 {
        rig.store.put(b"other", 0);
    }
    rig.contend("locks/a/zx");
    rig.acquire(1, "locks/a", Wait::Forever);
    rig.serve();
    rig.live(Duration::from_secs(1));
    let before = rig.core.queues["locks/a"].watch.clone();
    assert!(before.is_some());
    rig.store.wipe();
    rig.contend("locks/a/zy");
    rig.live(Duration::from_secs(20));
    let after = rig.core.queues["locks/a"].watch.clone();
    assert!(after.is_some() && after != before);
}

/// Two leases are opened after a wipe; the first answer that tells of it is of the very revision that was known before.
#[test]
fn an_answer_that_tells_of_a_wipe_late_costs_no_new_lease() {
    let mut rig = Rig::warm();
    rig.acquire(1, "locks/a", Wait::Forever);
    rig.serve();
    let known = rig.granted(1).owned[0].revision;
    rig.store.wipe();
    rig.acquire_for(2, "locks/b", Wait::Forever, 5);
    rig.acquire_for(3, "locks/c", Wait::Forever, 6);
    for _ in 0..2 {
        let (grant, request) = rig.take();
        let granted = rig.store.apply(rig.now, &request);
        rig.answer(grant, granted);
    }
    let (late, request) = rig.take();
    let overtaken = rig.store.apply(rig.now, &request);
    let (seal, request) = rig.take();
    let sealed = rig.store.apply(rig.now, &request);
    assert_eq!(rig.store.revision(), known);
    rig.answer(seal, sealed);
    rig.serve();
    rig.granted(3);
    assert_eq!(rig.lost(1), LossCause::Wiped);
    rig.answer(late, overtaken);
    rig.serve();
    rig.granted(2);
    assert!(rig.told(3).is_none());
}
