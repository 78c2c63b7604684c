//! Contenders: how their keys are put and deleted (rules P4, P8–P10).

use crate::*;

#[test]
fn unanswered_put_is_barred_before_the_next() {
    let mut rig = Rig::putting();
    let (id, put) = rig.take(any);
    assert_eq!(keys_put(&put), ["locks/a/a1"]);
    rig.deliver((id, Err(unknown()))).acquire(2, B).pass(SOON).come_back();
    assert_eq!(keys_put(rig.next()), ["locks%s/a1"]);
    let barrier = rig.applied(any);
    rig.sends_nothing(); // nothing is put while the barrier is under way
    rig.store.apply(rig.now, &put).expect("a value");
    rig.lacks(&["locks/a/a1"]); // the put arrives late, and does not apply
    rig.deliver(barrier).serves(1).granted(2);
}

#[test]
fn name_is_closed_while_its_delete_is_unresolved() {
    let mut rig = Rig::holding();
    rig.release(1).acquire(2, A).attempt(3, A).busy(3);
    for _ in 0..3 {
        assert_eq!(keys_deleted(rig.next()), ["locks/a/a1"]);
        assert_eq!(rig.sent.len(), 1, "only the delete is sent");
        rig.answer(any, Err(unknown())).pass(SOON).come_back();
    }
    rig.serves(2).released(1);
}

#[test]
fn name_opens_again_though_its_session_was_retired() {
    let mut rig = Rig::holding();
    rig.delete_unseen("locks%s/a1").hold(2, B).release(1);
    assert_eq!(keys_deleted(rig.next()), ["locks/a/a1"]);
    rig.answer(any, Err(unknown())).acquire(3, A).live(SOON * 2).granted(3);
}

#[test]
fn late_delete_leaves_the_next_incarnation_alone() {
    let mut rig = Rig::holding();
    let delete = rig.release(1).next().clone();
    rig.serve().hold(2, A);
    rig.store.apply(rig.now, &delete).expect("a value");
    rig.keeps(&["locks/a/a1"]);
}

/// The put of call 1 is under way, and will not apply because another client has put the session key.
fn outdated_put() -> Rig {
    let mut rig = Rig::putting();
    rig.store.put(b"locks%s/a1", 0xa1);
    rig
}

#[test]
fn put_is_sent_again_under_a_new_session_revision() {
    assert_eq!(&*outdated_put().serves(1).owned(1).key, "locks/a/a1");
}

#[test]
fn unapplied_put_that_no_call_wants_frees_the_name() {
    let mut rig = outdated_put();
    rig.cancel(1).serve().is_idle().hold(2, A);
}

#[test]
fn put_under_a_dead_lease_moves_to_another() {
    let mut rig = Rig::putting();
    rig.answer(puts, Err(refused(Refusal::LeaseNotFound)));
    assert_eq!(&*rig.serves(1).owned(1).key, "locks/a/a2");
}

#[test]
fn heir_of_the_same_ttl_inherits_the_waiting_key() {
    for (ttl_secs, inherited) in [(TTL, true), (TTL + 1, false)] {
        let mut rig = Rig::waiting();
        let first = rig.created(A);
        rig.acquire_for(2, A, ttl_secs).cancel(1).serve();
        let waits = |it: &&Contender| it.is_in_line() && it.created.is_some();
        assert!(rig.contenders(A).last().is_some_and(waits));
        assert_eq!(rig.created(A) == first, inherited);
    }
}

#[test]
fn call_that_waited_long_survives_one_failed_put() {
    let mut rig = Rig::holding();
    rig.acquire(2, A).live(SOON * 40).release_fenced(1).serve_one(deletes);
    assert_eq!(keys_put(rig.next()), ["locks/a/a1"]);
    rig.answer(puts, Err(unavailable())).live(SOON).granted(2);
}

#[test]
fn timers_do_not_pile_up_while_calls_come_and_go() {
    for how in [Release::Confirmed, Release::Lingering] {
        let mut rig = Rig::warm();
        for call in 0..200 {
            rig.acquire_within(call, A, 3_600 * SECOND).serves(call).release_as(call, how, false);
        }
        assert!(rig.core.pending().0 < 10, "{:?}", rig.core.pending());
    }
}

/// At its quota etcd applies the writes that cross it, although it refuses them (rule P34).
#[test]
fn put_refused_at_the_quota_leaves_no_key() {
    for mode in [Mode::Exclusive, Mode::Shared, permits(2)] {
        for (applied, wait) in
            [0, 1].into_iter().flat_map(|n| [(n, Wait::Once), (n, Wait::Forever)])
        {
            let mut rig = Rig::warm();
            rig.store.space = Space::Crossing(applied);
            rig.share(1, A, mode, wait).serve();
            assert!(matches!(rig.refused(1), Refused::Backend(_)));
            rig.live(SOON);
            assert_eq!(rig.is_idle().store.below(A).count(), 0);
            rig.store.space = Space::Enough;
            rig.share(2, A, mode, wait).serves(2);
        }
    }
}

#[test]
fn put_refused_at_the_quota_fails_no_held_lock() {
    let mut rig = Rig::holding();
    rig.store.space = Space::Crossing(1);
    rig.acquire(2, B).live(SOON * 50).nothing_about(1).lacks(&["locks/b/a1"]);
    rig.give_back(1).lacks(&["locks/a/a1"]);
}

#[test]
fn lock_passes_on_at_the_quota() {
    let mut rig = Rig::waiting();
    rig.live(SOON);
    rig.store.space = Space::Crossing(0);
    rig.live(SOON * 50).delete("locks/a/zz").serves(1);
}

#[test]
fn refused_delete_is_sent_again_slowly() {
    let mut rig = Rig::holding();
    rig.hold(2, B);
    rig.store.denied = Some("locks/a/");
    let sent = rig.release(1).count(10 * SECOND, deletes);
    assert!((2..40).contains(&sent), "{sent} in ten seconds");
    rig.store.denied = None;
    rig.live(SOON * 20).lacks(&["locks/a/a1"]).keeps(&["locks/b/a1"]);
}

/// It ends when its key is gone. An earlier refusal is not its result.
#[test]
fn release_is_confirmed_once_with_its_outcome() {
    for works_again in [true, false] {
        let mut rig = Rig::holding();
        rig.store.denied = Some("locks/a/");
        rig.release(1).serve().nothing_about(1); // its key may still be deleted
        rig.store.denied = rig.store.denied.filter(|_| !works_again);
        rig.live(SOON * 6);
        let Some(Output::Released { result, .. }) = rig.output(1) else { panic!("no outcome") };
        assert_eq!(result.is_ok(), works_again);
        assert!(works_again || matches!(result, Err(Refused::PermissionDenied(_))));
        rig.store.denied = None;
        rig.live(SOON * 20).nothing_about(1).lacks(&["locks/a/a1"]);
    }
}

/// Two transactions found no leader. Then the call of the first one is cancelled.
#[test]
fn put_behind_an_unwanted_one_is_sent() {
    let mut rig = Rig::putting();
    rig.acquire(2, B).fail_all(unavailable).cancel(1).pass(SOON).come_back();
    assert_eq!(keys_put(rig.next()), ["locks/b/a1"]);
}
