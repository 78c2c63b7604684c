//! Contenders: how a key comes into etcd and goes again (rules P4, P8–P10).

use etcd_locked_core::{Contender, Kv, Mode, Output, Refusal, Refused, Wait};
use etcd_locked_sim::etcd::{Space, refused, unavailable, unknown};

use crate::SOON;
use crate::rig::{Rig, TTL, deletes, puts};

#[test]
fn unanswered_put_is_barred_before_the_next() {
    let mut rig = Rig::warm();
    rig.acquire(1, "locks/a", Wait::Forever);
    let (id, put) = rig.take();
    assert_eq!(puts(&put), ["locks/a/a1"]);
    rig.answer(id, Err(unknown()));

    rig.acquire(2, "locks/b", Wait::Forever);
    rig.pass(SOON);
    rig.come_back();
    let (id, barrier) = rig.take();
    assert_eq!(puts(&barrier), ["locks%s/a1"]);
    assert!(rig.sent.is_empty(), "nothing is put while the barrier is under way");
    let barred = rig.store.apply(rig.now, &barrier);
    // The put arrives late, and applies no more.
    rig.store.apply(rig.now, &put).expect("a value");
    assert!(!rig.has("locks/a/a1"));

    rig.answer(id, barred);
    rig.serve();
    rig.granted(1);
    rig.granted(2);
}

#[test]
fn name_is_closed_while_its_delete_is_unresolved() {
    let mut rig = Rig::warm();
    rig.hold(1, "locks/a");
    rig.release(1);
    rig.acquire(2, "locks/a", Wait::Forever);
    rig.acquire(3, "locks/a", Wait::Once);
    assert!(matches!(rig.refused(3), Refused::Held { .. }));
    for _ in 0..3 {
        let (id, delete) = rig.take();
        assert_eq!(deletes(&delete), ["locks/a/a1"]);
        assert!(rig.sent.is_empty(), "only the delete is sent");
        rig.answer(id, Err(unknown()));
        rig.pass(crate::SOON);
        rig.come_back();
    }
    rig.serve();
    assert!(matches!(rig.output(1), Some(Output::Released { result: Ok(()), .. })));
    rig.granted(2);
}

#[test]
fn name_opens_again_though_its_session_was_retired() {
    let mut rig = Rig::warm();
    rig.hold(1, "locks/a");
    rig.store.delete(b"locks%s/a1");
    rig.hold(2, "locks/b");
    rig.release(1);
    let (id, delete) = rig.take();
    assert_eq!(deletes(&delete), ["locks/a/a1"]);
    rig.answer(id, Err(unknown()));
    rig.acquire(3, "locks/a", Wait::Forever);
    rig.live(crate::SOON * 2);
    rig.granted(3);
}

#[test]
fn late_delete_leaves_the_next_incarnation_alone() {
    let mut rig = Rig::warm();
    rig.hold(1, "locks/a");
    rig.release(1);
    let delete = rig.sent[0].1.clone();
    rig.serve();
    rig.hold(2, "locks/a");
    rig.store.apply(rig.now, &delete).expect("a value");
    assert!(rig.has("locks/a/a1"));
}

#[test]
fn put_is_sent_again_under_a_new_session_revision() {
    let mut rig = Rig::warm();
    rig.acquire(1, "locks/a", Wait::Forever);
    let lease = rig.store.leases()[0];
    rig.store.put(b"locks%s/a1", lease);
    rig.serve();
    rig.granted(1);
}

#[test]
fn unapplied_put_that_no_call_wants_frees_the_name() {
    let mut rig = Rig::warm();
    rig.acquire(1, "locks/a", Wait::Forever);
    let lease = rig.store.leases()[0];
    rig.store.put(b"locks%s/a1", lease);
    rig.cancel(1);
    rig.serve();
    assert!(rig.is_idle());
    rig.hold(2, "locks/a");
}

#[test]
fn forbidden_name_fails_alone_in_a_bundle() {
    let mut rig = Rig::warm();
    rig.store.forbidden = Some("bad");
    let names = ["locks/a", "locks/b", "locks/bad", "locks/c", "locks/d"];
    rig.fill_window();
    let before = rig.sent.len();
    for (call, name) in (0..).zip(names) {
        rig.acquire(call, name, Wait::Forever);
    }
    assert_eq!(rig.sent.len(), before, "they wait for each other");
    rig.serve();
    for call in [0, 1, 3, 4] {
        rig.granted(call);
    }
    assert!(matches!(rig.refused(2), Refused::PermissionDenied(_)));
}

#[test]
fn put_under_a_dead_lease_moves_to_another() {
    let mut rig = Rig::warm();
    rig.acquire(1, "locks/a", Wait::Forever);
    let (id, _) = rig.take();
    rig.answer(id, Err(refused(Refusal::LeaseNotFound)));
    rig.serve();
    assert_eq!(&*rig.granted(1).owned[0].key, "locks/a/a2");
}

#[test]
fn heir_of_the_same_ttl_inherits_the_waiting_key() {
    for (ttl_secs, inherited) in [(TTL, true), (TTL + 1, false)] {
        let mut rig = Rig::warm();
        rig.contend("locks/a/zz");
        rig.queue(1, "locks/a");
        rig.acquire_for(2, "locks/a", Wait::Forever, ttl_secs);
        rig.cancel(1);
        rig.serve();
        let waits = |it: &&Contender| it.is_in_line() && it.created.is_some();
        assert!(rig.contenders("locks/a").last().is_some_and(waits));
        assert_eq!(rig.has("locks/a/a1"), inherited);
    }
}

