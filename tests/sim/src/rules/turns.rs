//! Whose turn it is (rules P2, P11, P14).

use super::rig::Rig;
use etcd_locked_core::queue::Slot;
use etcd_locked_core::{Event, Op, Request, WatchEvent};
use etcd_locked_core::{Output, Refused, RequestId};
use etcd_locked_core::Wait;
use crate::world::etcd::Etcd;

/// A core that waits for `locks/a` behind `zy` and `zz`, and has looked.
fn third_in_line() -> Rig {
    let mut rig = Rig::warm();
    rig.contend("locks/a/zy");
    rig.contend("locks/a/zz");
    rig.acquire(1, "locks/a", Wait::Forever);
    rig.serve();
    rig
}

/// A core that has had `locks/a` after others, released it, and still watches it.
fn watching() -> Rig {
    let mut rig = third_in_line();
    for key in ["locks/a/zz", "locks/a/zy"] {
        rig.store.delete(key.as_bytes());
        rig.news(last_event(&rig.store));
    }
    rig.granted(1);
    rig.release_fenced(1);
    rig.serve();
    rig
}

fn last_event(store: &Etcd) -> WatchEvent {
    WatchEvent::Changed(
        store
            .events("locks/", store.revision())
            .unwrap()
            .pop()
            .unwrap(),
    )
}

#[test]
fn a_predecessor_that_gave_up_does_not_make_us_the_owner() {
    let mut rig = third_in_line();
    rig.store.delete(b"locks/a/zz");
    rig.news(last_event(&rig.store));
    rig.serve();
    assert!(rig.told(1).is_none());
    rig.store.delete(b"locks/a/zy");
    rig.news(last_event(&rig.store));
    rig.serve();
    let grant = rig.granted(1);
    assert_eq!(
        grant.owned[0].revision,
        rig.store.revision(),
        "the state in which nothing older was left"
    );
}

/// The watch is often ahead of the answer to a put (rule P14).
#[test]
fn who_goes_before_our_put_is_answered_is_not_waited_for() {
    let mut rig = watching();
    rig.contend("locks/a/zx");
    rig.acquire(2, "locks/a", Wait::Forever);
    let (put, request) = rig.take_puts();
    let answer = rig.store.apply(rig.now, &request);
    rig.store.delete(b"locks/a/zx");
    rig.news(last_event(&rig.store));
    let gone = rig.store.revision();
    rig.answer(put, answer);
    assert!(rig.sent.is_empty(), "nothing is read");
    assert_eq!(rig.granted(2).owned[0].revision, gone);
}

/// One is told of by the watch, the other missed by a look whose answer is of an earlier state (rule P21).
#[test]
fn a_token_is_of_the_state_in_which_the_last_of_all_had_gone() {
    let mut rig = third_in_line();
    rig.store.delete(b"locks/a/zy");
    rig.pass(super::SOON);
    let (look, request) = rig.take();
    let seen = rig.store.apply(rig.now, &request); // zz is there
    rig.store.delete(b"locks/a/zz");
    rig.news(last_event(&rig.store));
    rig.answer(look, seen);
    assert_eq!(rig.granted(1).owned[0].revision, rig.store.revision());
}

/// An operator deletes it, and the watch tells that before the put is answered: what others make of it must not become two
/// owners.
#[test]
fn a_key_that_went_before_its_put_was_answered_is_not_counted_on() {
    let mut rig = watching();
    rig.contend("locks/a/zx");
    rig.acquire(2, "locks/a", Wait::Forever);
    let (put, request) = rig.take_puts();
    let answer = rig.store.apply(rig.now, &request);
    rig.store.delete(b"locks/a/a1");
    rig.news(last_event(&rig.store));
    rig.contend("locks/a/zz");
    rig.answer(put, answer);
    rig.store.delete(b"locks/a/zx");
    rig.news(last_event(&rig.store));
    rig.serve();
    assert!(rig.told(2).is_none(), "another is before it now");
    rig.store.delete(b"locks/a/zz");
    rig.news(last_event(&rig.store));
    rig.serve();
    rig.granted(2);
}

/// Others contend, and there are deeper keys too.
#[test]
fn one_try_of_a_name_that_was_contended_is_refused_at_once() {
    let mut rig = watching();
    rig.contend("locks/a/b/c");
    rig.contend("locks/a/zx");
    rig.acquire(2, "locks/a", Wait::Once);
    rig.serve();
    assert!(matches!(rig.refused(2), Refused::Held { .. }));
}

