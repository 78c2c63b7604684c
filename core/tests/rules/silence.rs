//! Silence: a late or missing response of etcd proves nothing, and calls do not wait for it without limit (rules P32, P35).

use crate::*;

#[test]
fn silence_is_never_taken_for_held() {
    for mut rig in [Rig::warm(), Rig::new()] {
        rig.acquire_within(1, A, SECOND).pass(SECOND);
        assert!(matches!(rig.refused(1), Refused::Backend(_)));
    }
}

#[test]
fn holder_keeps_a_key_that_another_client_wrote_under_its_lease() {
    let mut rig = Rig::holding();
    rig.acquire(2, A);
    rig.store.put(b"locks/a/a1", 0xa1);
    rig.live(3 * SECOND).release(1); // a read shows whether another process waits
    rig.live(SECOND).granted(2).nothing_about(2);
}

#[test]
fn key_that_a_barrier_finds_leaves_a_retired_session() {
    let mut rig = Rig::warm();
    let (put, _) = rig.hold(1, "locks/long").acquire(2, B).applied(puts);
    rig.delete_unseen("locks%s/a1"); // as an operator might
    rig.deliver((put, Err(unknown()))).serve().live(SECOND).granted(2);
    rig.lacks(&["locks/b/a1"]).keeps(&["locks/long/a1"]); // its body continues
}

/// The session stays, because one call still waits.
#[test]
fn calls_that_gave_up_leave_nothing_in_an_outage() {
    let mut rig = Rig::new();
    rig.acquire(0, A);
    for call in 1..=2_000 {
        rig.acquire_within(call, &format!("locks/orders/{call}"), millis(5));
        rig.pass(millis(1)).fail_all(unavailable);
    }
    let left = rig.core.contenders().count();
    assert!(left < 50, "{left}");
    let kept = format!("{:?}", rig.sessions());
    assert!(kept.len() < 5_000, "{kept}");
    rig.live(6 * SECOND).granted(0);
}

#[test]
fn waiter_watches_anew_after_a_wipe_or_a_restore() {
    for is_wiped in [true, false] {
        let mut rig = Rig::warm();
        (0..50).for_each(|_| rig.store.put(b"other", 0));
        rig.contend("locks/a/zz");
        let snapshot = rig.store.snapshot();
        rig.queue(1, A).live(SECOND);
        assert_eq!(rig.opened, 1);
        rig.lose_history((!is_wiped).then_some(snapshot));
        if is_wiped {
            rig.contend("locks/a/zz");
        }
        rig.live(20 * SECOND).nothing_about(1);
        assert_eq!((rig.opened, rig.watched()), (2, vec!["locks/a/"]));
        rig.delete("locks/a/zz").serves(1);
    }
}

/// If a leader dies, each request to it fails only after its own time limit.
#[test]
fn etcd_is_probed_before_all_requests_have_failed() {
    let mut rig = Rig::putting();
    rig.acquire(2, B);
    let sent = [rig.take(puts), rig.take(puts)];
    rig.pass(SECOND).sends_nothing();
    for (put, _) in sent {
        rig.deliver((put, Err(unknown()))).pass(millis(500));
        assert_eq!(rig.sent.len(), 1, "one at a time");
    }
    rig.serves(1).granted(2);
}

/// This happens when a connection breaks while another member responds.
#[test]
fn many_failures_at_once_hold_off_no_longer_than_one() {
    let mut rig = Rig::warm();
    rig.acquire_each(0..64).fail_all(unknown).pass(millis(150));
    assert_eq!(rig.sent.len(), 1, "one at a time");
    rig.serve().granted_each(0..64);
}

/// The connect time-out of the rig.
const CONNECT: Duration = Duration::from_secs(5);

#[test]
fn silent_etcd_refuses_each_call_after_the_connect_timeout() {
    let deleting = || {
        let mut rig = Rig::holding();
        rig.release(1);
        rig
    };
    for (n, stage) in [Rig::warm, Rig::new, Rig::waiting, deleting].into_iter().enumerate() {
        for wait in [Wait::Forever, Wait::For(CONNECT * 3)] {
            let mut rig = stage();
            rig.acquire_as(9, &[A], wait).pass_in_steps(CONNECT - STEP).nothing_about(9);
            rig.pass_in_steps(3 * SECOND);
            assert!(matches!(rig.refused(9), Refused::Backend(_)), "{n}");
        }
    }
}

/// Found by an upgrade of three members: a put was lost with the leader, and the next leader got no request.
#[test]
fn unanswered_put_is_not_taken_for_silence() {
    let mut rig = Rig::new();
    rig.acquire_for(1, A, 60).serve_one(any); // the lease
    let put = rig.take(puts);
    rig.pass(CONNECT / 2).come_back().pass(CONNECT / 2).come_back();
    rig.pass(CONNECT / 2).carry_out(put).serves(1);
}

/// Found by torture, after a change of password: the try waited for the deletion of an older key, which etcd refused.
#[test]
fn try_ends_in_time_while_a_delete_is_refused() {
    let mut rig = Rig::holding();
    rig.store.denied = Some("locks/a/");
    rig.release(1).serve().attempt(2, A).live(CONNECT * 2);
    assert!(rig.output(2).is_some(), "the try has not ended");
}
