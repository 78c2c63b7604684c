//! Hand-overs: a lock passes from call to call inside a process (rules P22, P23).

use std::time::Duration;

use etcd_locked_core::{Grant, Key, LossCause, Output, Owner, Refused, Release, Wait};
use etcd_locked_sim::etcd::unknown;

use crate::CallId;
use crate::SOON;
use crate::rig::{Rig, TTL, deletes, reads};

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
    assert!(matches!(rig.output(call), Some(Output::Released { result: Ok(()), .. })));
    rig.granted(call + 1)
}

/// The call ends, and its key goes.
fn ends_for_good(rig: &mut Rig, call: CallId) {
    rig.release(call);
    assert!(rig.output(call).is_none() && rig.output(call + 1).is_none());
    let deleted = rig.sent.iter().flat_map(|(_, request)| deletes(request));
    assert_eq!(deleted.collect::<Vec<_>>(), ["locks/a/a1"]);
}

fn reads_sent(rig: &Rig) -> usize {
    rig.sent.iter().filter(|(_, sent)| reads(sent)).count()
}

#[test]
fn hand_over_passes_the_key_without_a_request() {
    let mut rig = chain(2);
    let before = rig.created(A);
    for call in 0..2 {
        let owned = pass_on(&mut rig, call).owned;
        assert_eq!(Some(owned[0].created), before);
        assert_eq!(owned[0].revision, owned[0].created);
        assert_eq!(u64::from(owned[0].handover), call + 1);
        assert!(rig.sent.is_empty());
    }
    rig.release(2);
    let owned = rig.hold(3, A).owned;
    assert!(owned[0].revision > before.expect("a value") && owned[0].handover == 0);
}

#[test]
fn fenced_lock_is_not_handed_over() {
    let mut rig = chain(1);
    rig.release_fenced(0);
    assert!(rig.output(1).is_none() && rig.sent.len() == 1);
    rig.serve();
    assert_eq!(rig.granted(1).owned[0].handover, 0);
}

#[test]
fn lock_is_not_handed_to_a_call_of_another_ttl() {
    let mut rig = chain(0);
    rig.acquire_for(1, A, Wait::Forever, TTL + 1);
    ends_for_good(&mut rig, 0);
    rig.serve();
    assert_eq!(&*rig.granted(1).owned[0].key, "locks/a/a2");
}

#[test]
fn lock_is_not_handed_over_late_in_its_lease() {
    let mut rig = chain(1);
    rig.pass(Duration::from_secs(TTL as u64) * 6 / 10);
    ends_for_good(&mut rig, 0);
    rig.serve();
    rig.granted(1);
}

#[test]
fn lost_lock_is_not_handed_over() {
    for by_lease in [true, false] {
        let mut rig = chain(1);
        let before = rig.created(A);
        rig.live(Duration::from_secs(2));
        if by_lease {
            rig.store.revoke(0xa1);
        } else {
            rig.store.delete(b"locks/a/a1");
        }
        rig.report();
        rig.serve();
        rig.lost(0);
        rig.give_back(0);
        assert!(Some(rig.granted(1).owned[0].created) > before);
    }
}

#[test]
fn lock_that_has_run_out_unnoticed_is_not_handed_over() {
    let mut rig = chain(1);
    rig.now = rig.now + Duration::from_secs(TTL as u64);
    rig.release(0);
    assert!(rig.output(1).is_none());
}

#[test]
fn lock_of_a_retired_session_is_not_handed_over() {
    let mut rig = chain(1);
    rig.store.delete(b"locks%s/a1");
    rig.hold(9, B);
    ends_for_good(&mut rig, 0);
    rig.serve();
    assert_eq!(&*rig.granted(1).owned[0].key, "locks/a/a2");
}

#[test]
fn lock_is_released_when_its_token_can_count_no_further() {
    let mut rig = Rig::warm();
    let last = u64::from(u16::MAX);
    rig.hold(0, A);
    for call in 0..last {
        rig.acquire(call + 1, A, Wait::Forever);
        assert_eq!(u64::from(pass_on(&mut rig, call).owned[0].handover), call + 1);
        rig.serve();
    }
    rig.acquire(last + 1, A, Wait::Forever);
    ends_for_good(&mut rig, last);
}

