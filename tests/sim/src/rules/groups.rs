//! Calls with several names: all of them or none, in one step, with one rank (rule P13).

use std::time::Duration;

use super::SOON;
use super::rig::{Rig, TTL, deletes, puts};
use etcd_locked_core::queue::Slot;
use etcd_locked_core::{Input, Output, Refused, Release};
use etcd_locked_core::Wait;
use crate::world::etcd::unknown;

const A: &str = "locks/a";
const B: &str = "locks/b";
const C: &str = "locks/c";

/// A group that waits: `a` is its own already, before `b` there is another.
fn half_ready() -> Rig {
    let mut rig = Rig::warm();
    rig.contend("locks/b/zz");
    rig.acquire_all(1, &[A, B], Wait::Forever);
    rig.serve();
    assert!(rig.has("locks/a/a1") && rig.has("locks/b/a1") && rig.told(1).is_none());
    rig
}

#[test]
fn a_group_is_put_in_one_transaction_and_has_one_rank() {
    let mut rig = Rig::warm();
    rig.acquire_all(1, &[B, A, C], Wait::Forever);
    let (put, request) = rig.take();
    assert_eq!(puts(&request), ["locks/b/a1", "locks/a/a1", "locks/c/a1"]);
    let answer = rig.store.apply(rig.now, &request);
    rig.answer(put, answer);
    let owned = rig.granted(1).owned;
    let keys: Vec<&str> = owned.iter().map(|it| &*it.key).collect();
    assert_eq!(
        keys,
        ["locks/b/a1", "locks/a/a1", "locks/c/a1"],
        "in the order of the names"
    );
    assert!(owned.iter().all(|it| it.created == rig.store.revision()));
}

#[test]
fn a_group_is_not_overtaken_while_it_waits_for_another_name() {
    let mut rig = Rig::warm();
    rig.acquire(1, B, Wait::Forever);
    rig.serve();
    rig.granted(1);
    rig.acquire_all(2, &[A, B], Wait::Forever);
    rig.acquire(3, A, Wait::Forever);
    rig.acquire(4, A, Wait::Once);
    assert!(matches!(rig.refused(4), Refused::Held { name: 0, .. }));
    rig.serve();
    assert!(
        rig.told(3).is_none() && !rig.has("locks/a/a1"),
        "it is the group's turn, and not yet"
    );
    rig.release(1);
    rig.serve();
    rig.granted(2);
    rig.release(2);
    rig.serve();
    rig.granted(3);
}

#[test]
fn groups_that_name_the_same_in_another_order_do_not_wait_for_each_other() {
    let mut rig = Rig::warm();
    rig.acquire_all(1, &[A, B], Wait::Forever);
    rig.acquire_all(2, &[B, A], Wait::Forever);
    rig.acquire_all(3, &[C, B], Wait::Forever);
    rig.acquire_all(4, &[A, C], Wait::Forever);
    for call in 1..=4 {
        rig.serve();
        rig.granted(call);
        rig.release(call);
    }
    rig.serve();
    assert!(rig.core.queues.is_empty() && rig.core.calls.is_empty());
}

#[test]
fn a_group_waits_for_a_key_that_is_still_being_deleted() {
    let mut rig = Rig::warm();
    rig.acquire(1, B, Wait::Forever);
    rig.serve();
    rig.granted(1);
    rig.release(1);
    let (delete, request) = rig.take();
    rig.acquire_all(2, &[A, B], Wait::Forever);
    assert!(rig.sent.is_empty(), "nothing is put of the group");
    let answer = rig.store.apply(rig.now, &request);
    rig.answer(delete, answer);
    let (_, request) = rig.take();
    assert_eq!(puts(&request), ["locks/a/a1", "locks/b/a1"]);
}

