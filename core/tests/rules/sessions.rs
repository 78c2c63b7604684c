//! Sessions: they are relied on until their stop time, and are retired or lost as a whole (rules P10, P12, P26–P28, P35).

use crate::*;

/// etcd's gRPC proxy may return the response to the first one for the next one.
#[test]
fn deadline_counts_from_the_first_renewal_without_a_response() {
    let mut rig = Rig::warm();
    let deadline = rig.hold(1, A).grant(1).deadline;
    let first = rig.pass(WHOLE / 3).now;
    let (renewal, _) = rig.take(renews);
    rig.pass(SOON).deliver((renewal, Err(unknown())));
    for since in [first, rig.now + SOON] {
        let (renewal, _) = rig.take(renews);
        renewed(rig.pass(SOON), renewal);
        assert_eq!(deadline.stop(), Some(since + WHOLE.mul_f64(0.99) - WHOLE / 10));
    }
}

fn renewed(rig: &mut Rig, renewal: RequestId) {
    let kept = Response::KeptAlive { ttl: WHOLE, revision: None, stale: false };
    rig.deliver((renewal, Ok(kept)));
}

#[test]
fn late_response_does_not_revive_a_lost_session() {
    let mut rig = Rig::holding();
    let deadline = rig.grant(1).deadline;
    rig.store.put(b"locks%s/a1", 0xa1); // the put will not apply
    let put = rig.acquire(2, B).applied(puts);
    let (renewal, _) = rig.pass(WHOLE / 3).take(renews);
    rig.now = rig.now + WHOLE;
    renewed(&mut rig, renewal);
    rig.lost(1, LossCause::Expired);
    assert!(deadline.is_over(rig.now) && deadline.stop().is_none());
    assert_eq!(rig.under_way(renews), 0, "the lease is not renewed again either");
    rig.deliver(put);
    assert!(rig.sessions().iter().any(|session| session.is_lost() && session.bodies == 1));
}

#[test]
fn no_lock_is_granted_late_in_its_lease() {
    let mut rig = Rig::putting();
    let put = rig.applied(puts);
    rig.pass(WHOLE * 11 / 20).deliver(put).nothing_about(1).serves(1);
}

#[test]
fn renewals_do_not_multiply() {
    let mut rig = Rig::holding();
    let mut renewals = 0;
    for _ in 0..20 {
        // An operator deletes keys. The process sends a renewal if it notices.
        rig.contend("locks/b/zz").delete_unseen("locks/b/zz").submit(Input::Inspect);
        renewals += rig.count(millis(100), renews);
    }
    renewals += rig.count(WHOLE * 3 - 2 * SECOND, renews);
    assert!((8..=10).contains(&renewals), "{renewals} in three TTLs");
}

/// Call 2 reads an old state of what is ahead of it. A barrier sent earlier does not explain that, so another one follows.
#[test]
fn read_from_a_lagging_member_loses_no_history() {
    let mut rig = Rig::holding();
    rig.contend("locks/b/zz").acquire(2, B).serve_one(puts);
    let (read, Request::Txn(txn)) = rig.take(reads) else { panic!("not a read") };
    doubt(&mut rig, C);
    let barrier = rig.take(puts);
    let stale = rig.store.stale(&txn, 3);
    rig.deliver((read, Ok(Response::Txn(stale)))).carry_out(barrier);
    let held = |op: &Op| matches!(op, Op::Get { key, .. } if &**key == "locks/a/a1");
    let asks = |request: &Request| puts(request) && operations(request).iter().any(held);
    rig.serve_one(asks).serve().live(SOON).nothing_about(1).nothing_about(2);
    assert!(matches!(rig.sessions()[..], [session] if session.is_open()));
}

/// After a restore there is a session key, from the snapshot (rule P35).
#[test]
fn wipe_or_restore_loses_all_locks() {
    for is_wiped in [true, false] {
        let mut rig = Rig::warm();
        let snapshot = rig.store.snapshot();
        rig.hold(1, A).lose_history((!is_wiped).then_some(snapshot));
        rig.queue(2, B).lost(1, LossCause::Wiped);
        rig.release(1).live(SOON).granted(2).hold(3, A);
    }
}

#[test]
fn session_without_its_key_keeps_its_bodies_alone() {
    let mut rig = Rig::holding();
    rig.delete_unseen("locks%s/a1");
    assert_eq!(&*rig.hold(2, B).owned(2).key, "locks/b/a2");
    rig.live(WHOLE * 2).nothing_about(1).keeps(&["locks/a/a1"]); // the first session is still renewed
    rig.give_back(1);
    assert_eq!(rig.store.leases(), [0xa2]);
}

