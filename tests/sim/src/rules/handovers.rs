//! A lock that is handed on inside the process (rules P22, P23).

use std::time::Duration;

use super::SOON;
use super::rig::{Rig, TTL, deletes, puts};
use etcd_locked_core::queue::Slot;
use etcd_locked_core::{Request, WatchEvent};
use etcd_locked_core::{CallId, Grant, Input, Output, Refused, Release};
use etcd_locked_core::LossCause;
use etcd_locked_core::Wait;
use crate::world::etcd::unknown;

const A: &str = "locks/a";
const B: &str = "locks/b";
const C: &str = "locks/c";

/// Call 0 holds `a`, and so many stand behind it.
fn chain(waiting: u64) -> Rig {
    let mut rig = Rig::warm();
    for call in 0..=waiting {
        rig.acquire(call, A, Wait::Forever);
    }
    rig.serve();
    rig.granted(0);
    rig
}

/// The call ends, and the next has the lock in the same step.
fn pass_on(rig: &mut Rig, call: CallId) -> Grant {
    rig.release(call);
    assert!(matches!(
        rig.told(call),
        Some(Output::Released { result: Ok(()), .. })
    ));
    rig.granted(call + 1)
}

/// The call ends, and its key goes.
fn ends_for_good(rig: &mut Rig, call: CallId) {
    rig.release(call);
    assert!(rig.told(call).is_none() && rig.told(call + 1).is_none());
    let deleted = rig.sent.iter().flat_map(|(_, request)| deletes(request));
    assert_eq!(deleted.collect::<Vec<_>>(), ["locks/a/a1"]);
}

fn looks(rig: &Rig) -> usize {
    let reads = |request: &Request| {
        matches!(request, Request::Txn(txn) if !txn.then.is_empty())
            && puts(request).is_empty()
            && deletes(request).is_empty()
    };
    rig.sent
        .iter()
        .filter(|(_, request)| reads(request))
        .count()
}

#[test]
fn the_next_in_the_process_gets_the_same_key_and_etcd_hears_nothing() {
    let mut rig = chain(2);
    let before = rig.slot(A).created();
    for call in 0..2 {
        let owned = pass_on(&mut rig, call).owned;
        assert_eq!(Some(owned[0].created), before);
        assert_eq!(owned[0].revision, owned[0].created);
        assert_eq!(u64::from(owned[0].handover), call + 1);
        assert!(rig.sent.is_empty());
    }
    rig.release(2);
    rig.acquire(3, A, Wait::Forever);
    rig.serve();
    let owned = rig.granted(3).owned;
    assert!(owned[0].revision > before.unwrap() && owned[0].handover == 0);
}

#[test]
fn a_lock_whose_fence_was_taken_is_not_handed_on() {
    let mut rig = chain(1);
    rig.release_fenced(0);
    assert!(rig.told(1).is_none() && rig.sent.len() == 1);
    rig.serve();
    assert_eq!(rig.granted(1).owned[0].handover, 0);
}

#[test]
fn nor_is_one_to_a_call_of_another_ttl() {
    let mut rig = chain(0);
    rig.acquire_for(1, A, Wait::Forever, TTL + 1);
    ends_for_good(&mut rig, 0);
    rig.serve();
    assert_eq!(&*rig.granted(1).owned[0].key, "locks/a/a2");
}

#[test]
fn nor_on_a_lease_with_less_than_half_its_time() {
    let mut rig = chain(1);
    rig.pass(Duration::from_secs(TTL as u64) * 6 / 10);
    ends_for_good(&mut rig, 0);
    rig.serve();
    rig.granted(1);
}

#[test]
fn nor_one_that_was_lost() {
    for by_lease in [true, false] {
        let mut rig = chain(1);
        let before = rig.slot(A).created();
        if by_lease {
            rig.store.revoke(0xa1);
        } else {
            rig.store.delete(b"locks/a/a1");
        }
        rig.live(Duration::from_secs(9));
        rig.lost(0);
        rig.release(0);
        rig.serve();
        assert!(Some(rig.granted(1).owned[0].created) > before);
    }
}

