//! How a key comes into etcd and goes again (rules P4, P8–P10).

use super::SOON;
use super::rig::{Rig, TTL, deletes, puts};
use etcd_locked_core::queue::Slot;
use etcd_locked_core::Refusal;
use etcd_locked_core::{Input, Output, Refused};
use etcd_locked_core::Wait;
use crate::world::etcd::{refused, unavailable, unknown};

#[test]
fn an_unanswered_put_is_sealed_before_anything_is_put_again() {
    let mut rig = Rig::warm();
    rig.acquire(1, "locks/a", Wait::Forever);
    let (id, put) = rig.take();
    assert_eq!(puts(&put), ["locks/a/a1"]);
    rig.answer(id, Err(unknown()));

    rig.acquire(2, "locks/b", Wait::Forever);
    let (id, seal) = rig.take();
    assert_eq!(puts(&seal), ["locks%s/a1"]);
    assert!(
        rig.sent.is_empty(),
        "nothing is put while the seal is under way"
    );
    let sealed = rig.store.apply(rig.now, &seal);
    // The put arrives late, and applies no more.
    rig.store.apply(rig.now, &put).unwrap();
    assert!(!rig.has("locks/a/a1"));

    rig.answer(id, sealed);
    rig.serve();
    assert_eq!(
        rig.granted(1).owned[0].created,
        rig.granted(2).owned[0].created
    );
}

#[test]
fn a_put_that_was_applied_unseen_is_found_by_the_seal() {
    let mut rig = Rig::warm();
    rig.acquire(1, "locks/a", Wait::Forever);
    let (id, put) = rig.take();
    rig.store.apply(rig.now, &put).unwrap();
    let created = rig.store.revision();
    rig.answer(id, Err(unknown()));
    rig.serve();
    assert_eq!(rig.granted(1).owned[0].created, created);
}

#[test]
fn a_name_is_closed_while_its_delete_is_unresolved() {
    let mut rig = Rig::warm();
    rig.acquire(1, "locks/a", Wait::Forever);
    rig.serve();
    rig.granted(1);
    rig.release(1);
    rig.acquire(2, "locks/a", Wait::Forever);
    rig.acquire(3, "locks/a", Wait::Once);
    assert!(matches!(rig.refused(3), Refused::Held { .. }));
    for _ in 0..3 {
        let (id, delete) = rig.take();
        assert_eq!(deletes(&delete), ["locks/a/a1"]);
        assert!(rig.sent.is_empty(), "only the delete is sent");
        rig.answer(id, Err(unknown()));
        rig.pass(super::SOON);
    }
    rig.serve();
    assert!(matches!(
        rig.told(1),
        Some(Output::Released { result: Ok(()), .. })
    ));
    rig.granted(2);
}

#[test]
fn a_name_opens_again_although_its_lease_was_retired_while_its_delete_was_unresolved() {
    let mut rig = Rig::warm();
    rig.acquire(1, "locks/a", Wait::Forever);
    rig.serve();
    rig.granted(1);
    rig.store.delete(b"locks%s/a1");
    rig.acquire(2, "locks/b", Wait::Forever);
    rig.serve();
    rig.granted(2);
    rig.release(1);
    let (id, delete) = rig.take();
    assert_eq!(deletes(&delete), ["locks/a/a1"]);
    rig.answer(id, Err(unknown()));
    rig.acquire(3, "locks/a", Wait::Forever);
    rig.live(super::SOON * 2);
    rig.granted(3);
}

#[test]
fn a_late_delete_leaves_the_next_incarnation_alone() {
    let mut rig = Rig::warm();
    rig.acquire(1, "locks/a", Wait::Forever);
    rig.serve();
    rig.granted(1);
    rig.release(1);
    let delete = rig.sent[0].1.clone();
    rig.serve();
    rig.acquire(2, "locks/a", Wait::Forever);
    rig.serve();
    rig.granted(2);
    rig.store.apply(rig.now, &delete).unwrap();
    assert!(rig.has("locks/a/a1"));
}

#[test]
fn a_put_under_an_old_session_revision_is_put_again_under_the_new_one() {
    let mut rig = Rig::warm();
    rig.acquire(1, "locks/a", Wait::Forever);
    let lease = rig.store.leases()[0];
    rig.store.put(b"locks%s/a1", lease);
    rig.serve();
    rig.granted(1);
}