#[test]
fn call_that_waited_long_survives_one_failed_put() {
    let mut rig = Rig::warm();
    rig.hold(1, "locks/a");
    rig.acquire(2, "locks/a", Wait::Forever);
    rig.live(crate::SOON * 40);
    rig.release_fenced(1);
    let (id, delete) = rig.take();
    let deleted = rig.store.apply(rig.now, &delete);
    rig.answer(id, deleted);
    let (id, put) = rig.take();
    assert_eq!(puts(&put), ["locks/a/a1"]);
    rig.answer(id, Err(unavailable()));
    rig.live(crate::SOON);
    rig.granted(2);
}

#[test]
fn timers_do_not_pile_up_while_calls_come_and_go() {
    let mut rig = Rig::warm();
    for call in 0..100 {
        rig.acquire(call, "locks/a", Wait::For(SOON * 10));
        rig.serve();
        rig.granted(call);
        rig.give_back(call);
        let output = rig.output(call);
        assert!(matches!(output, Some(Output::Released { result: Ok(()), .. })));
    }
    assert!(rig.core.pending().0 < 20, "{:?}", rig.core.pending());
}

/// At its quota etcd applies the writes that cross it, and refuses them all the same (rule P34).
#[test]
fn put_refused_at_the_quota_leaves_no_key() {
    let permits = Mode::Permits(2_u16.try_into().expect("not zero"));
    for mode in [Mode::Exclusive, Mode::Shared, permits] {
        for applied in [0, 1] {
            for wait in [Wait::Once, Wait::Forever] {
                let mut rig = Rig::warm();
                rig.store.space = Space::Crossing(applied);
                rig.share(1, "locks/a", mode, wait);
                rig.serve();
                assert!(matches!(rig.refused(1), Refused::Backend(_)));
                rig.live(SOON);
                let left = |kv: &Kv| kv.key.starts_with(b"locks/a/");
                assert!(!rig.store.kvs().any(left) && rig.is_idle());
                rig.store.space = Space::Enough;
                rig.share(2, "locks/a", mode, wait);
                rig.serve();
                rig.granted(2);
            }
        }
    }
}

#[test]
fn put_refused_at_the_quota_fails_no_held_lock() {
    let mut rig = Rig::warm();
    rig.hold(1, "locks/a");
    rig.store.space = Space::Crossing(1);
    rig.acquire(2, "locks/b", Wait::Forever);
    rig.live(SOON * 50);
    assert!(rig.output(1).is_none() && !rig.has("locks/b/a1"));
    rig.give_back(1);
    assert!(matches!(rig.released(1), Ok(())));
    assert!(!rig.has("locks/a/a1"));
}

#[test]
fn lock_passes_on_at_the_quota() {
    let mut rig = Rig::warm();
    rig.contend("locks/a/zz");
    rig.queue(1, "locks/a");
    rig.live(SOON);
    rig.store.space = Space::Crossing(0);
    rig.live(SOON * 50);
    rig.store.delete(b"locks/a/zz");
    rig.report();
    rig.serve();
    rig.granted(1);
}

#[test]
fn refused_delete_is_sent_again_slowly() {
    let mut rig = Rig::warm();
    for (call, name) in [(1, "locks/a"), (2, "locks/b")] {
        rig.hold(call, name);
    }
    rig.store.denied = Some("locks/a/");
    rig.release(1);
    let mut sent = 0;
    for _ in 0..200 {
        rig.pass(SOON / 8);
        sent += rig.sent.iter().filter(|(_, it)| !deletes(it).is_empty()).count();
        rig.serve();
    }
    assert!((2..40).contains(&sent), "{sent} in ten seconds");
    rig.store.denied = None;
    rig.live(SOON * 20);
    assert!(!rig.has("locks/a/a1") && rig.has("locks/b/a1"));
}

/// It is over once its key is gone: what etcd refused first is not what became of it.
#[test]
fn release_is_confirmed_once_with_its_outcome() {
    for (works_again, outcome) in [(true, "Ok(())"), (false, "Err(PermissionDenied(")] {
        let mut rig = Rig::warm();
        rig.hold(1, "locks/a");
        rig.store.denied = Some("locks/a/");
        rig.give_back(1);
        assert!(rig.output(1).is_none(), "it may still go");
        if works_again {
            rig.store.denied = None;
        }
        rig.live(SOON * 6);
        let released = format!("{:?}", rig.released(1));
        assert!(released.starts_with(outcome), "{released}");
        rig.store.denied = None;
        rig.live(SOON * 20);
        assert!(rig.output(1).is_none() && !rig.has("locks/a/a1"));
    }
}

/// Two transactions found no leader; then the call of the first one goes away.
#[test]
fn put_behind_one_that_nobody_wants_any_more_is_sent() {
    let mut rig = Rig::warm();
    rig.acquire(1, "locks/a", Wait::Forever);
    rig.acquire(2, "locks/b", Wait::Forever);
    rig.fail_all(unavailable);
    rig.cancel(1);
    rig.pass(SOON);
    rig.come_back();
    let (_, put) = rig.take();
    assert_eq!(puts(&put), ["locks/b/a1"]);
}