#[test]
fn session_without_a_response_to_its_barrier_retires() {
    let mut rig = Rig::warm();
    let begun = rig.acquire_within(1, A, WHOLE * 3).now;
    let is_txn = |request: &Request| matches!(request, Request::Txn(_));
    while rig.sessions().iter().any(|it| it.lease() == Some(0xa1)) {
        rig.serve_all(|request| !is_txn(request)).fail_all(unknown).pass(millis(100));
        assert!(rig.now - begun < WHOLE * 3, "never");
    }
    assert!(rig.now - begun >= WHOLE, "too soon");
    rig.live(SOON);
    assert!(!rig.store.leases().contains(&0xa1));
}

#[test]
fn lease_is_revoked_only_after_its_bodies_are_dropped() {
    let mut rig = Rig::warm();
    let grant = rig.hold(1, A).grant(1);
    rig.pass(WHOLE / 3).answer(renews, Err(refused(Refusal::LeaseNotFound)));
    assert!(grant.deadline.is_over(rig.now), "at once");
    rig.serve().lost(1, LossCause::Gone).live(SOON).keeps(&["locks/a/a1"]);
    rig.acquire(2, A).live(SOON).nothing_about(2); // not before the body is dropped
    rig.give_back(1).lacks(&["locks/a/a1"]).granted(2);
}

#[test]
fn holder_that_had_to_wait_watches_its_own_key_alone() {
    let mut rig = Rig::holding();
    rig.live(2 * SECOND).give_back(1).contend("locks/a/zx").queue(2, A);
    assert_eq!(rig.watched(), ["locks/a/"]);
    rig.delete("locks/a/zx").granted(2).live(10 * SECOND);
    assert_eq!(rig.watched(), ["locks/a/a1"]);
}

/// The renewal may never get a response. If the lease is gone too, its response ends the other locks.
#[test]
fn key_that_is_gone_is_lost_at_once() {
    let mut rig = Rig::holding();
    rig.live(2 * SECOND).delete("locks/a/a1").lost(1, LossCause::Gone);
    assert_eq!(rig.under_way(renews), 1);
    rig.serve().contend("locks/a/a1").report().sends_nothing(); // it is not lost again
}

/// Keys of one name under several leases are watched under each.
#[test]
fn readers_of_each_session_are_notified() {
    let mut rig = Rig::reading();
    let (mode, ttl_secs) = (Mode::Shared, TTL + 1);
    rig.submit(Input::Acquire(Acquire { mode, ttl_secs, ..ask(2, &[A]) })).serves(2);
    rig.live(2 * SECOND);
    for (call, key) in [(2, "locks/a/a2.r1"), (1, "locks/a/a1.r0")] {
        rig.delete(key).lost(call, LossCause::Gone);
    }
}

/// The writer watches what is ahead of it, the reader its own key.
#[test]
fn reader_is_notified_while_a_writer_of_its_process_waits() {
    for held in [Duration::ZERO, 2 * SECOND] {
        let mut rig = Rig::reading();
        rig.live(held).queue(2, A).live(2 * SECOND).delete_unseen("locks/a/a1.r0");
        rig.contend("locks/a/a1.r0").report().lost(1, LossCause::Overwritten);
    }
}

#[test]
fn refusal_says_that_session_keys_are_forbidden() {
    let mut rig = Rig::new();
    rig.acquire(1, A).serve_one(any).answer(puts, Err(refused(Refusal::PermissionDenied)));
    assert!(matches!(rig.refused(1), Refused::SessionDenied(_)));
}

/// Each call holds a separate name. A session takes at most `limit` keys.
fn spread(limit: Option<usize>, calls: u64) -> Rig {
    let mut rig = Rig::with(Settings { keys_per_session: limit, ..settings(1) }).warmed();
    for call in 0..calls {
        rig.hold(call, &format!("locks/{call}"));
    }
    rig
}

/// For a user other than root, each key of a lease makes its puts more expensive. A session is lost with its own locks only (P27).
#[test]
fn locks_of_a_user_are_spread_over_sessions() {
    for (limit, each) in [(None, 30), (Some(3), 3)] {
        let mut rig = spread(limit, 30);
        let sessions = rig.sessions();
        assert!(sessions.iter().all(|session| session.bodies == each));
        rig.store.revoke(sessions[0].lease().expect("a value"));
        rig.live(WHOLE);
        let gone = (0..30).filter(|call| rig.output(*call).is_some()).count();
        assert_eq!(gone, each);
    }
}

/// etcd keeps deleted keys until a compaction, and ranges read them (rule P27).
#[test]
fn name_goes_back_to_the_session_that_it_has_used() {
    let mut rig = spread(Some(2), 4);
    let key = rig.owned(2).key;
    rig.give_back(0).give_back(2).hold(4, "locks/2");
    assert_eq!(rig.owned(4).key, key, "not in the oldest session, though that has room");
}

