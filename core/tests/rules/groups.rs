//! Groups: a call with several names gets all of them or none, in one step, with one create revision (rule P13).

use crate::*;

/// A group that waits: it would have `a`, but another key is ahead at `b`.
fn half_ready() -> Rig {
    let mut rig = Rig::warm();
    rig.contend("locks/b/zz").acquire_all(1, &[A, B]).serve().keeps(&["locks/a/a1", "locks/b/a1"]);
    rig.nothing_about(1);
    rig
}

/// Call 7 of another process holds this name, beside older keys of others.
fn beside_a_holder_of(name: &str, older: &[&str]) -> Rig {
    let mut holder = Rig::warm();
    older.iter().for_each(|key| _ = holder.contend(key));
    holder.hold(7, name);
    let mut rig = Rig::new();
    rig.store = holder.store;
    rig
}

#[test]
fn group_is_put_at_once_and_has_one_rank() {
    let mut rig = Rig::warm();
    rig.acquire_all(1, &[B, A, C]);
    let in_order_of_names = ["locks/b/a1", "locks/a/a1", "locks/c/a1"];
    assert_eq!(keys_put(rig.next()), in_order_of_names);
    let owned = rig.serve_one(any).granted(1).grant(1).owned;
    let keys: Vec<&str> = owned.iter().map(|it| &*it.key).collect();
    assert_eq!(keys, in_order_of_names);
    assert!(owned.iter().all(|it| it.created == rig.revision()));
}

#[test]
fn group_is_not_overtaken_while_it_waits() {
    let mut rig = Rig::holding();
    rig.hold(9, B).acquire_all(2, &[A, B]).acquire(3, A).attempt(4, A).busy(4);
    rig.give_back(1).nothing_about(2).nothing_about(3);
    rig.lacks(&["locks/a/a1"]); // the group is next, but is not granted yet
    rig.give_back(9).granted(2).give_back(2).granted(3);
}

#[test]
fn order_of_names_makes_no_deadlock() {
    let mut rig = Rig::warm();
    for (call, names) in (1..).zip([[A, B], [B, A], [C, B], [A, C]]) {
        rig.acquire_all(call, &names);
    }
    for call in 1..=4 {
        rig.serves(call).release(call);
    }
    rig.serve().comes_to_rest();
}

#[test]
fn waiting_group_that_loses_keys_queues_again_as_one() {
    for lost in [Some("locks/a/a1"), Some("locks/b/a1"), None] {
        let mut rig = half_ready();
        let rank = rig.created(A);
        assert_eq!(rig.created(B), rank);
        match lost {
            Some(key) => _ = rig.delete_unseen(key),
            None => rig.store.revoke(0xa1), // both, with their lease
        }
        rig.live(8 * SECOND); // the watches are silent
        assert!(rig.created(A) > rank, "{lost:?}");
        assert_eq!(rig.created(A), rig.created(B));
        let owned = rig.delete_unseen("locks/b/zz").live(8 * SECOND).granted(1).grant(1).owned;
        assert_eq!(owned[0].created, owned[1].created);
        assert!(owned.iter().all(|it| rig.has(&it.key)));
    }
}

#[test]
fn cancelled_group_leaves_no_key() {
    half_ready().cancel(1).serve().lacks(&["locks/a/a1", "locks/b/a1"]).comes_to_rest();
}

#[test]
fn cancelled_call_without_a_response_leaves_no_key() {
    for (names, applied) in [(&[A][..], true), (&[A], false), (&[A, B], true), (&[A, B], false)] {
        let mut rig = Rig::warm();
        let (put, request) = rig.acquire_all(1, names).cancel(1).take(puts);
        if applied {
            rig.store.apply(rig.now, &request).expect("a value");
        }
        rig.deliver((put, Err(unknown()))).live(SOON).nothing_about(1);
        rig.lacks(&["locks/a/a1", "locks/b/a1"]).comes_to_rest();
    }
}

/// An operator may delete one of its keys before the delete after the barrier reads them.
#[test]
fn keys_that_were_put_unseen_are_taken_back() {
    for (names, is_torn) in [(&[B][..], false), (&[A, B], false), (&[A, B], true)] {
        let mut rig = Rig::warm();
        let (put, _) = rig.acquire_all(1, names).applied(puts);
        let created = rig.revision();
        if is_torn {
            rig.delete_unseen("locks/b/a1");
        }
        let owned = rig.deliver((put, Err(unknown()))).live(SOON).granted(1).grant(1).owned;
        let again = owned[0].created;
        assert!(again > created && owned.iter().all(|it| it.created == again));
    }
}

#[test]
fn keys_are_inherited_neither_from_a_group_nor_by_one() {
    let mut rig = half_ready();
    let before = rig.created(B);
    let single = rig.acquire(2, B).cancel(1).serve().created(B);
    assert!(single > before, "the single call's own");
    rig.acquire_all(3, &[B, C]).cancel(2).serve();
    assert!(rig.created(B) > single, "the group's own");
    assert_eq!(rig.created(B), rig.created(C));
}

#[test]
fn forbidden_name_fails_its_call_alone_in_a_bundle() {
    for forbidden in [&["locks/bad"][..], &[A, "locks/bad", B]] {
        let mut rig = Rig::warm();
        rig.store.forbidden = Some("bad");
        rig.acquire_each(1_000..1_064); // they fill the window (rule P7)
        let before = rig.sent.len();
        rig.acquire_all(1, forbidden).acquire_all(2, &[C, "locks/d"]);
        rig.acquire(3, "locks/e").acquire_all(4, &[A, B]);
        assert_eq!(rig.sent.len(), before, "they wait for each other");
        rig.serve();
        assert!(matches!(rig.refused(1), Refused::PermissionDenied(_)));
        rig.granted_each(2..5);
    }
}

