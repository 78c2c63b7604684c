//! Hand-overs: a lock passes from call to call inside a process (rules P22, P23).

use crate::*;

/// Call 0 holds `a`, and calls 1 to `waiting` wait behind it.
fn chain(waiting: u64) -> Rig {
    let mut rig = Rig::warm();
    (0..=waiting).for_each(|call| _ = rig.acquire(call, A));
    rig.serves(0);
    rig
}

impl Rig {
    /// Ends a call, and checks that the next one has the lock in the same step.
    #[track_caller]
    fn pass_on(&mut self, call: CallId) -> &mut Self {
        self.release(call).released(call).granted(call + 1)
    }

    /// Ends a call, and checks that its key is deleted.
    #[track_caller]
    fn ends_for_good(&mut self, call: CallId) -> &mut Self {
        self.release(call).nothing_about(call).nothing_about(call + 1).deletes_key()
    }

    #[track_caller]
    fn deletes_key(&mut self) -> &mut Self {
        let deleted = self.sent.iter().flat_map(|(_, request)| keys_deleted(request));
        assert_eq!(deleted.collect::<Vec<_>>(), ["locks/a/a1"]);
        self
    }
}

#[test]
fn hand_over_passes_the_key_without_a_request() {
    let mut rig = chain(2);
    let before = rig.created(A);
    for call in 0..2 {
        let owned = rig.pass_on(call).owned(call + 1);
        assert_eq!((Some(owned.created), owned.revision), (before, owned.created));
        assert_eq!(u64::from(owned.handover), call + 1);
        rig.sends_nothing();
    }
    let owned = rig.release(2).hold(3, A).owned(3);
    assert!(Some(owned.revision) > before && owned.handover == 0);
}

#[test]
fn fenced_lock_is_not_handed_over() {
    let mut rig = chain(1);
    rig.release_fenced(0).nothing_about(1);
    assert_eq!(rig.sent.len(), 1);
    assert_eq!(rig.serves(1).owned(1).handover, 0);
}

#[test]
fn lock_is_not_handed_to_a_call_of_another_ttl() {
    let mut rig = chain(0);
    rig.acquire_for(1, A, TTL + 1).ends_for_good(0);
    assert_eq!(&*rig.serves(1).owned(1).key, "locks/a/a2");
}

#[test]
fn lock_is_not_handed_over_late_in_its_lease() {
    chain(1).pass(WHOLE * 6 / 10).ends_for_good(0).serves(1);
}

#[test]
fn lost_lock_is_not_handed_over() {
    for by_lease in [true, false] {
        let mut rig = chain(1);
        let before = rig.created(A);
        rig.live(2 * SECOND);
        if by_lease {
            rig.store.revoke(0xa1);
        } else {
            rig.delete_unseen("locks/a/a1");
        }
        rig.report().serve().lost(0, LossCause::Gone).give_back(0);
        assert!(Some(rig.granted(1).owned(1).created) > before);
    }
}

#[test]
fn lock_of_a_retired_session_is_not_handed_over() {
    let mut rig = chain(1);
    rig.delete_unseen("locks%s/a1").hold(9, B).ends_for_good(0);
    assert_eq!(&*rig.serves(1).owned(1).key, "locks/a/a2");
}

#[test]
fn lock_is_released_when_its_token_can_count_no_further() {
    let mut rig = chain(0);
    let last = u64::from(u16::MAX);
    for call in 0..last {
        rig.acquire(call + 1, A);
        assert_eq!(u64::from(rig.pass_on(call).owned(call + 1).handover), call + 1);
        rig.serve();
    }
    rig.acquire(last + 1, A).ends_for_good(last);
}

#[test]
fn loss_after_a_hand_over_reaches_the_new_holder() {
    let mut rig = chain(1);
    rig.pass_on(0).live(2 * SECOND);
    rig.delete("locks/a/a1").serve().lost(1, LossCause::Gone).nothing_about(0);
}

#[test]
fn refused_try_names_the_holder_after_a_hand_over() {
    let mut rig = chain(1);
    rig.pass_on(0).attempt(2, A);
    assert_eq!(rig.busy(2).1, record(1));
}

#[test]
fn key_held_for_a_second_through_hand_overs_is_watched() {
    let mut rig = chain(20);
    for call in 0..20 {
        assert_eq!(!rig.watched().is_empty(), call >= 10, "{call}");
        rig.live(millis(100)).pass_on(call);
    }
}

/// A read of it returns all keys below it (rule P2).
#[test]
fn name_with_many_others_below_is_read_once_a_second() {
    let mut rig = chain(40);
    (0..100).for_each(|other| _ = rig.contend(&format!("locks/a/{other}/zz")));
    let mut sent = 0;
    for call in 0..40 {
        rig.pass_on(call).pass(millis(50));
        sent += rig.under_way(reads);
        rig.serve();
    }
    assert!((1..=4).contains(&sent), "{sent} reads in two seconds");
    let reported = |it: &&Output| matches!(it, Output::Crowded(name) if **name == *A);
    assert_eq!(rig.outputs.iter().filter(reported).count(), 1);
}

