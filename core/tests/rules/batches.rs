//! How many transactions are under way, and what goes in one (rule P7).

use std::time::Duration;

use etcd_locked_core::{Mode, Release, Wait};
use etcd_locked_sim::etcd::unknown;

use crate::rig::{Rig, deletes, puts};

/// So many calls of a name each come at once.
fn calls(count: u64) -> Rig {
    let mut rig = Rig::warm();
    for call in 0..count {
        rig.acquire(call, &format!("locks/{call}"), Wait::Forever);
    }
    rig
}

/// How many keys each transaction puts that is under way.
fn travelling(rig: &Rig) -> Vec<usize> {
    let requests = rig.sent.iter();
    requests.map(|(_, request)| puts(request).len()).collect()
}

#[test]
fn transaction_goes_once_it_carries_as_much_as_travels() {
    let mut rig = calls(64);
    assert_eq!(travelling(&rig), [1, 1, 2, 4, 8, 16, 32]);
    rig.acquire(64, "locks/64", Wait::Forever);
    rig.acquire(65, "locks/65", Wait::Forever);
    assert_eq!(rig.sent.len(), 7, "two are fewer than 64");
    for _ in 0..6 {
        let next = rig.take();
        rig.carry_out(next);
    }
    assert_eq!(travelling(&rig), [32]);
    let next = rig.take();
    rig.carry_out(next);
    assert_eq!(travelling(&rig), [2]);
}

#[test]
fn full_transaction_goes_whatever_travels() {
    let mut rig = calls(64 + 64 + 63);
    assert_eq!(travelling(&rig), [1, 1, 2, 4, 8, 16, 32, 64]);
    rig.acquire(191, "locks/191", Wait::Forever);
    assert_eq!(travelling(&rig), [1, 1, 2, 4, 8, 16, 32, 64, 64]);
}

#[test]
fn only_so_many_are_under_way_for_any_number_of_calls() {
    let mut rig = calls(1_000);
    assert_eq!(rig.sent.len(), 16);
    rig.serve();
    for call in 0..1_000 {
        rig.granted(call);
    }
}

#[test]
fn call_after_the_answer_to_the_last_goes_alone() {
    let mut rig = Rig::warm();
    for call in 0..3 {
        rig.acquire(call, &format!("locks/{call}"), Wait::Forever);
        assert_eq!(travelling(&rig), [1]);
        rig.serve();
    }
}

/// The core wants a tick now; it comes.
#[track_caller]
fn tick(rig: &mut Rig) {
    assert!(rig.is_due());
    rig.pass(Duration::ZERO);
}

#[test]
fn what_comes_before_the_sending_thread_wakes_up_goes_together() {
    let mut rig = Rig::deferring(None);
    for call in 0..5 {
        rig.acquire(call, &format!("locks/{call}"), Wait::Forever);
    }
    assert!(rig.sent.is_empty());
    tick(&mut rig);
    assert_eq!(travelling(&rig), [5]);
    rig.serve();
    for call in 0..5 {
        rig.granted(call);
        rig.release(call);
    }
    assert!(rig.sent.is_empty());
    tick(&mut rig);
    assert_eq!(rig.sent.len(), 1);
    rig.serve();
    assert!(rig.is_idle());
}

#[test]
fn no_thread_is_woken_where_nothing_can_be_sent() {
    let mut rig = Rig::deferring(None);
    rig.acquire(1, "locks/a", Wait::Forever);
    tick(&mut rig);
    rig.serve();
    rig.granted(1);
    rig.acquire(2, "locks/a", Wait::Forever);
    assert!(!rig.is_due(), "it waits for the first");
    rig.release(1);
    rig.granted(2);
    assert!(!rig.is_due(), "it was handed over");

    rig.acquire(3, "locks/b", Wait::Forever);
    rig.acquire(4, "locks/c", Wait::Forever);
    tick(&mut rig);
    rig.acquire(5, "locks/d", Wait::Forever);
    assert!(!rig.is_due(), "two travel");
}

#[test]
fn put_is_sent_though_the_next_call_needs_another_session() {
    let mut rig = Rig::deferring(1);
    rig.acquire(1, "locks/a", Wait::Forever);
    rig.acquire(2, "locks/b", Wait::Forever);
    tick(&mut rig);
    rig.serve();
    rig.granted(1);
}

#[test]
fn call_after_a_silence_asks_etcd_for_its_lock_alone() {
    let mut rig = Rig::deferring(None);
    rig.pass(Duration::from_millis(2_500));
    rig.acquire(1, "locks/a", Wait::Forever);
    assert!(rig.sent.is_empty());
    tick(&mut rig);
    assert_eq!(travelling(&rig), [1]);
}