/// Each who watches all is told of all: deep in the queue one watches the next alone (rule P15).
#[test]
fn deep_in_the_queue_only_the_predecessor_is_watched() {
    let mut rig = Rig::warm();
    let keys: Vec<String> = (10..30).map(|n| format!("locks/a/z{n}")).collect();
    for key in &keys {
        rig.contend(key);
    }
    rig.acquire(1, "locks/a", Wait::Forever);
    rig.serve();
    let prefix = |rig: &Rig| rig.core.queues["locks/a"].watch.clone().unwrap().prefix;
    assert_eq!(&*prefix(&rig), "locks/a/z29");
    for key in &keys[..15] {
        rig.store.delete(key.as_bytes());
    }
    // The last gives up: that is not our turn, and now we are near the head.
    rig.store.delete(b"locks/a/z29");
    rig.news(last_event(&rig.store));
    rig.serve();
    assert!(rig.told(1).is_none());
    assert_eq!(&*prefix(&rig), "locks/a/");
    for key in &keys[15..19] {
        rig.store.delete(key.as_bytes());
        rig.news(last_event(&rig.store));
    }
    rig.granted(1);
}

/// Far back in the queue: these go, and we hear of the last of them. What is sent then.
fn after_the_last(rig: &mut Rig, gone: &[String]) -> (RequestId, Request) {
    for key in gone {
        rig.store.delete(key.as_bytes());
    }
    rig.news(last_event(&rig.store));
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
    assert!(rig.told(1).is_none());
    rig
}

fn operations(request: &Request) -> &[Op] {
    match request {
        Request::Txn(txn) => &txn.then,
        other => panic!("{other:?}"),
    }
}

/// Most likely nobody is left.
#[test]
fn once_it_has_gone_one_range_tells_whose_turn_it_is() {
    let mut rig = far_back(&["locks/a"]);
    let (look, request) = after_the_last(&mut rig, &twenty());
    assert!(matches!(
        operations(&request),
        [Op::Range { values: false, .. }]
    ));
    let answer = rig.store.apply(rig.now, &request);
    rig.answer(look, answer);
    rig.granted(1);
}

/// It was a waiter that gave up: that it has gone proves nothing (rule P14), nor who owns the name.
#[test]
fn if_it_had_given_up_the_owner_is_read_anew() {
    let mut rig = far_back(&["locks/a"]);
    let (look, request) = after_the_last(&mut rig, &twenty()[19..]);
    let answer = rig.store.apply(rig.now, &request);
    rig.answer(look, answer);
    let (look, request) = rig.take();
    assert_eq!(operations(&request).len(), 3);
    let answer = rig.store.apply(rig.now, &request);
    rig.answer(look, answer);
    assert!(rig.sent.is_empty() && rig.told(1).is_none());
    assert!(rig.core.queues["locks/a"].owner.is_some());
    assert_eq!(
        &*rig.core.queues["locks/a"].watch.as_ref().unwrap().prefix,
        "locks/a/z28"
    );
}

/// The keys of one transaction are equally old, and stand in no order.
#[test]
fn a_deeper_name_of_the_same_call_hides_nothing() {
    let mut rig = far_back(&["locks/a/b", "locks/a"]);
    let (look, request) = after_the_last(&mut rig, &twenty());
    assert_eq!(operations(&request).len(), 1);
    let answer = rig.store.apply(rig.now, &request);
    rig.answer(look, answer);
    rig.granted(1);
    assert!(rig.sent.is_empty(), "nothing is put anew: {:?}", rig.sent);
}

#[test]
fn a_delete_of_an_earlier_incarnation_is_ignored() {
    let mut rig = third_in_line();
    let created = rig.slot("locks/a").created().unwrap();
    for key in ["locks/a/zz", "locks/a/a1"] {
        rig.news(WatchEvent::Changed(Event::Delete {
            key: key.into(),
            revision: created - 1,
        }));
        assert!(rig.sent.is_empty(), "nothing is read again");
    }
    assert_eq!(rig.slot("locks/a").created(), Some(created));
}

