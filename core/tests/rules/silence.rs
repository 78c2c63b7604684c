//! Silence: what etcd does not say, or says too late, is no answer, and no call waits for it for ever (rules P32, P35).

use std::time::Duration;

use etcd_locked_core::{LossCause, Output, Refused, Request, Wait};
use etcd_locked_sim::etcd::{unavailable, unknown};

use crate::rig::Rig;

/// One predecessor goes, and the other while who is left is being read.
#[test]
fn predecessor_that_goes_during_a_read_is_not_missed() {
    let mut rig = Rig::warm();
    rig.contend("locks/a/zx");
    rig.contend("locks/a/zy");
    rig.queue(1, "locks/a");
    rig.store.delete(b"locks/a/zy");
    rig.report();
    rig.pass(Duration::from_secs(6));
    let (read, request) = rig.take();
    let seen = rig.store.apply(rig.now, &request); // zx is there
    rig.store.delete(b"locks/a/zx");
    rig.report(); // earlier than the answer
    rig.answer(read, seen);
    rig.serve();
    rig.granted(1);
}

#[test]
fn silence_is_never_taken_for_held() {
    for mut rig in [Rig::warm(), Rig::new()] {
        rig.acquire(1, "locks/a", Wait::For(Duration::from_secs(1)));
        rig.pass(Duration::from_secs(1));
        assert!(matches!(rig.refused(1), Refused::Backend(_)));
    }
}

#[test]
fn holder_notices_a_deleted_key_though_its_watch_is_silent() {
    let mut rig = Rig::warm();
    rig.hold(1, "locks/a");
    rig.live(Duration::from_secs(3));
    rig.store.delete(b"locks/a/a1");
    rig.live(Duration::from_secs(66));
    assert_eq!(rig.lost(1), LossCause::Gone);
}

/// Reads that show many keys come without leases (etcd#22209): the holder reads its own key once more, with its lease.
#[test]
fn holder_notices_an_overwritten_key_though_its_watch_is_silent() {
    let mut rig = Rig::warm();
    rig.hold(1, "locks/a");
    rig.live(Duration::from_secs(3));
    rig.contend("locks/a/a1");
    rig.live(Duration::from_secs(66));
    assert_eq!(rig.lost(1), LossCause::Overwritten);
}

#[test]
fn holder_keeps_a_key_that_another_client_wrote_under_its_lease() {
    let mut rig = Rig::warm();
    rig.hold(1, "locks/a");
    rig.acquire(2, "locks/a", Wait::Forever);
    rig.store.put(b"locks/a/a1", 0xa1);
    rig.live(Duration::from_secs(3));
    rig.release(1); // a read shows whether another process waits
    rig.live(Duration::from_secs(1));
    rig.granted(2);
    assert!(rig.output(2).is_none());
}

#[test]
fn key_that_a_barrier_finds_leaves_a_retired_session() {
    let mut rig = Rig::warm();
    rig.hold(1, "locks/long");
    rig.acquire(2, "locks/b", Wait::Forever);
    let (id, put) = rig.take_put();
    rig.store.apply(rig.now, &put).expect("a value"); // applied, unseen
    rig.store.delete(b"locks%s/a1"); // an operator tidies up
    rig.answer(id, Err(unknown()));
    rig.serve();
    rig.live(Duration::from_secs(1));
    rig.granted(2);
    assert!(!rig.has("locks/b/a1"));
    assert!(rig.has("locks/long/a1"), "its body goes on");
}

#[test]
fn calls_that_gave_up_leave_no_names_in_an_outage() {
    let mut rig = Rig::new();
    for call in 0..2_000 {
        let name = format!("locks/orders/{call}");
        rig.acquire(call, &name, Wait::For(Duration::from_millis(100)));
        rig.pass(Duration::from_millis(5));
        rig.fail_all(unavailable);
    }
    let left = rig.core.contenders().count();
    assert!(left < 500, "{left}");
}

/// Nor is what they wanted to put kept by their session, which stays because one call waits on.
#[test]
fn calls_that_gave_up_leave_nothing_to_put_in_an_outage() {
    let mut rig = Rig::new();
    rig.acquire(0, "locks/a", Wait::Forever);
    for call in 1..=2_000 {
        let name = format!("locks/orders/{call}");
        rig.acquire(call, &name, Wait::Forever);
        rig.cancel(call);
        rig.pass(Duration::from_millis(1));
        rig.fail_all(unavailable);
    }
    let kept = format!("{:?}", rig.sessions());
    assert!(kept.len() < 5_000, "{kept}");
    rig.live(Duration::from_secs(6));
    rig.granted(0);
}