#[test]
fn when_one_key_of_a_waiting_group_goes_all_go_and_it_queues_again() {
    for key in ["locks/a/a1", "locks/b/a1"] {
        let mut rig = half_ready();
        let rank = rig.slot(A).created();
        assert_eq!(rig.slot(B).created(), rank);
        rig.store.delete(key.as_bytes());
        rig.live(Duration::from_secs(8)); // the watches are silent
        assert!(rig.slot(A).created() > rank, "{key}");
        assert_eq!(rig.slot(A).created(), rig.slot(B).created());
        rig.store.delete(b"locks/b/zz");
        rig.live(Duration::from_secs(8));
        let owned = rig.granted(1).owned;
        assert_eq!(owned[0].created, owned[1].created);
        assert!(owned.iter().all(|it| rig.has(&it.key)));
    }
}

#[test]
fn a_group_whose_lease_is_lost_queues_again_as_one() {
    let mut rig = half_ready();
    rig.store.revoke(0xa1);
    rig.live(Duration::from_secs(8));
    rig.store.delete(b"locks/b/zz");
    rig.live(Duration::from_secs(8));
    let owned = rig.granted(1).owned;
    assert_eq!(&*owned[0].key, "locks/a/a3");
    assert_eq!(&*owned[1].key, "locks/b/a3");
}

#[test]
fn a_cancelled_group_leaves_nothing_of_any_name() {
    let mut rig = half_ready();
    rig.tell(Input::Cancel { call: 1 });
    let (_, request) = rig
        .sent
        .iter()
        .find(|it| !deletes(&it.1).is_empty())
        .unwrap();
    assert!(!deletes(request).is_empty());
    rig.serve();
    assert!(!rig.has("locks/a/a1") && !rig.has("locks/b/a1"));
    assert!(rig.core.calls.is_empty());
}

#[test]
fn a_cancelled_group_that_nobody_answered_leaves_nothing_of_any_name() {
    for applied in [true, false] {
        let mut rig = Rig::warm();
        rig.acquire_all(1, &[A, B], Wait::Forever);
        let (id, put) = rig.take();
        rig.tell(Input::Cancel { call: 1 });
        if applied {
            rig.store.apply(rig.now, &put).unwrap();
        }
        rig.answer(id, Err(unknown()));
        rig.serve();
        assert!(!rig.has("locks/a/a1") && !rig.has("locks/b/a1") && rig.told(1).is_none());
        assert!(rig.core.queues.is_empty() && rig.core.calls.is_empty());
    }
}

#[test]
fn a_group_that_was_put_unseen_is_found_whole_by_the_seal() {
    let mut rig = Rig::warm();
    rig.acquire_all(1, &[A, B], Wait::Forever);
    let (id, put) = rig.take();
    rig.store.apply(rig.now, &put).unwrap();
    let created = rig.store.revision();
    rig.answer(id, Err(unknown()));
    rig.serve();
    let owned = rig.granted(1).owned;
    assert!(owned.iter().all(|it| it.created == created));
}

/// An operator deletes one of its keys before the seal has looked.
#[test]
fn a_group_that_a_seal_finds_torn_starts_again() {
    let mut rig = Rig::warm();
    rig.acquire_all(1, &[A, B], Wait::Forever);
    let (id, put) = rig.take();
    rig.store.apply(rig.now, &put).unwrap();
    let created = rig.store.revision();
    rig.store.delete(b"locks/b/a1");
    rig.answer(id, Err(unknown()));
    rig.serve();
    let owned = rig.granted(1).owned;
    assert!(owned[0].created > created);
    assert_eq!(owned[0].created, owned[1].created);
}

#[test]
fn the_keys_of_a_group_are_not_inherited_nor_does_it_inherit_one() {
    let mut rig = half_ready();
    let before = rig.slot(B).created();
    rig.acquire(2, B, Wait::Forever);
    rig.tell(Input::Cancel { call: 1 });
    rig.serve();
    assert!(rig.slot(B).created() > before, "the single call's own");
    let single = rig.slot(B).created();
    rig.acquire_all(3, &[B, C], Wait::Forever);
    rig.tell(Input::Cancel { call: 2 });
    rig.serve();
    assert!(rig.slot(B).created() > single, "the group's own");
    assert_eq!(rig.slot(B).created(), rig.slot(C).created());
}