#[test]
fn an_answer_to_a_look_at_an_earlier_incarnation_is_ignored() {
    let mut rig = Rig::warm();
    let lease = rig.contend("locks/a/zz");
    rig.acquire(1, "locks/a", Wait::Forever);
    rig.serve();
    rig.pass(super::SOON);
    let (look, request) = rig.take();
    rig.store.revoke(lease);
    let seen = rig.store.apply(rig.now, &request);
    // While the answer travels our key goes, another comes first, and ours comes again.
    rig.store.delete(b"locks/a/a1");
    rig.news(last_event(&rig.store));
    rig.contend("locks/a/zz");
    let (put, request) = rig.take_puts();
    let answer = rig.store.apply(rig.now, &request);
    rig.answer(put, answer);
    rig.answer(look, seen);
    rig.serve();
    assert!(rig.told(1).is_none());
}

#[test]
fn deeper_keys_do_not_block() {
    let mut rig = Rig::warm();
    rig.contend("locks/a/b/c");
    rig.acquire(1, "locks/a", Wait::Forever);
    rig.serve();
    rig.granted(1);
    rig.contend("locks/b/b/c");
    rig.acquire(2, "locks/b", Wait::Once);
    rig.serve();
    rig.granted(2);
}

#[test]
fn one_try_behind_another_child_is_refused_with_its_record() {
    for deeper in [false, true] {
        let mut holder = Rig::warm();
        if deeper {
            holder.contend("locks/a/b/c");
        }
        holder.acquire(7, "locks/a", Wait::Forever);
        holder.serve();
        holder.granted(7);

        let mut rig = Rig::new();
        rig.store = holder.store;
        rig.acquire(1, "locks/a", Wait::Once);
        rig.serve();
        let Refused::Held {
            holder: Some(record),
            ..
        } = rig.refused(1)
        else {
            panic!("not held")
        };
        assert_eq!(&*record, b"call 7");
        assert!(
            rig.core.queues.is_empty() || matches!(rig.slot("locks/a"), Slot::Free),
            "nothing is left"
        );
        let second = rig.core.leases.values().next().map(|l| l.id).unwrap();
        assert!(!rig.has(&format!("locks/a/{second:x}")));
    }
}

#[test]
fn a_silent_watch_is_made_up_for_by_reading() {
    let mut rig = third_in_line();
    rig.live(super::SOON * 4);
    rig.store.delete(b"locks/a/zz");
    rig.store.delete(b"locks/a/zy");
    rig.live(super::SOON * 15);
    rig.granted(1);
}

#[test]
fn a_waiter_whose_key_was_put_under_another_lease_takes_it_back_and_still_gets_its_turn() {
    let mut rig = third_in_line();
    let created = rig.slot("locks/a").created();
    let foreign = rig.contend("locks/a/a1");
    rig.live(super::SOON * 15);
    assert_ne!(
        rig.store.kv(b"locks/a/a1".as_slice()).unwrap().lease,
        foreign
    );
    rig.store.delete(b"locks/a/zz");
    rig.store.delete(b"locks/a/zy");
    rig.live(super::SOON * 15);
    assert_eq!(Some(rig.granted(1).owned[0].created), created);
}

#[test]
fn a_late_answer_to_a_repair_does_not_touch_the_next_incarnation() {
    let mut rig = third_in_line();
    rig.contend("locks/a/a1");
    rig.news(last_event(&rig.store));
    let (repair, _) = rig.take();
    // Deleted meanwhile, put again, and granted.
    for key in ["locks/a/a1", "locks/a/zy", "locks/a/zz"] {
        rig.store.delete(key.as_bytes());
    }
    let gone = rig.store.revision();
    rig.news(WatchEvent::Changed(Event::Delete {
        key: "locks/a/a1".into(),
        revision: gone,
    }));
    rig.serve();
    rig.granted(1);
    let refused = etcd_locked_core::TxnAnswer {
        revision: gone,
        succeeded: false,
        answers: Vec::new(),
    };
    rig.answer(repair, Ok(etcd_locked_core::Response::Txn(refused)));
    assert!(rig.told(1).is_none());
}

#[test]
fn a_waiter_that_gives_up_is_told_whom_it_waited_for() {
    let mut rig = Rig::warm();
    rig.contend("locks/a/zz");
    rig.acquire(1, "locks/a", Wait::For(super::SOON));
    rig.serve();
    rig.live(super::SOON);
    assert!(matches!(
        rig.told(1),
        Some(Output::Refused {
            why: Refused::Timeout {
                holder: Some(_),
                ..
            },
            ..
        })
    ));
    assert!(!rig.has("locks/a/a1"));
}