#[test]
fn group_is_never_split_between_bundles() {
    let mut rig = Rig::warm();
    rig.acquire_each(0..64 + 40); // 64 fill the window (rule P7)
    let names: Vec<String> = (0..32).map(|n| format!("locks/group/{n}")).collect();
    rig.acquire_all(200, &names.iter().map(String::as_str).collect::<Vec<_>>());
    rig.acquire(201, "locks/last");
    for size in [1, 1, 2, 4, 8, 16, 32, 40, 33] {
        assert_eq!(keys_put(rig.next()).len(), size);
        rig.serve_one(any);
    }
    assert_eq!(rig.granted(201).granted(200).grant(200).owned.len(), 32);
}

#[test]
fn try_takes_all_names_or_none() {
    let mut rig = Rig::warm();
    rig.acquire_as(1, &[A, B], Wait::Once);
    assert!(operations(rig.next()).iter().all(|op| matches!(op, Op::Put { .. }))); // no read
    assert_eq!(rig.serves(1).grant(1).owned.len(), 2);
    rig.acquire_as(2, &[C, B], Wait::Once);
    assert_eq!(rig.busy(2), (1, record(1)));
    rig.serve().lacks(&["locks/c/a1"]); // nothing was put
    assert!(rig.contenders(C).is_empty());
}

#[test]
fn refused_try_names_the_name_that_is_taken() {
    let deeper = &["locks/c/b/c"][..];
    for (names, older) in
        [(&[C][..], &[][..]), (&[C], deeper), (&[A, B, C], &[]), (&[A, B, C], deeper)]
    {
        let mut rig = beside_a_holder_of(C, older);
        rig.acquire_as(1, names, Wait::Once).serve();
        assert_eq!(rig.busy(1), (names.len() - 1, record(7)));
        assert!(rig.requests == 3 || !older.is_empty(), "after a grant and a barrier");
        rig.comes_to_rest();
        // Under `a2` the process had its session key, or a contender has its deeper key.
        let own = ["a2", "a3"].map(|lease| [A, B, C].map(|name| format!("{name}/{lease}")));
        assert!(!own.as_flattened().iter().any(|key| rig.has(key)));
    }
}

#[test]
fn timeout_names_the_holder() {
    for (names, place) in [(&[B][..], 0), (&[A, B, C], 1)] {
        let mut rig = beside_a_holder_of(B, &[]);
        rig.acquire_as(1, names, Wait::For(SOON)).serve().live(SOON);
        assert_eq!(rig.timed_out(1), (place, record(7)));
        assert_eq!(rig.store.below(B).count(), 1, "it leaves no key");
    }
}

#[test]
fn held_group_that_loses_a_key_gives_all_back() {
    let mut rig = Rig::warm();
    rig.hold_all(1, &[A, B]).live(2 * SECOND);
    rig.delete("locks/b/a1").serve().lost(1, LossCause::Gone).nothing_about(1); // only once
    rig.keeps(&["locks/a/a1"]); // not before its body is dropped
    rig.give_back(1).lacks(&["locks/a/a1"]);
    rig.hold_all(2, &[B, A]).pass(WHOLE).lost(2, LossCause::Expired).nothing_about(2); // also only once
}

#[test]
fn release_is_confirmed_when_all_keys_are_gone() {
    let mut rig = Rig::warm();
    rig.hold_all(1, &[A, B, C]);
    rig.store.denied = Some("locks/b/");
    rig.release(1).live(SOON).nothing_about(1);
    rig.lacks(&["locks/a/a1", "locks/c/a1"]).keeps(&["locks/b/a1"]);
    rig.store.denied = None;
    rig.live(SECOND).released(1).lacks(&["locks/b/a1"]);
}

#[test]
fn group_is_put_once_no_key_of_it_is_being_deleted() {
    for is_answered in [true, false] {
        let mut rig = Rig::warm();
        rig.hold_all(1, &[A, B]).release(1).acquire_all(2, &[B, C]);
        assert_eq!((rig.sent.len(), keys_deleted(rig.next()).len()), (1, 2), "nothing is put");
        if !is_answered {
            rig.answer(deletes, Err(unknown())).serve().lacks(&["locks/c/a1"]).live(SOON);
        }
        rig.serves(2);
    }
}

/// A group became the head in its process at the last moment. It had waited for its other name, not for etcd.
#[test]
fn wait_for_another_name_is_not_taken_for_silence() {
    let mut rig = Rig::warm();
    rig.contend("locks/b/zz").acquire_within(1, B, 2 * SECOND).serve();
    rig.acquire_as(2, &[A, B], Wait::For(millis(2_100))).live(millis(1_950));
    rig.pass(millis(50)).timed_out(1);
    rig.serve_one(deletes).nothing_about(2).pass(millis(100)); // its keys are being put
    assert_eq!(rig.timed_out(2).0, 1);
}

/// Call 1, which was ahead of it in its process, has been cancelled.
#[test]
fn timeout_of_a_nested_call_names_the_holder() {
    let mut rig = beside_a_holder_of(A, &[]);
    let (wait, holds) = (Wait::For(2 * SECOND), vec![Id(2)]);
    rig.queue(1, A).hold(2, B).submit(Input::Acquire(Acquire { wait, holds, ..ask(3, &[A]) }));
    rig.live(SECOND * 3 / 2).cancel(1).serve_all(deletes).pass(SECOND / 2);
    assert_eq!(rig.timed_out(3).1, record(7));
}