#[test]
fn key_is_handed_only_to_a_call_with_the_same_names() {
    for names in [&[A][..], &[A, B, C], &[B, C]] {
        let mut rig = Rig::warm();
        let rank = rig.hold_all(1, &[A, B]).owned(1).created;
        rig.acquire_all(2, names).release(1).nothing_about(2);
        let owned = rig.serves(2).grant(2).owned;
        assert!(owned.iter().all(|it| it.created > rank && it.handover == 0), "{names:?}");
    }
}

#[test]
fn hand_overs_go_on_with_a_read_now_and_then() {
    let mut rig = chain(35);
    let mut asked = Vec::new();
    for call in 0..35 {
        rig.pass(millis(1)).pass_on(call);
        if rig.under_way(reads) > 0 {
            asked.push(call + 1);
        }
        rig.serve();
    }
    assert_eq!(asked, [10, 20, 30], "hand-overs");
}

#[test]
fn hand_overs_end_when_another_process_waits() {
    let mut rig = chain(10);
    rig.contend("locks/a/zz").pass_on(0);
    assert_eq!(rig.under_way(reads), 0);
    rig.pass(millis(10)).pass_on(1);
    assert_eq!(rig.under_way(reads), 1);
    rig.pass_on(2); // its event has not arrived yet
    rig.serve().ends_for_good(3).serve().nothing_about(4); // it queues behind the other process
    rig.delete_unseen("locks/a/zz").live(SOON);
    assert_eq!(rig.granted(4).owned(4).handover, 0);
}

#[test]
fn read_among_deeper_keys_sees_who_contends() {
    for (key, waits) in [("locks/a/zz", true), ("locks/a/z/z", false)] {
        let mut rig = chain(5);
        rig.contend("locks/a/deep/er").contend(key).contend("locks/a/even/deep/er");
        rig.pass(millis(10)).pass_on(0).serve().release(1);
        assert_eq!(rig.output(2).is_none(), waits);
    }
}

#[test]
fn hand_overs_end_a_second_after_the_last_response() {
    let mut rig = chain(10);
    rig.pass(millis(10)).pass_on(0);
    for call in 1..5 {
        rig.pass(millis(240)).fail_all(unknown).pass_on(call);
    }
    rig.pass(millis(240)).release(5).nothing_about(5).nothing_about(6);
    // Exchanges have failed, so nothing is sent before etcd is back.
    rig.fail_all(unknown).pass(SECOND).come_back().deletes_key();
}

#[test]
fn only_nested_calls_take_over_in_a_shutdown() {
    let mut rig = chain(1);
    rig.hold(8, B).nest(2, &[A], 8).shut_down(SOON);
    assert!(matches!(rig.refused(1), Refused::ShuttingDown));
    rig.release(0).granted(2).live(SOON).lost(2, LossCause::Shutdown);
    rig.release(2).release(8).serve();
    assert!(rig.is_finished());
}

#[test]
fn cancelled_call_takes_nothing_over() {
    chain(2).cancel(1).release(0).granted(2).nothing_about(1);
}

/// Call 1 has just released `locks/a`, whose key lingers.
fn lingering() -> Rig {
    let mut rig = Rig::holding();
    rig.release_lingering(1);
    rig
}

#[test]
fn lingering_key_serves_the_next_call_without_a_request() {
    let mut rig = lingering();
    let first = rig.created(A);
    rig.attempt(2, A).sends_nothing(); // without a request
    let second = rig.granted(2).owned(2);
    assert_eq!((Some(second.created), second.handover), (first, 1));
}

#[test]
fn lingering_key_goes_after_a_moment() {
    let mut rig = lingering();
    rig.pass(Duration::from_micros(900)).serve().keeps(&["locks/a/a1"]);
    rig.pass(Duration::from_micros(2_100)).serve().lacks(&["locks/a/a1"]).is_idle();
}

#[test]
fn lingering_keys_go_together() {
    let mut rig = Rig::holding();
    rig.hold(2, B).hold(3, C);
    for call in 1..=3 {
        rig.pass(Duration::from_micros(100)).release_lingering(call);
    }
    rig.pass(millis(2));
    assert_eq!(keys_deleted(rig.next()), ["locks/a/a1", "locks/b/a1", "locks/c/a1"]);
    assert_eq!(rig.sent.len(), 1);
}

/// No call holds it any more, so it does not keep a call from other names.
#[test]
fn lingering_key_goes_at_once_for_a_group() {
    lingering().hold_all(2, &[A, B]);
}

#[test]
fn kicked_call_has_its_key_until_it_is_released() {
    let mut rig = Rig::holding();
    rig.acquire(2, A).submit(Input::Kick(Id(1))).lost(1, LossCause::Kicked);
    rig.submit(Input::Kick(Id(1))).live(SECOND).nothing_about(1).nothing_about(2);
    assert!(rig.has("locks/a/a1"));
    rig.release(1).deletes_key().nothing_about(2).serves(2);
}
