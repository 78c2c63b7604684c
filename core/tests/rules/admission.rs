//! Admission: no older contender excludes the key any more (rules P2, P11, P14, P15).

use etcd_locked_core::{Event, Mode, Op, Output, Refused, Request, RequestId, Revision, Wait};
use etcd_locked_sim::etcd::unknown;

use crate::rig::{Rig, TTL, deletes};

/// A core that waits for `locks/a` behind `zy` and `zz`, and has read who is before it.
fn third() -> Rig {
    let mut rig = Rig::warm();
    rig.contend("locks/a/zy");
    rig.contend("locks/a/zz");
    rig.queue(1, "locks/a");
    rig
}

/// A core that has had `locks/a` after others, released it, and still watches it.
fn watching() -> Rig {
    let mut rig = third();
    for key in ["locks/a/zz", "locks/a/zy"] {
        rig.store.delete(key.as_bytes());
        rig.report();
    }
    rig.granted(1);
    rig.release_fenced(1);
    rig.serve();
    rig
}

#[test]
fn predecessor_that_gives_up_proves_no_ownership() {
    let mut rig = third();
    rig.store.delete(b"locks/a/zz");
    rig.report();
    rig.serve();
    assert!(rig.output(1).is_none());
    rig.store.delete(b"locks/a/zy");
    rig.report();
    rig.serve();
    let grant = rig.granted(1);
    assert_eq!(
        grant.owned[0].revision,
        rig.revision(),
        "the state in which nothing older was left"
    );
}

/// The watch is often ahead of the answer to a put (rule P14).
#[test]
fn event_ahead_of_the_answer_counts() {
    let mut rig = watching();
    rig.contend("locks/a/zx");
    rig.acquire(2, "locks/a", Wait::Forever);
    let (put, request) = rig.take_put();
    let answer = rig.store.apply(rig.now, &request);
    rig.store.delete(b"locks/a/zx");
    rig.report();
    let gone = rig.revision();
    rig.answer(put, answer);
    assert!(rig.sent.is_empty(), "nothing is read");
    assert_eq!(rig.granted(2).owned[0].revision, gone);
}

/// The watch reports one predecessor; a read whose answer is of an earlier state misses the other (rule P21).
#[test]
fn token_is_of_the_state_in_which_the_last_key_was_gone() {
    let mut rig = third();
    rig.store.delete(b"locks/a/zy");
    rig.pass(crate::SOON);
    let (read, request) = rig.take();
    let seen = rig.store.apply(rig.now, &request); // zz is there
    rig.store.delete(b"locks/a/zz");
    rig.report();
    rig.answer(read, seen);
    assert_eq!(rig.granted(1).owned[0].revision, rig.revision());
}

/// An operator deletes it, and the watch reports that before the put is answered: what other processes make of it must not
/// become two owners.
#[test]
fn key_deleted_before_its_answer_owns_nothing() {
    let mut rig = watching();
    rig.contend("locks/a/zx");
    rig.acquire(2, "locks/a", Wait::Forever);
    let (put, request) = rig.take_put();
    let answer = rig.store.apply(rig.now, &request);
    rig.store.delete(b"locks/a/a1");
    rig.report();
    rig.contend("locks/a/zz");
    rig.answer(put, answer);
    rig.store.delete(b"locks/a/zx");
    rig.report();
    rig.serve();
    assert!(rig.output(2).is_none(), "another is before it now");
    rig.store.delete(b"locks/a/zz");
    rig.report();
    rig.serve();
    rig.granted(2);
}

/// Other processes contend, and there are deeper keys too.
#[test]
fn try_for_a_contended_name_is_refused() {
    let mut rig = watching();
    rig.contend("locks/a/b/c");
    rig.contend("locks/a/zx");
    rig.acquire(2, "locks/a", Wait::Once);
    rig.serve();
    assert!(matches!(rig.refused(2), Refused::Held { .. }));
}

/// The put of a call that has gone is no holder: its outcome decides, whatever the try wants.
#[test]
fn try_waits_for_the_outcome_of_a_cancelled_put() {
    for (mode, ttl_secs) in [(Mode::Exclusive, TTL + 1), (Mode::Shared, TTL)] {
        for is_ambiguous in [false, true] {
            let mut rig = Rig::warm();
            rig.acquire(1, "locks/a", Wait::Forever);
            let (id, put) = rig.take_put();
            let answer = rig.store.apply(rig.now, &put);
            rig.cancel(1);
            rig.call(2, &["locks/a"], mode, Wait::Once, ttl_secs, &[]);
            rig.answer(id, if is_ambiguous { Err(unknown()) } else { answer });
            rig.live(crate::SOON);
            rig.granted(2);
        }
    }
}

#[test]
fn try_waits_for_the_deletion_of_an_own_key() {
    let mut rig = Rig::warm();
    rig.share(1, "locks/a", Mode::Shared, Wait::Forever);
    rig.serve();
    rig.release(1);
    let delete = rig.take_that(|request| !deletes(request).is_empty());
    rig.acquire(2, "locks/a", Wait::Once);
    rig.serve();
    rig.carry_out(delete);
    rig.live(crate::SOON);
    rig.granted(2);
}