#[test]
fn nor_one_that_has_run_out_though_nobody_has_said_so() {
    let mut rig = chain(1);
    rig.now = rig.now + Duration::from_secs(TTL as u64);
    rig.tell(Input::Release {
        call: 0,
        how: Release::Confirmed,
        fenced: false,
    });
    assert!(rig.told(1).is_none());
}

#[test]
fn nor_one_whose_key_a_stranger_has_touched() {
    let mut rig = chain(1);
    rig.live(Duration::from_secs(2));
    let foreign = rig.contend("locks/a/a1");
    rig.live(Duration::from_secs(9));
    let kv = rig.store.kv(b"locks/a/a1").unwrap();
    assert_ne!(kv.lease, foreign, "repaired");
    ends_for_good(&mut rig, 0);
}

#[test]
fn nor_one_whose_lease_takes_no_more() {
    let mut rig = chain(1);
    rig.store.delete(b"locks%s/a1");
    rig.acquire(9, B, Wait::Forever);
    rig.serve();
    rig.granted(9);
    ends_for_good(&mut rig, 0);
    rig.serve();
    assert_eq!(&*rig.granted(1).owned[0].key, "locks/a/a2");
}

#[test]
fn nor_one_that_was_handed_on_as_often_as_a_token_can_count() {
    let mut rig = chain(2);
    let queue = rig.core.queues.get_mut(A).unwrap();
    if let Slot::Held { run, .. } = &mut queue.slot {
        run.handover = u16::MAX - 1;
    }
    assert_eq!(pass_on(&mut rig, 0).owned[0].handover, u16::MAX);
    ends_for_good(&mut rig, 1);
}

#[test]
fn a_loss_after_a_hand_over_is_told_to_who_holds_it_now() {
    let mut rig = chain(1);
    pass_on(&mut rig, 0);
    rig.store.delete(b"locks/a/a1");
    rig.live(Duration::from_secs(9));
    assert_eq!(rig.lost(1), LossCause::Deleted);
    assert!(rig.told(0).is_none());
}

#[test]
fn the_waiting_are_told_who_holds_it_now() {
    let mut rig = chain(1);
    pass_on(&mut rig, 0);
    rig.acquire(2, A, Wait::Once);
    let Refused::Held {
        holder: Some(record),
        ..
    } = rig.refused(2)
    else {
        panic!("nobody")
    };
    assert_eq!(&*record, b"call 1");
}

#[test]
fn a_key_is_watched_once_it_is_held_for_a_second_through_all_hand_overs() {
    let mut rig = chain(20);
    for call in 0..20 {
        assert_eq!(rig.core.queues[A].watch.is_some(), call >= 10, "{call}");
        rig.live(Duration::from_millis(100));
        pass_on(&mut rig, call);
    }
}

#[test]
fn a_group_hands_each_of_its_locks_to_whom_it_is_all_he_wants() {
    let mut rig = Rig::warm();
    rig.acquire(9, C, Wait::Forever);
    rig.acquire_all(1, &[A, B], Wait::Forever);
    rig.serve();
    rig.granted(9);
    let rank = rig.granted(1).owned[0].created;
    rig.acquire(2, A, Wait::Forever);
    rig.acquire_all(3, &[B, C], Wait::Forever);
    rig.release(1);
    let owned = rig.granted(2).owned;
    assert_eq!((owned[0].created, owned[0].handover), (rank, 1));
    assert!(rig.told(1).is_none(), "one key is still there");
    rig.serve();
    assert!(matches!(
        rig.told(1),
        Some(Output::Released { result: Ok(()), .. })
    ));
    assert!(rig.has("locks/a/a1") && !rig.has("locks/b/a1") && rig.told(3).is_none());
    // A single lock is not enough for the group either.
    rig.release(9);
    assert!(rig.told(3).is_none());
    rig.serve();
    let owned = rig.granted(3).owned;
    assert!(owned[0].created > rank && owned[0].created == owned[1].created);
}

#[test]
fn a_group_takes_over_from_a_group_in_the_order_of_its_names() {
    let mut rig = Rig::warm();
    rig.acquire_all(1, &[A, B, C], Wait::Forever);
    rig.serve();
    let rank = rig.granted(1).owned[0].created;
    rig.acquire_all(2, &[C, A], Wait::Forever);
    rig.acquire(3, B, Wait::Forever);
    rig.release(1);
    let keys: Vec<_> = rig.granted(2).owned.into_iter().map(|o| o.key).collect();
    assert_eq!(keys, ["locks/c/a1".into(), "locks/a/a1".into()]);
    assert_eq!(rig.granted(3).owned[0].created, rank);
    assert!(rig.sent.is_empty());
}