#[test]
fn stuck_transactions_hold_nothing_back_once_etcd_answers() {
    let mut rig = calls(64);
    let (first, _) = rig.take_put();
    rig.answer(first, Err(unknown()));
    rig.pass(Duration::from_millis(200));
    rig.come_back();
    let barrier = rig.sent.pop_back().expect("a barrier");
    rig.carry_out(barrier);
    let before = rig.sent.len();
    rig.acquire(100, "locks/100", Wait::Forever);
    assert_eq!(rig.sent.len(), before + 1, "63 travel, and may never arrive");
}

/// Call 1 gives `locks/a` back, and call 2 wants `locks/b`: neither request has been sent.
fn release_and_acquisition() -> Rig {
    let mut rig = Rig::deferring(None);
    rig.acquire(1, "locks/a", Wait::Forever);
    tick(&mut rig);
    rig.serve();
    rig.granted(1);
    rig.release(1);
    rig.acquire(2, "locks/b", Wait::Forever);
    rig
}

#[test]
fn deletion_goes_with_the_put_that_is_sent() {
    let mut rig = release_and_acquisition();
    tick(&mut rig);
    let (id, request) = rig.take();
    assert!(rig.sent.is_empty(), "one transaction");
    assert_eq!((puts(&request).len(), deletes(&request).len()), (1, 1));
    rig.carry_out((id, request));
    rig.granted(2);
    assert!(rig.released(1).is_ok());
    assert!(!rig.has("locks/a/a1"));
}

/// The reader's key is older, but goes in the transaction that puts the writer's: no watch would report that any more.
#[test]
fn put_does_not_wait_for_a_key_that_goes_with_it() {
    let mut rig = Rig::deferring(None);
    rig.share(1, "locks/a", Mode::Shared, Wait::Forever);
    tick(&mut rig);
    rig.serve();
    rig.granted(1);
    rig.release(1);
    rig.acquire(2, "locks/a", Wait::Forever);
    tick(&mut rig);
    let (id, request) = rig.take();
    assert_eq!((puts(&request).len(), deletes(&request).len()), (1, 1));
    rig.carry_out((id, request));
    rig.granted(2);
}

#[test]
fn put_goes_by_itself_where_a_key_to_delete_has_gone() {
    let mut rig = release_and_acquisition();
    tick(&mut rig);
    rig.store.delete(b"locks/a/a1");
    rig.serve();
    rig.granted(2);
    assert!(rig.released(1).is_ok());
}

#[test]
fn refused_deletion_refuses_no_put() {
    let mut rig = release_and_acquisition();
    rig.store.denied = Some("locks/a/");
    tick(&mut rig);
    rig.serve();
    rig.granted(2);
    rig.live(Duration::from_secs(3));
    assert!(rig.released(1).is_err());
}

#[test]
fn deletion_without_an_answer_is_sent_again_by_itself() {
    let mut rig = release_and_acquisition();
    tick(&mut rig);
    rig.fail_all(unknown);
    rig.live(Duration::from_secs(1));
    rig.granted(2);
    assert!(rig.released(1).is_ok());
    assert!(!rig.has("locks/a/a1"));
}

#[test]
fn what_has_lingered_goes_with_the_next_put() {
    let mut rig = Rig::warm();
    rig.hold(1, "locks/a");
    rig.pass(Duration::from_micros(500));
    rig.release_as(1, Release::Lingering, false);
    rig.pass(Duration::from_micros(1_200)); // it would go by itself 300 µs later
    assert!(rig.sent.is_empty());
    rig.acquire(2, "locks/b", Wait::Forever);
    let (_, request) = rig.take();
    assert_eq!((puts(&request).len(), deletes(&request).len()), (1, 1));
}

/// Found by review: while other calls gave locks back, a denied put never went alone, and its caller was never refused.
#[test]
fn no_deletion_is_added_to_what_is_put_again() {
    let mut rig = Rig::deferring(None);
    rig.acquire(3, "locks/c", Wait::Forever);
    tick(&mut rig);
    rig.serve();
    rig.granted(3);
    rig.store.denied = Some("locks/b");
    rig.acquire(1, "locks/b", Wait::Forever);
    rig.acquire(2, "locks/a", Wait::Forever);
    tick(&mut rig);
    let both = rig.take_put();
    rig.release(3);
    rig.carry_out(both);
    for _ in 0..2 {
        let (id, request) = rig.take_put();
        assert!(deletes(&request).is_empty());
        rig.carry_out((id, request));
    }
    rig.refused(1);
    rig.granted(2);
}