#[test]
fn a_put_that_was_not_applied_and_is_wanted_no_more_leaves_the_name_free() {
    let mut rig = Rig::warm();
    rig.acquire(1, "locks/a", Wait::Forever);
    let lease = rig.store.leases()[0];
    rig.store.put(b"locks%s/a1", lease);
    rig.tell(Input::Cancel { call: 1 });
    rig.serve();
    assert!(!rig.core.queues.contains_key("locks/a"));
    rig.acquire(2, "locks/a", Wait::Forever);
    rig.serve();
    rig.granted(2);
}

#[test]
fn in_a_poisoned_bundle_only_the_bad_name_fails() {
    let mut rig = Rig::warm();
    rig.store.forbidden = Some("bad");
    let names = ["locks/a", "locks/b", "locks/bad", "locks/c", "locks/d"];
    // Two bundles are under way, so these wait for each other.
    for (call, name) in (10..).zip(["locks/x", "locks/y"]) {
        rig.acquire(call, name, Wait::Forever);
    }
    for (call, name) in (0..).zip(names) {
        rig.acquire(call, name, Wait::Forever);
    }
    assert_eq!(rig.sent.len(), 2);
    rig.serve();
    for call in [0, 1, 3, 4] {
        rig.granted(call);
    }
    assert!(matches!(rig.refused(2), Refused::PermissionDenied(_)));
}

#[test]
fn a_dead_lease_in_a_put_is_replaced() {
    let mut rig = Rig::warm();
    rig.acquire(1, "locks/a", Wait::Forever);
    let (id, _) = rig.take();
    rig.answer(id, Err(refused(Refusal::LeaseNotFound)));
    rig.serve();
    assert_eq!(&*rig.granted(1).owned[0].key, "locks/a/a2");
}

#[test]
fn a_cancelled_call_leaves_no_key() {
    for applied in [true, false] {
        let mut rig = Rig::warm();
        rig.acquire(1, "locks/a", Wait::Forever);
        let (id, put) = rig.take();
        rig.tell(Input::Cancel { call: 1 });
        if applied {
            rig.store.apply(rig.now, &put).unwrap();
        }
        rig.answer(id, Err(unknown()));
        rig.serve();
        assert!(!rig.has("locks/a/a1") && rig.told(1).is_none());
        assert!(rig.core.queues.is_empty() && rig.core.calls.is_empty());
    }
}

#[test]
fn an_heir_of_the_same_ttl_inherits_the_queued_key() {
    for (ttl_secs, inherited) in [(TTL, true), (TTL + 1, false)] {
        let mut rig = Rig::warm();
        rig.contend("locks/a/zz");
        rig.acquire(1, "locks/a", Wait::Forever);
        rig.serve();
        rig.acquire_for(2, "locks/a", Wait::Forever, ttl_secs);
        rig.tell(Input::Cancel { call: 1 });
        rig.serve();
        assert!(matches!(rig.slot("locks/a"), Slot::Queued(_)));
        assert_eq!(rig.has("locks/a/a1"), inherited);
    }
}

#[test]
fn a_call_that_waited_long_for_its_turn_survives_one_failed_put() {
    let mut rig = Rig::warm();
    rig.acquire(1, "locks/a", Wait::Forever);
    rig.serve();
    rig.granted(1);
    rig.acquire(2, "locks/a", Wait::Forever);
    rig.live(super::SOON * 40);
    rig.release_fenced(1);
    let (id, delete) = rig.take();
    let deleted = rig.store.apply(rig.now, &delete);
    rig.answer(id, deleted);
    let (id, put) = rig.take();
    assert_eq!(puts(&put), ["locks/a/a1"]);
    rig.answer(id, Err(unavailable()));
    rig.live(super::SOON);
    rig.granted(2);
}

#[test]
fn timers_do_not_pile_up_while_calls_come_and_go() {
    let mut rig = Rig::warm();
    for call in 0..100 {
        rig.acquire(call, "locks/a", Wait::For(SOON * 10));
        rig.serve();
        rig.granted(call);
        rig.release(call);
        rig.serve();
        let told = rig.told(call);
        assert!(matches!(
            told,
            Some(Output::Released { result: Ok(()), .. })
        ));
    }
    assert!(rig.core.timers.len() < 20, "{:?}", rig.core.timers);
}