#[test]
fn in_a_poisoned_bundle_the_whole_group_fails_and_no_other() {
    let mut rig = Rig::warm();
    rig.store.forbidden = Some("bad");
    // Two bundles are under way, so these wait for each other.
    for (call, name) in (10..).zip(["locks/x", "locks/y"]) {
        rig.acquire(call, name, Wait::Forever);
    }
    rig.acquire_all(1, &[A, "locks/bad", B], Wait::Forever);
    rig.acquire_all(2, &[C, "locks/d"], Wait::Forever);
    rig.acquire(3, "locks/e", Wait::Forever);
    rig.acquire_all(4, &[A, B], Wait::Forever);
    assert_eq!(rig.sent.len(), 2);
    rig.serve();
    assert!(matches!(rig.refused(1), Refused::PermissionDenied(_)));
    for call in 2..=4 {
        rig.granted(call);
    }
}

#[test]
fn a_group_is_never_split_between_bundles() {
    let mut rig = Rig::warm();
    for (call, name) in (1000..).zip(["locks/x", "locks/y"]) {
        rig.acquire(call, name, Wait::Forever);
    }
    for call in 0..40 {
        rig.acquire(call, &format!("locks/single/{call}"), Wait::Forever);
    }
    let names: Vec<String> = (0..32).map(|n| format!("locks/group/{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    rig.acquire_all(100, &names, Wait::Forever);
    rig.acquire(101, "locks/last", Wait::Forever);
    let mut bundles = Vec::new();
    while let Some((id, request)) = rig.sent.pop_front() {
        bundles.push(puts(&request).len());
        let answer = rig.store.apply(rig.now, &request);
        rig.answer(id, answer);
    }
    assert_eq!(bundles, [1, 1, 40, 33]);
    assert_eq!(rig.granted(100).owned.len(), 32);
    rig.granted(101);
}

#[test]
fn one_try_takes_all_names_or_none() {
    let mut rig = Rig::warm();
    rig.acquire_all(1, &[A, B], Wait::Once);
    rig.serve();
    assert_eq!(rig.granted(1).owned.len(), 2);
    rig.acquire_all(2, &[C, B], Wait::Once);
    let Refused::Held {
        name: 1,
        holder: Some(record),
    } = rig.refused(2)
    else {
        panic!("not the second")
    };
    assert_eq!(&*record, b"call 1");
    rig.serve();
    assert!(!rig.has("locks/c/a1"), "nothing was put");
    assert!(!rig.core.queues.contains_key(C));
}

#[test]
fn one_try_behind_another_process_is_refused_with_the_first_name_that_is_taken() {
    for deeper in [false, true] {
        let mut holder = Rig::warm();
        if deeper {
            holder.contend("locks/c/b/c");
        }
        holder.acquire(7, C, Wait::Forever);
        holder.serve();
        holder.granted(7);
        let mut rig = Rig::new();
        rig.store = holder.store;
        rig.acquire_all(1, &[A, B, C], Wait::Once);
        rig.serve();
        let Refused::Held {
            name: 2,
            holder: Some(record),
        } = rig.refused(1)
        else {
            panic!("not the third")
        };
        assert_eq!(&*record, b"call 7");
        assert!(!rig.has("locks/a/a2") && !rig.has("locks/b/a2"));
    }
}

#[test]
fn one_try_over_deeper_keys_is_granted() {
    let mut rig = Rig::warm();
    rig.contend("locks/b/deep/er");
    rig.acquire_all(1, &[A, B], Wait::Once);
    rig.serve();
    assert_eq!(rig.granted(1).owned.len(), 2);
}

#[test]
fn a_group_that_gives_up_is_told_who_has_a_name_that_is_taken() {
    let mut holder = Rig::warm();
    holder.acquire(7, B, Wait::Forever);
    holder.serve();
    holder.granted(7);
    let mut rig = Rig::new();
    rig.store = holder.store;
    rig.acquire_all(1, &[A, B, C], Wait::For(SOON));
    rig.serve();
    rig.live(SOON);
    let Refused::Timeout {
        name: 1,
        holder: Some(record),
        ..
    } = rig.refused(1)
    else {
        panic!("not the second")
    };
    assert_eq!(&*record, b"call 7");
}

#[test]
fn a_group_that_gives_up_behind_its_own_process_is_told_who_is_before_it() {
    let mut rig = Rig::warm();
    rig.acquire(7, C, Wait::Forever);
    rig.serve();
    rig.granted(7);
    rig.acquire_all(1, &[A, C], Wait::For(SOON));
    rig.live(SOON);
    assert!(matches!(
        rig.refused(1),
        Refused::Timeout {
            name: 1,
            holder: Some(_),
            ..
        }
    ));
}

#[test]
fn a_held_group_that_loses_one_key_is_lost_and_gives_all_back() {
    let mut rig = Rig::warm();
    rig.acquire_all(1, &[A, B], Wait::Forever);
    rig.serve();
    rig.granted(1);
    rig.store.delete(b"locks/b/a1");
    rig.live(Duration::from_secs(9));
    rig.lost(1);
    assert!(rig.told(1).is_none(), "once");
    assert!(rig.has("locks/a/a1"), "not before its body is dropped");
    rig.release(1);
    rig.serve();
    assert!(!rig.has("locks/a/a1"));
    rig.acquire_all(2, &[B, A], Wait::Forever);
    rig.serve();
    rig.granted(2);
}

#[test]
fn a_lost_lease_is_told_once_to_a_group() {
    let mut rig = Rig::warm();
    rig.acquire_all(1, &[A, B, C], Wait::Forever);
    rig.serve();
    rig.granted(1);
    rig.pass(Duration::from_secs(TTL as u64));
    rig.lost(1);
    assert!(rig.told(1).is_none());
    rig.release(1);
    assert!(matches!(
        rig.told(1),
        Some(Output::Released { result: Err(_), .. })
    ));
    assert!(rig.told(1).is_none());
}

#[test]
fn a_release_is_confirmed_when_all_keys_are_gone() {
    let mut rig = Rig::warm();
    for call in 0..64 {
        rig.acquire(call, &format!("locks/single/{call}"), Wait::Forever);
    }
    rig.acquire_all(100, &[A, B, C], Wait::Forever);
    rig.serve();
    // The first two deletions are under way; the others share bundles, and the group is in two of them.
    for call in 0..64 {
        rig.tell(Input::Release {
            call,
            how: Release::Unconfirmed,
            fenced: false,
        });
    }
    rig.release(100);
    rig.granted(100);
    let mut bundles = Vec::new();
    while let Some((id, request)) = rig.sent.pop_front() {
        bundles.push(deletes(&request).len());
        let answer = rig.store.apply(rig.now, &request);
        rig.answer(id, answer);
        let all = ["locks/a/a1", "locks/b/a1", "locks/c/a1"];
        let gone = all.iter().all(|key| !rig.has(key));
        let told = rig.told(100);
        assert_eq!(
            matches!(told, Some(Output::Released { result: Ok(()), .. })),
            gone,
            "{bundles:?}"
        );
        if gone {
            assert_eq!(bundles, [1, 1, 64, 1]);
            return;
        }
    }
    panic!("not confirmed: {bundles:?}");
}

#[test]
fn a_group_goes_on_although_one_of_its_deletions_is_unresolved() {
    let mut rig = Rig::warm();
    rig.acquire_all(1, &[A, B], Wait::Forever);
    rig.serve();
    rig.granted(1);
    rig.release(1);
    rig.acquire_all(2, &[B, C], Wait::Forever);
    let (id, request) = rig.take();
    assert_eq!(deletes(&request).len(), 2);
    rig.answer(id, Err(unknown()));
    rig.serve();
    assert!(matches!(rig.slot(C), Slot::Free), "not put alone");
    rig.live(SOON);
    rig.granted(2);
}