#[test]
fn loss_after_a_hand_over_reaches_the_new_holder() {
    let mut rig = chain(1);
    pass_on(&mut rig, 0);
    rig.live(Duration::from_secs(2));
    rig.store.delete(b"locks/a/a1");
    rig.report();
    rig.serve();
    assert_eq!(rig.lost(1), LossCause::Gone);
    assert!(rig.output(0).is_none());
}

#[test]
fn refused_try_names_the_holder_after_a_hand_over() {
    let mut rig = chain(1);
    pass_on(&mut rig, 0);
    rig.acquire(2, A, Wait::Once);
    let Refused::Held { owner: Some(Owner { record, .. }), .. } = rig.refused(2) else {
        panic!("no holder")
    };
    assert_eq!(&*record, b"call 1");
}

#[test]
fn key_held_for_a_second_through_hand_overs_is_watched() {
    let mut rig = chain(20);
    for call in 0..20 {
        assert_eq!(!rig.watched().is_empty(), call >= 10, "{call}");
        rig.live(Duration::from_millis(100));
        pass_on(&mut rig, call);
    }
}

/// A read of it shows all keys below it (rule P2).
#[test]
fn name_with_many_others_below_is_read_once_a_second() {
    let mut rig = chain(40);
    for other in 0..100 {
        rig.contend(&format!("locks/a/{other}/zz"));
    }
    let mut reads = 0;
    for call in 0..40 {
        pass_on(&mut rig, call);
        rig.pass(Duration::from_millis(50));
        while let Some(request) = rig.sent.pop_front() {
            reads += usize::from(crate::rig::reads(&request.1));
            rig.carry_out(request);
        }
    }
    assert!((1..=4).contains(&reads), "{reads} reads in two seconds");
    assert_eq!(rig.crowded, [Key::from("locks/a")]);
}

#[test]
fn key_is_handed_only_to_a_call_with_the_same_names() {
    for names in [&[A][..], &[A, B, C], &[B, C]] {
        let mut rig = Rig::warm();
        let rank = rig.hold_all(1, &[A, B]).owned[0].created;
        rig.acquire_all(2, names, Wait::Forever);
        rig.release(1);
        assert!(rig.output(2).is_none(), "{names:?}");
        rig.serve();
        let owned = rig.granted(2).owned;
        assert!(owned.iter().all(|it| it.created > rank && it.handover == 0));
    }
}

#[test]
fn hand_over_overtakes_no_call_of_the_process() {
    let mut rig = Rig::warm();
    rig.acquire(9, C, Wait::Forever);
    rig.queue(1, A);
    rig.granted(9);
    rig.granted(1);
    rig.acquire_all(2, &[A, C], Wait::Forever);
    rig.acquire(3, A, Wait::Forever);
    rig.give_back(1);
    assert!(rig.output(3).is_none() && rig.output(2).is_none());
    rig.give_back(9);
    rig.granted(2);
}

#[test]
fn hand_overs_go_on_with_a_read_now_and_then() {
    let mut rig = chain(35);
    let mut asked = Vec::new();
    for call in 0..35 {
        rig.pass(Duration::from_millis(1));
        pass_on(&mut rig, call);
        if reads_sent(&rig) > 0 {
            asked.push(call + 1);
        }
        rig.serve();
    }
    assert_eq!(asked, [10, 20, 30], "hand-overs");
}

#[test]
fn hand_overs_end_when_another_process_waits() {
    let mut rig = chain(10);
    rig.contend("locks/a/zz");
    pass_on(&mut rig, 0);
    assert_eq!(reads_sent(&rig), 0);
    rig.pass(Duration::from_millis(10));
    pass_on(&mut rig, 1);
    assert_eq!(reads_sent(&rig), 1);
    pass_on(&mut rig, 2); // not heard yet
    rig.serve();
    ends_for_good(&mut rig, 3);
    rig.serve();
    assert!(rig.output(4).is_none(), "it queues behind the other");
    rig.store.delete(b"locks/a/zz");
    rig.live(SOON);
    assert_eq!(rig.granted(4).owned[0].handover, 0);
}

#[test]
fn read_among_deeper_keys_sees_who_contends() {
    for waits in [true, false] {
        let mut rig = chain(5);
        rig.contend("locks/a/deep/er");
        if waits {
            rig.contend("locks/a/zz");
        }
        rig.contend("locks/a/even/deep/er");
        rig.pass(Duration::from_millis(10));
        pass_on(&mut rig, 0);
        rig.serve();
        if waits {
            ends_for_good(&mut rig, 1);
        } else {
            pass_on(&mut rig, 1);
        }
    }
}

