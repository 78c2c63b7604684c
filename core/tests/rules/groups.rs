//! Groups: calls with several names get all of them or none, in one step, with one rank (rule P13).

use std::time::Duration;

use etcd_locked_core::{Output, Owner, Refused, Release, Wait};
use etcd_locked_sim::etcd::unknown;

use crate::SOON;
use crate::rig::{Rig, TTL, deletes, puts};

const A: &str = "locks/a";
const B: &str = "locks/b";
const C: &str = "locks/c";

/// A group that waits: `a` is its own already, before `b` there is another.
fn half_ready() -> Rig {
    let mut rig = Rig::warm();
    rig.contend("locks/b/zz");
    rig.acquire_all(1, &[A, B], Wait::Forever);
    rig.serve();
    assert!(rig.has("locks/a/a1") && rig.has("locks/b/a1") && rig.output(1).is_none());
    rig
}

#[test]
fn group_is_put_at_once_and_has_one_rank() {
    let mut rig = Rig::warm();
    rig.acquire_all(1, &[B, A, C], Wait::Forever);
    let (put, request) = rig.take();
    assert_eq!(puts(&request), ["locks/b/a1", "locks/a/a1", "locks/c/a1"]);
    rig.carry_out((put, request));
    let owned = rig.granted(1).owned;
    let keys: Vec<&str> = owned.iter().map(|it| &*it.key).collect();
    assert_eq!(keys, ["locks/b/a1", "locks/a/a1", "locks/c/a1"], "in the order of the names");
    assert!(owned.iter().all(|it| it.created == rig.revision()));
}

#[test]
fn group_is_not_overtaken_while_it_waits() {
    let mut rig = Rig::warm();
    rig.hold(1, B);
    rig.acquire_all(2, &[A, B], Wait::Forever);
    rig.acquire(3, A, Wait::Forever);
    rig.acquire(4, A, Wait::Once);
    assert!(matches!(rig.refused(4), Refused::Held { name: 0, .. }));
    rig.serve();
    assert!(
        rig.output(3).is_none() && !rig.has("locks/a/a1"),
        "it is the group's turn, and not yet"
    );
    rig.give_back(1);
    rig.granted(2);
    rig.give_back(2);
    rig.granted(3);
}

#[test]
fn order_of_names_makes_no_deadlock() {
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
    assert!(rig.comes_to_rest());
}

#[test]
fn group_waits_for_a_key_that_is_being_deleted() {
    let mut rig = Rig::warm();
    rig.hold(1, B);
    rig.release(1);
    let (delete, request) = rig.take();
    rig.acquire_all(2, &[A, B], Wait::Forever);
    assert!(rig.sent.is_empty(), "nothing is put of the group");
    rig.carry_out((delete, request));
    let (_, request) = rig.take();
    assert_eq!(puts(&request), ["locks/a/a1", "locks/b/a1"]);
}

#[test]
fn waiting_group_that_loses_a_key_queues_again_as_one() {
    for key in ["locks/a/a1", "locks/b/a1"] {
        let mut rig = half_ready();
        let rank = rig.created(A);
        assert_eq!(rig.created(B), rank);
        rig.store.delete(key.as_bytes());
        rig.live(Duration::from_secs(8)); // the watches are silent
        assert!(rig.created(A) > rank, "{key}");
        assert_eq!(rig.created(A), rig.created(B));
        rig.store.delete(b"locks/b/zz");
        rig.live(Duration::from_secs(8));
        let owned = rig.granted(1).owned;
        assert_eq!(owned[0].created, owned[1].created);
        assert!(owned.iter().all(|it| rig.has(&it.key)));
    }
}