#[test]
fn a_hand_over_overtakes_nobody_in_the_process() {
    let mut rig = Rig::warm();
    rig.acquire(9, C, Wait::Forever);
    rig.acquire(1, A, Wait::Forever);
    rig.serve();
    rig.granted(9);
    rig.granted(1);
    rig.acquire_all(2, &[A, C], Wait::Forever);
    rig.acquire(3, A, Wait::Forever);
    rig.release(1);
    rig.serve();
    assert!(rig.told(3).is_none() && rig.told(2).is_none());
    rig.release(9);
    rig.serve();
    rig.granted(2);
}

#[test]
fn while_nobody_else_waits_it_goes_on_with_a_look_now_and_then() {
    let mut rig = chain(200);
    let mut asked = Vec::new();
    for call in 0..200 {
        pass_on(&mut rig, call);
        if looks(&rig) > 0 {
            asked.push(call + 1);
        }
        rig.serve();
    }
    assert_eq!(asked, [64, 128, 192], "hand-overs");
}

#[test]
fn when_a_look_shows_that_another_process_waits_the_next_release_is_for_good() {
    for by_time in [true, false] {
        let mut rig = chain(70);
        rig.contend("locks/a/zz");
        let mut call = 0;
        while looks(&rig) == 0 {
            if by_time {
                rig.pass(Duration::from_millis(5));
            }
            pass_on(&mut rig, call);
            call += 1;
        }
        assert_eq!(call, if by_time { 4 } else { 64 });
        pass_on(&mut rig, call); // not heard yet
        rig.serve();
        ends_for_good(&mut rig, call + 1);
        rig.serve();
        assert!(rig.told(call + 2).is_none(), "it queues behind the other");
        rig.store.delete(b"locks/a/zz");
        rig.live(SOON);
        assert_eq!(rig.granted(call + 2).owned[0].handover, 0);
    }
}

#[test]
fn a_look_among_deeper_keys_sees_who_waits() {
    for waits in [true, false] {
        let mut rig = chain(70);
        rig.contend("locks/a/deep/er");
        if waits {
            rig.contend("locks/a/zz");
        }
        rig.contend("locks/a/even/deep/er");
        for call in 0..65 {
            pass_on(&mut rig, call);
        }
        rig.serve();
        if waits {
            ends_for_good(&mut rig, 65);
        } else {
            pass_on(&mut rig, 65);
        }
    }
}

#[test]
fn a_watch_tells_of_others_without_a_look() {
    let mut rig = chain(70);
    rig.live(Duration::from_millis(1500)); // it is watched from now on
    pass_on(&mut rig, 0); // the time is up: it is looked
    rig.serve();
    rig.contend("locks/a/zz");
    let events = rig.store.events("locks/a/", rig.store.revision()).unwrap();
    for event in events {
        rig.news(WatchEvent::Changed(event));
    }
    pass_on(&mut rig, 1); // a run is its due all the same
    rig.pass(Duration::from_millis(20));
    ends_for_good(&mut rig, 2);
}

#[test]
fn without_an_answer_others_are_let_in_after_a_second() {
    let mut rig = chain(70);
    for call in 0..64 {
        pass_on(&mut rig, call);
    }
    for call in 64..68 {
        rig.pass(Duration::from_millis(240));
        for (id, _) in std::mem::take(&mut rig.sent) {
            rig.answer(id, Err(unknown()));
        }
        pass_on(&mut rig, call);
    }
    rig.pass(Duration::from_millis(240));
    rig.sent.clear();
    ends_for_good(&mut rig, 68);
}

#[test]
fn in_a_shutdown_only_who_holds_something_takes_over() {
    let mut rig = chain(1);
    rig.acquire(8, B, Wait::Forever);
    rig.serve();
    rig.granted(8);
    rig.acquire_inside(2, A, 8);
    let until = rig.now + SOON;
    rig.tell(Input::Shutdown { until });
    assert!(matches!(rig.refused(1), Refused::ShuttingDown));
    rig.release(0);
    rig.granted(2);
    rig.live(SOON);
    assert_eq!(rig.lost(2), LossCause::Shutdown);
    rig.release(2);
    rig.release(8);
    rig.serve();
    assert!(rig.finished());
}