#[test]
fn waiter_watches_anew_after_a_wipe() {
    let mut rig = Rig::warm();
    for _ in 0..50 {
        rig.store.put(b"other", 0);
    }
    rig.contend("locks/a/zx");
    rig.queue(1, "locks/a");
    rig.live(Duration::from_secs(1));
    assert_eq!(rig.watches(), 1);
    rig.store.wipe();
    rig.contend("locks/a/zy");
    rig.live(Duration::from_secs(20));
    assert_eq!((rig.watches(), rig.watched()), (2, vec!["locks/a/"]));
}

/// Two leases are opened after a wipe; the first answer that shows it is of the very revision that was known before.
#[test]
fn late_answer_of_lost_history_costs_no_new_session() {
    let mut rig = Rig::warm();
    let known = rig.hold(1, "locks/a").owned[0].revision;
    rig.store.wipe();
    rig.acquire_for(2, "locks/b", Wait::Forever, 5);
    rig.acquire_for(3, "locks/c", Wait::Forever, 6);
    for _ in 0..2 {
        let request = rig.take();
        rig.carry_out(request);
    }
    let (late, request) = rig.take();
    let overtaken = rig.store.apply(rig.now, &request);
    let (barrier, request) = rig.take();
    let barriered = rig.store.apply(rig.now, &request);
    assert_eq!(rig.revision(), known);
    rig.answer(barrier, barriered);
    rig.serve();
    rig.granted(3);
    assert_eq!(rig.lost(1), LossCause::Wiped);
    rig.answer(late, overtaken);
    rig.serve();
    rig.granted(2);
    assert!(rig.output(3).is_none());
}

/// A leader that dies leaves what it was sent unanswered, each for its whole time.
#[test]
fn etcd_is_asked_again_before_all_that_it_was_sent_has_failed() {
    let mut rig = Rig::warm();
    rig.acquire(1, "locks/a", Wait::Forever);
    let (first, _) = rig.take_put();
    rig.acquire(2, "locks/b", Wait::Forever);
    let (second, _) = rig.take_put();
    rig.pass(Duration::from_secs(1));
    assert!(rig.sent.is_empty());

    rig.answer(first, Err(unknown()));
    rig.pass(Duration::from_millis(500));
    assert_eq!(rig.sent.len(), 1, "one at a time");
    rig.answer(second, Err(unknown()));
    rig.pass(Duration::from_millis(500));
    assert_eq!(rig.sent.len(), 1, "one at a time");
    rig.serve();
    rig.granted(1);
    rig.granted(2);
}

/// As when a connection breaks, and another member answers.
#[test]
fn many_failures_at_once_hold_off_no_longer_than_one() {
    let mut rig = Rig::warm();
    for call in 0..64 {
        rig.acquire(call, &format!("locks/{call}"), Wait::Forever);
    }
    rig.fail_all(unknown);
    rig.pass(Duration::from_millis(150));
    assert_eq!(rig.sent.len(), 1, "one at a time");
    rig.serve();
    for call in 0..64 {
        rig.granted(call);
    }
}

/// The connect time-out of the rig.
const CONNECT: Duration = Duration::from_secs(5);

/// How long a call waits for an etcd that is silent from now on.
fn refused_after(rig: &mut Rig, wait: Wait) -> Duration {
    let since = rig.now;
    rig.acquire(9, "locks/a", wait);
    loop {
        match rig.output(9) {
            Some(Output::Refused { why, .. }) => {
                assert!(matches!(why, Refused::Backend(_)), "{why:?}");
                return rig.now - since;
            }
            Some(other) => panic!("{other:?}"),
            None => rig.pass(Duration::from_millis(50)),
        }
        assert!(rig.now - since < CONNECT * 4, "never");
    }
}

/// One rule for calls in every state (rule P32).
#[test]
fn silent_etcd_refuses_each_call_after_the_connect_timeout() {
    let idle = Rig::warm;
    let cold = Rig::new;
    let waiting = || {
        let mut rig = Rig::warm();
        rig.contend("locks/a/zz");
        rig.queue(1, "locks/a");
        rig
    };
    let deleting = || {
        let mut rig = Rig::warm();
        rig.hold(1, "locks/a");
        rig.release(1);
        rig
    };
    for (n, stage) in [idle, cold, waiting, deleting].into_iter().enumerate() {
        for wait in [Wait::Forever, Wait::For(CONNECT * 3)] {
            let took = refused_after(&mut stage(), wait);
            let late = CONNECT + Duration::from_secs(3);
            assert!((CONNECT..late).contains(&took), "{n}: {took:?}");
        }
    }
}

/// Found by an upgrade of three members: the put was lost with the leader, and nothing was asked of the next one.
#[test]
fn unanswered_put_is_not_taken_for_silence() {
    let mut rig = Rig::new();
    rig.acquire_for(1, "locks/a", Wait::Forever, 60);
    let lease = rig.take();
    rig.carry_out(lease);
    let put = rig.take_put();
    let is_probe = |request: &Request| matches!(request, Request::Txn(_));
    for _ in 0..2 {
        rig.pass(CONNECT / 2);
        let probe = rig.take_that(is_probe);
        rig.carry_out(probe);
    }
    rig.pass(CONNECT / 2);
    rig.carry_out(put);
    rig.serve();
    rig.granted(1);
}