#[test]
fn waiting_group_that_loses_its_lease_queues_again_as_one() {
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
fn cancelled_group_leaves_no_key() {
    let mut rig = half_ready();
    rig.cancel(1);
    let (_, request) = rig.sent.iter().find(|it| !deletes(&it.1).is_empty()).expect("a value");
    assert!(!deletes(request).is_empty());
    rig.serve();
    assert!(!rig.has("locks/a/a1") && !rig.has("locks/b/a1"));
    assert!(rig.comes_to_rest());
}

#[test]
fn cancelled_call_without_an_answer_leaves_no_key() {
    for (names, applied) in [(&[A][..], true), (&[A], false), (&[A, B], true), (&[A, B], false)] {
        let mut rig = Rig::warm();
        rig.acquire_all(1, names, Wait::Forever);
        let (id, put) = rig.take();
        rig.cancel(1);
        if applied {
            rig.store.apply(rig.now, &put).expect("a value");
        }
        rig.answer(id, Err(unknown()));
        rig.live(SOON);
        assert!(!rig.has("locks/a/a1") && !rig.has("locks/b/a1") && rig.output(1).is_none());
        assert!(rig.comes_to_rest());
    }
}

/// An operator may delete one of its keys before the delete after the barrier reads them.
#[test]
fn keys_that_were_put_unseen_are_taken_back() {
    for (names, is_torn) in [(&[B][..], false), (&[A, B], false), (&[A, B], true)] {
        let mut rig = Rig::warm();
        rig.acquire_all(1, names, Wait::Forever);
        let (id, put) = rig.take();
        rig.store.apply(rig.now, &put).expect("a value");
        let created = rig.revision();
        if is_torn {
            rig.store.delete(b"locks/b/a1");
        }
        rig.answer(id, Err(unknown()));
        rig.live(SOON);
        let owned = rig.granted(1).owned;
        let again = owned[0].created;
        assert!(again > created && owned.iter().all(|it| it.created == again));
    }
}

#[test]
fn keys_are_inherited_neither_from_a_group_nor_by_one() {
    let mut rig = half_ready();
    let before = rig.created(B);
    rig.acquire(2, B, Wait::Forever);
    rig.cancel(1);
    rig.serve();
    assert!(rig.created(B) > before, "the single call's own");
    let single = rig.created(B);
    rig.acquire_all(3, &[B, C], Wait::Forever);
    rig.cancel(2);
    rig.serve();
    assert!(rig.created(B) > single, "the group's own");
    assert_eq!(rig.created(B), rig.created(C));
}

#[test]
fn forbidden_name_fails_its_whole_group_alone() {
    let mut rig = Rig::warm();
    rig.store.forbidden = Some("bad");
    rig.fill_window();
    let before = rig.sent.len();
    rig.acquire_all(1, &[A, "locks/bad", B], Wait::Forever);
    rig.acquire_all(2, &[C, "locks/d"], Wait::Forever);
    rig.acquire(3, "locks/e", Wait::Forever);
    rig.acquire_all(4, &[A, B], Wait::Forever);
    assert_eq!(rig.sent.len(), before, "they wait for each other");
    rig.serve();
    assert!(matches!(rig.refused(1), Refused::PermissionDenied(_)));
    for call in 2..=4 {
        rig.granted(call);
    }
}

#[test]
fn group_is_never_split_between_bundles() {
    let mut rig = Rig::warm();
    rig.fill_window();
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
        rig.carry_out((id, request));
    }
    assert_eq!(bundles, [1, 1, 2, 4, 8, 16, 32, 40, 33]);
    assert_eq!(rig.granted(100).owned.len(), 32);
    rig.granted(101);
}

#[test]
fn try_takes_all_names_or_none() {
    let mut rig = Rig::warm();
    rig.acquire_all(1, &[A, B], Wait::Once);
    rig.serve();
    assert_eq!(rig.granted(1).owned.len(), 2);
    rig.acquire_all(2, &[C, B], Wait::Once);
    let Refused::Held { name: 1, owner: Some(Owner { record, .. }) } = rig.refused(2) else {
        panic!("not the second")
    };
    assert_eq!(&*record, b"call 1");
    rig.serve();
    assert!(!rig.has("locks/c/a1"), "nothing was put");
    assert!(rig.contenders(C).is_empty());
}

#[test]
fn refused_try_names_the_name_that_is_taken() {
    for (names, deeper) in
        [(&[C][..], false), (&[C], true), (&[A, B, C], false), (&[A, B, C], true)]
    {
        let mut holder = Rig::warm();
        if deeper {
            holder.contend("locks/c/b/c");
        }
        holder.hold(7, C);
        let mut rig = Rig::new();
        rig.store = holder.store;
        rig.acquire_all(1, names, Wait::Once);
        rig.serve();
        let why = rig.refused(1);
        let Refused::Held { name, owner: Some(Owner { record, .. }) } = &why else {
            panic!("{why:?}")
        };
        assert_eq!((*name, &**record), (names.len() - 1, &b"call 7"[..]));
        assert!(rig.comes_to_rest());
        // Under `a2` it had its session key, or a contender has its deeper key.
        let own = ["a2", "a3"].map(|lease| [A, B, "locks/c"].map(|name| format!("{name}/{lease}")));
        assert!(!own.as_flattened().iter().any(|key| rig.has(key)));
    }
}

#[test]
fn try_over_deeper_keys_is_granted() {
    let mut rig = Rig::warm();
    rig.contend("locks/b/deep/er");
    rig.acquire_all(1, &[A, B], Wait::Once);
    rig.serve();
    assert_eq!(rig.granted(1).owned.len(), 2);
}