/// A watch on all contenders brings an event for each, so a waiter with many predecessors watches the last alone (rule P15).
#[test]
fn distant_waiter_watches_only_its_predecessor() {
    let mut rig = Rig::warm();
    let keys: Vec<String> = (10..30).map(|n| format!("locks/a/z{n}")).collect();
    for key in &keys {
        rig.contend(key);
    }
    rig.queue(1, "locks/a");
    assert_eq!(rig.watched(), ["locks/a/z29"]);
    for key in &keys[..15] {
        rig.store.delete(key.as_bytes());
    }
    // The last gives up: that admits nothing, and now the head is near.
    rig.store.delete(b"locks/a/z29");
    rig.report();
    rig.serve();
    assert!(rig.output(1).is_none());
    assert_eq!(rig.watched(), ["locks/a/"]);
    for key in &keys[15..19] {
        rig.store.delete(key.as_bytes());
        rig.report();
    }
    rig.granted(1);
}

/// These predecessors go, and the watch reports the last of them: what is sent then.
fn after_the_last(rig: &mut Rig, gone: &[String]) -> (RequestId, Request) {
    for key in gone {
        rig.store.delete(key.as_bytes());
    }
    rig.report();
    rig.take()
}

fn twenty() -> Vec<String> {
    (10..30).map(|n| format!("locks/a/z{n}")).collect()
}

fn far_back(names: &[&str]) -> Rig {
    let mut rig = Rig::warm();
    for key in twenty() {
        rig.contend(&key);
    }
    rig.acquire_all(1, names, Wait::Forever);
    rig.serve();
    assert!(rig.output(1).is_none());
    rig
}

fn operations(request: &Request) -> &[Op] {
    match request {
        Request::Txn(txn) => &txn.then,
        other => panic!("{other:?}"),
    }
}

/// Each range of the family goes through all its keys at etcd.
#[test]
fn one_range_admits_a_distant_waiter() {
    let mut rig = far_back(&["locks/a"]);
    let (read, request) = after_the_last(&mut rig, &twenty());
    let family = |op: &&Op| matches!(op, Op::Range { prefix, .. } if &**prefix == "locks/a/");
    assert_eq!(operations(&request).iter().filter(family).count(), 1);
    rig.carry_out((read, request));
    rig.granted(1);
}

/// It was a waiter that gave up: that it has gone proves nothing (rule P14).
#[test]
fn distant_waiter_watches_the_next_predecessor() {
    let mut rig = far_back(&["locks/a"]);
    let (read, request) = after_the_last(&mut rig, &twenty()[19..]);
    rig.carry_out((read, request));
    assert!(rig.sent.is_empty() && rig.output(1).is_none());
    assert_eq!(rig.watched(), ["locks/a/z28"]);
}

/// The keys of one transaction are equally old, and stand in no order.
#[test]
fn nested_name_of_the_same_group_hides_no_contender() {
    let mut rig = far_back(&["locks/a/b", "locks/a"]);
    let (read, request) = after_the_last(&mut rig, &twenty());
    rig.carry_out((read, request));
    rig.granted(1);
    assert!(rig.sent.is_empty(), "nothing is put anew: {:?}", rig.sent);
}

#[test]
fn delete_of_an_earlier_incarnation_is_ignored() {
    let mut rig = third();
    let created = rig.created("locks/a").expect("a value");
    for key in ["locks/a/zz", "locks/a/a1"] {
        rig.event(Event::Delete {
            key: key.into(),
            revision: Revision::new(created.get() - 1).expect("a value"),
        });
        assert!(rig.sent.is_empty(), "nothing is read again");
    }
    assert_eq!(rig.created("locks/a"), Some(created));
}

#[test]
fn read_of_an_earlier_incarnation_is_ignored() {
    let mut rig = Rig::warm();
    let lease = rig.contend("locks/a/zz");
    rig.queue(1, "locks/a");
    rig.pass(crate::SOON);
    let (read, request) = rig.take();
    rig.store.revoke(lease);
    let seen = rig.store.apply(rig.now, &request);
    // While the answer travels our key goes, another comes first, and ours comes again.
    rig.store.delete(b"locks/a/a1");
    rig.report();
    rig.contend("locks/a/zz");
    let request = rig.take_that(|request| !deletes(request).is_empty());
    rig.carry_out(request);
    let request = rig.take_put();
    rig.carry_out(request);
    rig.answer(read, seen);
    rig.serve();
    assert!(rig.output(1).is_none());
}

#[test]
fn deeper_keys_do_not_contend() {
    let mut rig = Rig::warm();
    rig.contend("locks/a/b/c");
    rig.hold(1, "locks/a");
    rig.contend("locks/b/b/c");
    rig.acquire(2, "locks/b", Wait::Once);
    rig.serve();
    rig.granted(2);
}

#[test]
fn try_of_free_names_reads_nothing() {
    let mut rig = Rig::warm();
    rig.acquire_all(1, &["locks/a", "locks/b"], Wait::Once);
    let put = rig.take_put();
    let Request::Txn(txn) = &put.1 else { panic!("no transaction") };
    assert!(txn.then.iter().all(|op| matches!(op, Op::Put { .. })));
    rig.carry_out(put);
    assert_eq!(rig.granted(1).owned.len(), 2);
}

#[test]
fn reads_make_up_for_a_silent_watch() {
    let mut rig = third();
    rig.live(crate::SOON * 4);
    rig.store.delete(b"locks/a/zz");
    rig.store.delete(b"locks/a/zy");
    rig.live(crate::SOON * 15);
    rig.granted(1);
}

#[test]
fn waiter_that_gives_up_learns_the_holder() {
    let mut rig = Rig::warm();
    rig.contend("locks/a/zz");
    rig.acquire(1, "locks/a", Wait::For(crate::SOON));
    rig.serve();
    rig.live(crate::SOON);
    assert!(matches!(
        rig.output(1),
        Some(Output::Refused { why: Refused::Timeout { owner: Some(_), .. }, .. })
    ));
    assert!(!rig.has("locks/a/a1"));
}