#[test]
fn answer_of_etcd_ends_its_silence() {
    let mut rig = Rig::warm();
    rig.contend("locks/a/zz");
    rig.queue(1, "locks/a");
    for _ in 0..3 {
        rig.pass(CONNECT / 2);
        rig.serve();
    }
    assert!(rig.output(1).is_none());
    rig.store.delete(b"locks/a/zz");
    rig.live(CONNECT);
    rig.granted(1);
}

/// Found by torture, as a leader was stopped: a put has three seconds, and connecting to the same member for the barrier two more.
#[test]
fn try_waits_for_the_barrier_that_decides_it() {
    let second = Duration::from_secs(1);
    // etcd answers another request before or after the put is given up; and then the barrier, or not.
    for (is_first, is_answered) in [(true, true), (true, false), (false, true), (false, false)] {
        let mut rig = Rig::warm();
        rig.acquire(1, "locks/a", Wait::Once);
        let (put, _) = rig.take_put();
        rig.acquire(2, "locks/b", Wait::Forever);
        let other = rig.take_put();
        rig.pass(3 * second);
        let answered = |rig: &mut Rig| rig.carry_out(other);
        let given_up = |rig: &mut Rig| rig.answer(put, Err(unknown()));
        if is_first {
            answered(&mut rig);
            given_up(&mut rig);
        } else {
            given_up(&mut rig);
            answered(&mut rig);
        }
        rig.pass(second / 4); // the pause after a failure
        let renewal = rig.take_that(|request| matches!(request, Request::KeepAlive { .. }));
        rig.carry_out(renewal);
        let barrier = rig.take_put();
        rig.pass(CONNECT - 2 * second);
        assert!(rig.output(1).is_none(), "refused, though etcd answers");
        if is_answered {
            rig.carry_out(barrier);
            rig.serve();
            rig.granted(1);
        } else {
            rig.pass(3 * second);
            assert!(matches!(rig.refused(1), Refused::Backend(_)));
        }
    }
}

/// Another put of its session failed after that was sent: one more barrier is wanted.
#[test]
fn try_does_not_wait_behind_a_barrier_without_an_answer() {
    let second = Duration::from_secs(1);
    let mut rig = Rig::warm();
    rig.acquire(1, "locks/a", Wait::Once);
    let (first, _) = rig.take_put();
    rig.acquire(2, "locks/b", Wait::Once);
    let (second_put, _) = rig.take_put();
    rig.pass(3 * second);
    rig.answer(first, Err(unknown()));
    rig.pass(second / 4); // the pause after a failure
    let renewal = rig.take_that(|request| matches!(request, Request::KeepAlive { .. }));
    rig.carry_out(renewal);
    let _barrier = rig.take_put();
    rig.answer(second_put, Err(unknown()));
    for _ in 0..2 * CONNECT.as_secs() {
        rig.pass(second);
        while let Some(request) = rig.find(|request| matches!(request, Request::KeepAlive { .. })) {
            rig.carry_out(request);
        }
    }
    assert!(matches!(rig.refused(1), Refused::Backend(_)));
}

/// Each of them travels alone, two at a time: etcd takes them one after the other, and is slow.
#[test]
fn tries_behind_others_are_decided_while_etcd_takes_them() {
    let mut rig = Rig::warm();
    for call in 1..=8 {
        rig.acquire(call, &format!("locks/{call}"), Wait::Once);
    }
    for _ in 1..=8 {
        rig.pass(Duration::from_secs(2));
        // All but tries is answered at once.
        let is_other =
            |request: &Request| !matches!(request, Request::Txn(txn) if !txn.or_else.is_empty());
        while rig.sent.iter().any(|(_, request)| is_other(request)) {
            let other = rig.take_that(is_other);
            rig.carry_out(other);
        }
        let oldest = rig.take();
        rig.carry_out(oldest);
    }
    rig.serve();
    for call in 1..=8 {
        rig.granted(call);
    }
}

/// Found by torture, after a password had changed: the try waited for the deletion of an older key, which etcd refused.
#[test]
fn try_ends_in_time_while_a_delete_is_refused() {
    let mut rig = Rig::warm();
    rig.hold(1, "locks/a");
    rig.store.denied = Some("locks/a/");
    rig.release(1);
    rig.serve();
    rig.acquire(2, "locks/a", Wait::Once);
    let since = rig.now;
    while rig.output(2).is_none() {
        assert!(rig.now - since < CONNECT * 2, "the try has not ended");
        rig.live(Duration::from_millis(50));
    }
}