#[test]
fn group_that_gives_up_learns_the_holder() {
    let mut holder = Rig::warm();
    holder.hold(7, B);
    let mut rig = Rig::new();
    rig.store = holder.store;
    rig.acquire_all(1, &[A, B, C], Wait::For(SOON));
    rig.serve();
    rig.live(SOON);
    let Refused::Timeout { name: 1, owner: Some(Owner { record, .. }), .. } = rig.refused(1) else {
        panic!("not the second")
    };
    assert_eq!(&*record, b"call 7");
}

#[test]
fn group_that_gives_up_learns_the_call_ahead_in_its_process() {
    let mut rig = Rig::warm();
    rig.hold(7, C);
    rig.acquire_all(1, &[A, C], Wait::For(SOON));
    rig.live(SOON);
    assert!(matches!(rig.refused(1), Refused::Timeout { name: 1, owner: Some(_), .. }));
}

#[test]
fn held_group_that_loses_a_key_gives_all_back() {
    let mut rig = Rig::warm();
    rig.hold_all(1, &[A, B]);
    rig.live(Duration::from_secs(2));
    rig.store.delete(b"locks/b/a1");
    rig.report();
    rig.serve();
    rig.lost(1);
    assert!(rig.output(1).is_none(), "once");
    assert!(rig.has("locks/a/a1"), "not before its body is dropped");
    rig.give_back(1);
    assert!(!rig.has("locks/a/a1"));
    rig.hold_all(2, &[B, A]);
}

#[test]
fn group_loses_its_lease_once() {
    let mut rig = Rig::warm();
    rig.hold_all(1, &[A, B, C]);
    rig.pass(Duration::from_secs(TTL as u64));
    rig.lost(1);
    assert!(rig.output(1).is_none());
    rig.give_back(1);
    assert!(rig.released(1).is_ok() && rig.output(1).is_none());
}

#[test]
fn release_is_confirmed_when_all_keys_are_gone() {
    let mut rig = Rig::warm();
    for call in 0..64 {
        rig.acquire(call, &format!("locks/single/{call}"), Wait::Forever);
    }
    rig.acquire_all(100, &[A, B, C], Wait::Forever);
    rig.serve();
    for call in 0..64 {
        rig.release_as(call, Release::Unconfirmed, false);
    }
    rig.release(100);
    rig.granted(100);
    let mut bundles = Vec::new();
    while let Some((id, request)) = rig.sent.pop_front() {
        bundles.push(deletes(&request).len());
        rig.carry_out((id, request));
        let all = ["locks/a/a1", "locks/b/a1", "locks/c/a1"];
        let gone = all.iter().all(|key| !rig.has(key));
        let said = rig.output(100);
        assert_eq!(
            matches!(said, Some(Output::Released { result: Ok(()), .. })),
            gone,
            "{bundles:?}"
        );
        if gone {
            assert_eq!(bundles, [1, 1, 2, 4, 8, 16, 32, 3]);
            return;
        }
    }
    panic!("not confirmed: {bundles:?}");
}

#[test]
fn group_waits_for_a_delete_without_an_answer() {
    let mut rig = Rig::warm();
    rig.hold_all(1, &[A, B]);
    rig.release(1);
    rig.acquire_all(2, &[B, C], Wait::Forever);
    let (id, request) = rig.take();
    assert_eq!(deletes(&request).len(), 2);
    rig.answer(id, Err(unknown()));
    rig.serve();
    assert!(!rig.has("locks/c/a1"), "not put alone");
    rig.live(SOON);
    rig.granted(2);
}

/// A group that came first in its process at the last moment: what it waited for was its other name, and not etcd.
#[test]
fn wait_for_another_name_is_not_taken_for_silence() {
    let mut rig = Rig::warm();
    rig.contend("locks/b/zz");
    let wait = Duration::from_secs(2);
    rig.acquire(1, B, Wait::For(wait));
    rig.serve();
    rig.acquire_all(2, &[A, B], Wait::For(wait + Duration::from_millis(100)));
    rig.live(wait - Duration::from_millis(50));
    rig.pass(Duration::from_millis(50));
    assert!(matches!(rig.refused(1), Refused::Timeout { .. }));
    let delete = rig.take();
    rig.carry_out(delete);
    assert!(rig.output(2).is_none());
    rig.pass(Duration::from_millis(100)); // its keys are on their way
    let why = rig.refused(2);
    assert!(matches!(why, Refused::Timeout { name: 1, .. }), "{why:?}");
}