#[test]
fn a_cancelled_call_is_not_handed_anything() {
    let mut rig = chain(2);
    rig.tell(Input::Cancel { call: 1 });
    rig.release(0);
    rig.granted(2);
    assert!(rig.told(1).is_none());
}

#[test]
fn timers_do_not_pile_up_while_it_is_handed_on() {
    let mut rig = chain(400);
    for call in 0..400 {
        rig.live(Duration::from_millis(50));
        pass_on(&mut rig, call);
    }
    rig.serve();
    assert!(rig.core.next_timeout().is_some());
    assert!(rig.core.timers.len() < 20, "{:?}", rig.core.timers);
}

fn release_lingering(rig: &mut Rig, call: CallId) {
    rig.tell(Input::Release {
        call,
        how: Release::Lingering,
        fenced: false,
    });
}

#[test]
fn what_lingers_is_there_for_whoever_calls_again_at_once() {
    let mut rig = Rig::warm();
    rig.acquire(1, A, Wait::Forever);
    rig.serve();
    let first = rig.granted(1);
    release_lingering(&mut rig, 1);
    rig.acquire(2, A, Wait::Once);
    assert!(rig.sent.is_empty(), "without a word to etcd");
    let second = rig.granted(2);
    assert_eq!(second.owned[0].created, first.owned[0].created);
    assert_eq!((first.owned[0].handover, second.owned[0].handover), (0, 1));
}

#[test]
fn what_lingers_goes_after_a_moment() {
    let mut rig = Rig::warm();
    rig.acquire(1, A, Wait::Forever);
    rig.serve();
    rig.granted(1);
    release_lingering(&mut rig, 1);
    rig.pass(Duration::from_micros(900));
    rig.serve();
    assert!(rig.has("locks/a/a1"));
    rig.pass(Duration::from_micros(2_100));
    rig.serve();
    assert!(!rig.has("locks/a/a1"));
    assert!(rig.core.queues.is_empty() && rig.core.calls.is_empty());
}

#[test]
fn what_lingers_goes_together() {
    let mut rig = Rig::warm();
    let names = ["locks/a", "locks/b", "locks/c"];
    for (call, name) in (1..).zip(names) {
        rig.acquire(call, name, Wait::Forever);
        rig.serve();
        rig.granted(call);
    }
    // Released at different times between two moments of going.
    let late = rig.now.since_boot().subsec_nanos() % 2_000_000;
    rig.pass(Duration::from_nanos((2_000_000 - late).into()));
    for call in 1..=3 {
        release_lingering(&mut rig, call);
        rig.pass(Duration::from_micros(100));
    }
    while rig.sent.is_empty() {
        rig.pass(Duration::from_micros(100));
    }
    let (_, delete) = rig.take();
    assert_eq!(deletes(&delete), ["locks/a/a1", "locks/b/a1", "locks/c/a1"]);
    assert!(rig.sent.is_empty());
}

/// It is nobody's any more, so nobody who wants other names beside it is kept from them.
#[test]
fn what_lingers_goes_at_once_for_a_group() {
    let mut rig = Rig::warm();
    rig.acquire(1, A, Wait::Forever);
    rig.serve();
    rig.granted(1);
    release_lingering(&mut rig, 1);
    rig.acquire_all(2, &[A, "locks/b"], Wait::Forever);
    rig.serve();
    rig.granted(2);
}

#[test]
fn no_timers_pile_up_while_what_lingers_is_handed_on() {
    let mut rig = Rig::warm();
    let wait = Wait::For(Duration::from_secs(3_600));
    rig.acquire(1, A, wait);
    rig.serve();
    rig.granted(1);
    let before = rig.core.timers.len();
    for call in 2..500 {
        release_lingering(&mut rig, call - 1);
        rig.acquire(call, A, wait);
        rig.serve();
        rig.granted(call);
    }
    assert!(rig.core.timers.len() <= before + 3, "{:?}", rig.core.timers);
}