#[test]
fn hand_overs_end_a_second_after_the_last_answer() {
    let mut rig = chain(10);
    rig.pass(Duration::from_millis(10));
    pass_on(&mut rig, 0);
    for call in 1..5 {
        rig.pass(Duration::from_millis(240));
        rig.fail_all(unknown);
        pass_on(&mut rig, call);
    }
    rig.pass(Duration::from_millis(240));
    rig.release(5);
    assert!(rig.output(5).is_none() && rig.output(6).is_none());
    // Exchanges have failed: nothing is sent before etcd is back.
    rig.fail_all(unknown);
    rig.pass(Duration::from_secs(1));
    rig.come_back();
    let deleted = rig.sent.iter().flat_map(|(_, request)| deletes(request));
    assert_eq!(deleted.collect::<Vec<_>>(), ["locks/a/a1"]);
}

#[test]
fn only_nested_calls_take_over_in_a_shutdown() {
    let mut rig = chain(1);
    rig.hold(8, B);
    rig.acquire_inside(2, A, 8);
    rig.shut_down(SOON);
    assert!(matches!(rig.refused(1), Refused::ShuttingDown));
    rig.release(0);
    rig.granted(2);
    rig.live(SOON);
    assert_eq!(rig.lost(2), LossCause::Shutdown);
    rig.release(2);
    rig.give_back(8);
    assert!(rig.is_finished());
}

#[test]
fn cancelled_call_takes_nothing_over() {
    let mut rig = chain(2);
    rig.cancel(1);
    rig.release(0);
    rig.granted(2);
    assert!(rig.output(1).is_none());
}

#[test]
fn timers_do_not_pile_up_during_hand_overs() {
    let mut rig = chain(400);
    for call in 0..400 {
        rig.live(Duration::from_millis(50));
        pass_on(&mut rig, call);
    }
    rig.serve();
    assert!(rig.core.next_timeout().is_some());
    assert!(rig.core.pending().0 < 20, "{:?}", rig.core.pending());
}

fn release_lingering(rig: &mut Rig, call: CallId) {
    rig.release_as(call, Release::Lingering, false);
}

#[test]
fn lingering_key_serves_the_next_call_without_a_request() {
    let mut rig = Rig::warm();
    let first = rig.hold(1, A);
    release_lingering(&mut rig, 1);
    rig.acquire(2, A, Wait::Once);
    assert!(rig.sent.is_empty(), "without a word to etcd");
    let second = rig.granted(2);
    assert_eq!(second.owned[0].created, first.owned[0].created);
    assert_eq!((first.owned[0].handover, second.owned[0].handover), (0, 1));
}

#[test]
fn lingering_key_goes_after_a_moment() {
    let mut rig = Rig::warm();
    rig.hold(1, A);
    release_lingering(&mut rig, 1);
    rig.pass(Duration::from_micros(900));
    rig.serve();
    assert!(rig.has("locks/a/a1"));
    rig.pass(Duration::from_micros(2_100));
    rig.serve();
    assert!(!rig.has("locks/a/a1"));
    assert!(rig.is_idle());
}

#[test]
fn lingering_keys_go_together() {
    let mut rig = Rig::warm();
    let names = ["locks/a", "locks/b", "locks/c"];
    for (call, name) in (1..).zip(names) {
        rig.hold(call, name);
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

/// No call has it any more, so it keeps no call from other names.
#[test]
fn lingering_key_goes_at_once_for_a_group() {
    let mut rig = Rig::warm();
    rig.hold(1, A);
    release_lingering(&mut rig, 1);
    rig.hold_all(2, &[A, "locks/b"]);
}

#[test]
fn timers_do_not_pile_up_while_a_key_lingers() {
    let mut rig = Rig::warm();
    let wait = Wait::For(Duration::from_secs(3_600));
    rig.acquire(1, A, wait);
    rig.serve();
    rig.granted(1);
    let before = rig.core.pending().0;
    for call in 2..500 {
        release_lingering(&mut rig, call - 1);
        rig.acquire(call, A, wait);
        rig.serve();
        rig.granted(call);
    }
    assert!(rig.core.pending().0 <= before + 3, "{:?}", rig.core.pending());
}