#[test]
fn idle_sessions_are_revoked_in_the_end() {
    let mut rig = spread(Some(3), 20);
    assert!(rig.sessions().len() > 1);
    (0..20).for_each(|call| _ = rig.release(call));
    rig.serve().live(WHOLE * 21); // a session exists for 20 TTLs without a call
    assert!(rig.sessions().is_empty() && rig.store.leases().is_empty());
    rig.hold(100, A);
}

#[test]
fn refused_barrier_is_sent_again_slowly() {
    let mut rig = Rig::holding();
    let (put, _) = rig.acquire(2, B).applied(puts);
    rig.deliver((put, Err(unknown())));
    rig.store.denied = Some("locks%s");
    let sent = rig.count(10 * SECOND, |request| keys_put(request) == ["locks%s/a1"]);
    assert!((2..40).contains(&sent), "{sent} in ten seconds");
    rig.cancel(2);
    rig.store.denied = None;
    rig.live(WHOLE).lacks(&["locks/b/a1"]).keeps(&["locks/a/a1"]);
    rig.nothing_about(1); // its body continues
}

/// The barrier that finds out gets no response at first.
#[test]
fn idle_holder_notices_a_restore_by_its_next_renewal() {
    let mut rig = Rig::warm();
    let snapshot = rig.store.snapshot();
    // etcd loses more writes than the number that it has received again by then.
    (0..5).for_each(|_| rig.store.put(b"junk", 0));
    rig.hold(1, A).live(WHOLE / 9).lose_history(Some(snapshot)).contend("locks/a/zz");
    rig.pass(WHOLE * 2 / 9).serve_one(renews).answer(puts, Err(unknown()));
    (0..9).for_each(|_| rig.store.put(b"junk", 0)); // the next barrier has no low revision
    rig.live(SECOND);
    assert!(matches!(rig.output(1), Some(Output::Lost { .. })));
}

/// Its delete and its revocation get no response, and etcd keeps the lease for longer.
#[test]
fn no_error_names_a_lost_session_of_its_own_process() {
    let mut rig = Rig::holding();
    rig.pass(WHOLE).lost(1, LossCause::Expired);
    rig.release(1).sent.clear();
    rig.store.promote(rig.now);
    rig.acquire_within(2, A, 2 * SECOND).serve().live(2 * SECOND).keeps(&["locks/a/a1"]);
    assert_eq!(rig.timed_out(2).1, "");
    rig.attempt(3, A).live(5 * SECOND);
    assert!(matches!(rig.refused(3), Refused::Backend(_)));
}

#[test]
fn error_names_no_body_that_has_lost_its_lock() {
    let mut rig = Rig::holding();
    rig.pass(WHOLE).lost(1, LossCause::Expired).attempt(2, A);
    assert_eq!(rig.busy(2).1, "");
}

/// Makes a call whose put gets no response. The barrier that settles it is sent next.
fn doubt(rig: &mut Rig, name: &str) {
    rig.acquire(90, name).answer(puts, Err(unknown())).pass(SOON).come_back();
}

#[test]
fn refused_lease_refuses_only_calls_of_its_ttl() {
    let mut rig = Rig::warm();
    rig.submit(Input::Warm { call: Id(3), ttl_secs: TTL + 1 }).acquire_for(1, A, TTL + 1);
    rig.acquire(2, A).answer(any, Err(refused(Refusal::Other)));
    [1, 3].iter().for_each(|call| assert!(matches!(rig.refused(*call), Refused::Backend(_))));
    rig.serves(2);
}

#[test]
fn session_without_its_key_is_renewed_at_once() {
    let mut rig = Rig::holding();
    doubt(&mut rig, B);
    rig.store.revoke(0xa1);
    rig.serve_one(puts).serve_one(renews).lost(1, LossCause::Gone);
}

/// After the stop time, another call's thread is first.
#[test]
fn command_after_the_stop_time_grants_and_loses_nothing() {
    let mut rig = spread(None, 101);
    rig.acquire(101, "locks/1");
    rig.now = rig.now + WHOLE;
    rig.release(1).acquire(102, "locks/2");
    assert!(rig.steps < 20 && rig.is_due());
    rig.nothing_about(101).nothing_about(2);
    rig.pass(Duration::ZERO).lost(2, LossCause::Expired);
}

#[test]
fn late_barrier_deletes_nothing_under_a_lost_session() {
    let mut rig = Rig::holding();
    doubt(&mut rig, B);
    let barrier = rig.applied(puts);
    assert_eq!(rig.pass(WHOLE).lost(1, LossCause::Expired).deliver(barrier).under_way(deletes), 0);
}
