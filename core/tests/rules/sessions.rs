//! Sessions: relied on as long as the clock says, retired or lost as a whole (rules P10, P12, P26–P28, P35).

use std::time::Duration;

use etcd_locked_core::{
    Input, LossCause, Op, Refusal, Refused, Request, RequestId, Response, Revision, Session, Wait,
};
use etcd_locked_sim::etcd::{refused, unknown};

use crate::SOON;
use crate::rig::{Rig, TTL, puts};

/// One TTL more than a session lives without a call.
const IDLE: u32 = 21;

const WHOLE: Duration = Duration::from_secs(TTL as u64);
const SECOND: Duration = Duration::from_secs(1);

fn holder() -> Rig {
    let mut rig = Rig::warm();
    rig.queue(1, "locks/a");
    rig
}

#[test]
fn deadline_counts_from_when_a_renewal_was_sent() {
    let mut rig = holder();
    let deadline = rig.granted(1).deadline;
    rig.pass(WHOLE / 3);
    let sent = rig.now;
    let (renewal, request) = rig.take();
    assert!(matches!(request, Request::KeepAlive { .. }));
    rig.pass(SOON);
    rig.answer(renewal, Ok(Response::KeptAlive { ttl: WHOLE, revision: None, stale: false }));
    assert_eq!(deadline.stop(), Some(sent + WHOLE.mul_f64(0.99) - WHOLE / 10));
}

#[test]
fn late_renewal_does_not_bring_a_lost_lock_back() {
    let mut rig = holder();
    let deadline = rig.granted(1).deadline;
    rig.pass(WHOLE / 3);
    let (renewal, _) = rig.take();
    rig.now = rig.now + WHOLE;
    rig.answer(renewal, Ok(Response::KeptAlive { ttl: WHOLE, revision: None, stale: false }));
    assert_eq!(rig.lost(1), LossCause::Expired);
    assert!(deadline.is_over(rig.now) && deadline.stop().is_none());
    let renews = |request: &Request| matches!(request, Request::KeepAlive { .. });
    let renewed = rig.sent.iter().any(|(_, request)| renews(request));
    assert!(!renewed, "nor is the lease renewed again");
}

#[test]
fn late_bundle_does_not_bring_a_lost_session_back() {
    let mut rig = holder();
    rig.granted(1);
    rig.acquire(2, "locks/b", Wait::Forever);
    let (put, _) = rig.take();
    rig.pass(WHOLE);
    assert_eq!(rig.lost(1), LossCause::Expired);
    rig.sent.clear();
    let answer = etcd_locked_core::TxnAnswer {
        stale: false,
        revision: Revision::new(99).expect("a value"),
        succeeded: false,
        answers: Vec::new(),
    };
    rig.answer(put, Ok(Response::Txn(answer)));
    let lost = |session: &Session| session.is_lost() && session.bodies == 1;
    assert!(rig.core.sessions().any(lost));
}

#[test]
fn no_lock_is_granted_late_in_its_lease() {
    let mut rig = Rig::warm();
    rig.acquire(1, "locks/a", Wait::Forever);
    let (put, request) = rig.take();
    let answer = rig.store.apply(rig.now, &request);
    rig.pass(WHOLE * 11 / 20);
    rig.answer(put, answer);
    assert!(rig.output(1).is_none());
    rig.serve();
    rig.granted(1);
}

#[test]
fn renewals_do_not_multiply() {
    let mut rig = holder();
    let mut renewals = 0;
    for step in 0..WHOLE.as_millis() * 3 / 100 {
        if step < 20 {
            // An operator deletes keys, which a renewal would notice.
            rig.contend("locks/b/zz");
            rig.store.delete(b"locks/b/zz");
            rig.submit(Input::Inspect);
        }
        rig.pass(Duration::from_millis(100));
        let sent = rig.sent.iter();
        let renews = |request: &Request| matches!(request, Request::KeepAlive { .. });
        renewals += sent.filter(|(_, request)| renews(request)).count();
        rig.serve();
    }
    assert!((8..=10).contains(&renewals), "{renewals} in three TTLs");
}

#[test]
fn late_answers_of_lower_revisions_are_no_lost_history() {
    let mut rig = holder();
    rig.granted(1);
    // The first barrier of another lease is overtaken by puts under ours.
    rig.acquire_for(2, "locks/b", Wait::Forever, TTL + 1);
    let (id, grant) = rig.take();
    let granted = rig.store.apply(rig.now, &grant);
    rig.answer(id, granted);
    let (barrier, request) = rig.take();
    let barriered = rig.store.apply(rig.now, &request);
    rig.queue(3, "locks/c");
    rig.answer(barrier, barriered);
    rig.serve();
    rig.granted(2);
    assert!(rig.output(1).is_none());
}

#[test]
fn read_from_a_lagging_member_is_no_lost_history() {
    let mut rig = holder();
    rig.granted(1);
    rig.contend("locks/b/zz");
    rig.acquire(2, "locks/b", Wait::Forever);
    let request = rig.take_put();
    rig.carry_out(request);
    let (read, request) = rig.take();
    let Request::Txn(txn) = request else { panic!("not a read") };
    let stale = rig.store.stale(&txn, 3);
    rig.answer(read, Ok(Response::Txn(stale)));
    rig.serve();
    rig.live(SOON);
    assert!(rig.output(1).is_none() && rig.output(2).is_none());
    assert!(matches!(rig.sessions()[..], [session] if session.is_open()));
}

#[test]
fn wipe_loses_all_locks() {
    let mut rig = holder();
    rig.granted(1);
    let lease = rig.contend("locks/b/zz");
    rig.queue(2, "locks/b");
    rig.store.wipe();
    rig.live(Duration::from_millis(100));
    assert_eq!(rig.lost(1), LossCause::Wiped);
    rig.granted(2);
    rig.release(1);
    rig.hold(3, "locks/a");
    assert!(!rig.store.leases().contains(&lease));
}

#[test]
fn answer_from_before_a_wipe_makes_no_later_read_stale() {
    let mut rig = holder();
    rig.granted(1);
    rig.release(1);
    let (delete, request) = rig.take();
    for _ in 0..500 {
        rig.contend("junk");
    }
    let deleted = rig.store.apply(rig.now, &request);
    rig.store.wipe();
    rig.pass(WHOLE);
    rig.contend("locks/b/zz");
    rig.queue(2, "locks/b");
    rig.answer(delete, deleted);
    rig.live(SOON);
    rig.store.delete(b"locks/b/zz");
    rig.live(SOON * 15);
    rig.granted(2);
}

#[test]
fn session_without_its_key_keeps_its_bodies_alone() {
    let mut rig = holder();
    rig.granted(1);
    rig.store.delete(b"locks%s/a1");
    assert_eq!(&*rig.hold(2, "locks/b").owned[0].key, "locks/b/a2");
    rig.live(WHOLE * 2);
    assert!(rig.output(1).is_none() && rig.has("locks/a/a1"), "the first is still renewed");
    rig.give_back(1);
    assert_eq!(rig.store.leases(), [0xa2]);
}

#[test]
fn session_without_an_answer_to_its_barrier_retires() {
    let mut rig = Rig::warm();
    rig.acquire(1, "locks/a", Wait::For(WHOLE * 3));
    for _ in 0..WHOLE.as_millis() * 3 / 200 {
        rig.pass(Duration::from_millis(100));
        for (id, request) in std::mem::take(&mut rig.sent) {
            let writes = matches!(request, Request::Txn(_))
                && rig.core.sessions().any(|it| it.lease() == Some(0xa1));
            let result = if writes { Err(unknown()) } else { rig.store.apply(rig.now, &request) };
            rig.answer(id, result);
        }
    }
    rig.live(SOON);
    assert!(!rig.store.leases().contains(&0xa1));
}

#[test]
fn lease_is_revoked_only_after_its_bodies_are_dropped() {
    let mut rig = holder();
    let grant = rig.granted(1);
    rig.pass(WHOLE / 3);
    let (renewal, _) = rig.take();
    rig.answer(renewal, Err(refused(Refusal::LeaseNotFound)));
    assert!(grant.deadline.is_over(rig.now), "at once");
    rig.serve();
    assert_eq!(rig.lost(1), LossCause::Gone);
    rig.live(SOON);
    assert!(rig.has("locks/a/a1"));
    rig.acquire(2, "locks/a", Wait::Forever);
    rig.live(SOON);
    assert!(rig.output(2).is_none(), "not before the body is dropped");
    rig.give_back(1);
    assert!(rig.released(1).is_ok() && !rig.has("locks/a/a1"));
    rig.granted(2);
}

/// A holder that watches its key.
fn watcher() -> Rig {
    let mut rig = holder();
    rig.granted(1);
    rig.live(Duration::from_secs(2));
    rig
}

#[test]
fn holder_that_had_to_wait_watches_its_own_key_alone() {
    let mut rig = watcher();
    rig.give_back(1);
    rig.contend("locks/a/zx");
    rig.queue(2, "locks/a");
    rig.store.delete(b"locks/a/zx");
    rig.report();
    rig.granted(2);
    rig.live(Duration::from_secs(10));
    assert_eq!(rig.watched(), ["locks/a/a1"]);
}

#[test]
fn short_holder_of_a_contended_name_watches_no_key_of_its_own() {
    let mut rig = watcher();
    rig.give_back(1);
    rig.contend("locks/a/zx");
    rig.queue(2, "locks/a");
    assert_eq!(rig.watched(), ["locks/a/"]);
}

/// The renewal without an answer.
fn renewal(rig: &mut Rig) -> (RequestId, Request) {
    rig.take_that(|request| matches!(request, Request::KeepAlive { .. }))
}

#[test]
fn holder_loses_a_key_that_is_overwritten() {
    let mut rig = watcher();
    rig.store.delete(b"locks/a/a1");
    rig.contend("locks/a/a1");
    rig.report();
    assert_eq!(rig.lost(1), LossCause::Overwritten);
}

/// The renewal may never be answered; if the lease is gone too, its answer ends the other locks.
#[test]
fn key_that_is_gone_is_lost_at_once() {
    let mut rig = watcher();
    rig.store.delete(b"locks/a/a1");
    rig.report();
    assert_eq!(rig.lost(1), LossCause::Gone);
    renewal(&mut rig);
}

/// What is held of one name under several leases is watched under each.
#[test]
fn readers_of_each_session_are_told() {
    let mut rig = Rig::warm();
    rig.read_for(1, "locks/a", TTL);
    rig.read_for(2, "locks/a", TTL + 1);
    rig.live(2 * SECOND);
    rig.store.delete(b"locks/a/a2.r1");
    rig.report();
    assert_eq!(rig.lost(2), LossCause::Gone);
    rig.store.delete(b"locks/a/a1.r0");
    rig.report();
    assert_eq!(rig.lost(1), LossCause::Gone);
}

/// The writer watches what is ahead of it, the reader what it holds.
#[test]
fn reader_is_told_though_a_writer_of_its_process_waits() {
    for held in [Duration::ZERO, 2 * SECOND] {
        let mut rig = Rig::warm();
        rig.read_for(1, "locks/a", TTL);
        rig.live(held);
        rig.queue(2, "locks/a");
        rig.live(2 * SECOND);
        rig.store.delete(b"locks/a/a1.r0");
        rig.contend("locks/a/a1.r0");
        rig.report();
        assert_eq!(rig.lost(1), LossCause::Overwritten, "after {held:?}");
    }
}

#[test]
fn call_learns_that_session_keys_are_forbidden() {
    let mut rig = Rig::new();
    rig.acquire(1, "locks/a", Wait::Forever);
    let request = rig.take();
    rig.carry_out(request);
    let (barrier, _) = rig.take();
    rig.answer(barrier, Err(refused(Refusal::PermissionDenied)));
    assert!(matches!(rig.refused(1), Refused::SessionDenied(_)));
}

/// A put of a user who is not root costs etcd more for each key of its lease. A lost session takes its locks along (rule P27).
#[test]
fn locks_of_a_user_are_spread_over_sessions() {
    for (limit, each) in [(None, 30), (Some(3), 3)] {
        let mut rig = Rig::spreading(limit);
        for call in 0..30 {
            rig.hold(call, &format!("locks/{call}"));
        }
        let sessions = rig.sessions();
        assert!(sessions.iter().all(|session| session.bodies == each));
        rig.store.revoke(sessions[0].lease().expect("a value"));
        rig.live(WHOLE);
        let gone = (0..30).filter(|call| rig.output(*call).is_some()).count();
        assert_eq!(gone, each);
    }
}

#[test]
fn idle_sessions_are_revoked_in_the_end() {
    let mut rig = Rig::spreading(3);
    for call in 0..20 {
        rig.hold(call, &format!("locks/{call}"));
    }
    assert!(rig.sessions().len() > 1);
    for call in 0..20 {
        rig.release(call);
    }
    rig.serve();
    rig.live(WHOLE * IDLE);
    assert!(rig.sessions().is_empty() && rig.store.leases().is_empty());
    rig.hold(100, "locks/a");
}

#[test]
fn refused_barrier_is_sent_again_slowly() {
    let mut rig = holder();
    rig.granted(1);
    rig.acquire(2, "locks/b", Wait::Forever);
    let (put, request) = rig.take_put();
    rig.store.apply(rig.now, &request).expect("a value"); // applied, unseen
    rig.answer(put, Err(unknown()));
    rig.store.denied = Some("locks%s");
    let mut sent = 0;
    for _ in 0..100 {
        rig.pass(Duration::from_millis(100));
        let barrier = |request: &Request| puts(request) == ["locks%s/a1"];
        sent += rig.sent.iter().filter(|(_, it)| barrier(it)).count();
        rig.serve();
    }
    assert!((2..40).contains(&sent), "{sent} in ten seconds");
    rig.cancel(2);
    rig.store.denied = None;
    rig.live(WHOLE);
    assert!(!rig.has("locks/b/a1") && rig.has("locks/a/a1"));
    assert!(rig.output(1).is_none(), "its body goes on");
}

/// The session key is of the snapshot, and so is not missing (rule P35).
#[test]
fn restore_from_a_snapshot_loses_all_locks() {
    let mut rig = Rig::warm();
    let snapshot = rig.store.snapshot();
    rig.hold(1, "locks/a");
    rig.store.restore(rig.now, snapshot);
    rig.queue(2, "locks/b");
    assert_eq!(rig.lost(1), LossCause::Wiped);
    rig.release(1);
    rig.live(SOON);
    rig.granted(2);
}

#[test]
fn idle_holder_notices_a_restore_by_its_next_renewal() {
    let mut rig = Rig::warm();
    let snapshot = rig.store.snapshot();
    // etcd loses more writes than it has had again by then.
    for _ in 0..5 {
        rig.contend("locks/b/zz");
    }
    rig.hold(1, "locks/a");
    rig.live(WHOLE / 9);
    rig.store.restore(rig.now, snapshot);
    rig.contend("locks/a/zz");
    rig.live(WHOLE / 3);
    assert!(matches!(rig.lost(1), LossCause::Wiped | LossCause::Gone));
}

#[test]
fn waiter_watches_anew_after_a_restore() {
    let mut rig = Rig::warm();
    rig.contend("locks/a/zz");
    let snapshot = rig.store.snapshot();
    rig.queue(1, "locks/a");
    rig.live(SOON);
    let before = rig.watches();
    rig.store.restore(rig.now, snapshot);
    rig.live(WHOLE);
    assert!(rig.watches() > before && rig.output(1).is_none());
    rig.store.delete(b"locks/a/zz");
    rig.report();
    rig.serve();
    rig.granted(1);
}

/// A process whose lost session still has its key at etcd. The test makes the call that waits behind it.
fn behind_its_own_dead_session() -> Rig {
    let mut rig = holder();
    rig.granted(1);
    rig.pass(WHOLE);
    assert_eq!(rig.lost(1), LossCause::Expired);
    rig.sent.clear();
    rig.release(1);
    // The delete and the revocation have no answer; etcd itself keeps the lease for longer.
    rig.sent.clear();
    rig.store.promote(rig.now);
    rig
}

/// What a refusal says of the owner.
fn named(why: Refused) -> Vec<u8> {
    match why {
        Refused::Held { owner, .. } | Refused::Timeout { owner, .. } => {
            owner.map_or(Vec::new(), |owner| owner.record.to_vec())
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn error_never_names_a_dead_session_of_its_own_process() {
    let mut rig = behind_its_own_dead_session();
    rig.acquire(2, "locks/a", Wait::For(Duration::from_secs(2)));
    rig.serve();
    for _ in 0..40 {
        rig.pass(Duration::from_millis(50));
        rig.serve();
    }
    assert!(rig.has("locks/a/a1"), "or there is nothing to name");
    assert_eq!(named(rig.refused(2)), b"");
}

#[test]
fn try_waits_until_a_dead_session_of_its_own_process_ends() {
    let mut rig = behind_its_own_dead_session();
    rig.acquire(2, "locks/a", Wait::Once);
    rig.live(2 * WHOLE);
    assert!(!rig.has("locks/a/a1"), "its lease has run out");
    rig.granted(2);
}

#[test]
fn error_names_no_body_that_has_lost_its_lock() {
    let mut rig = holder();
    rig.granted(1);
    rig.pass(WHOLE);
    assert_eq!(rig.lost(1), LossCause::Expired);
    rig.acquire(2, "locks/a", Wait::Once);
    assert_eq!(named(rig.refused(2)), b"");
}

/// A call whose put has no answer: the barrier that is to settle it is sent next.
fn doubt(rig: &mut Rig, name: &str) {
    rig.acquire(90, name, Wait::Forever);
    let (put, _) = rig.take_put();
    rig.answer(put, Err(unknown()));
    rig.pass(SOON);
    rig.come_back();
}

/// The barrier under way shows nothing of a suspicion that is younger.
#[test]
fn barrier_under_way_does_not_clear_a_suspicion() {
    let mut rig = holder();
    rig.granted(1);
    rig.contend("locks/b/zz");
    rig.acquire(2, "locks/b", Wait::Forever);
    let put = rig.take_put();
    rig.carry_out(put);
    let (read, request) = rig.take_that(crate::rig::reads);
    let Request::Txn(txn) = request else { panic!("not a read") };
    doubt(&mut rig, "locks/c");
    let barrier = rig.take_put();
    let stale = rig.store.stale(&txn, 3);
    rig.answer(read, Ok(Response::Txn(stale)));
    rig.carry_out(barrier);
    let (_, next) = rig.take_put();
    let Request::Txn(txn) = next else { panic!("not a barrier") };
    let held = |op: &Op| matches!(op, Op::Get { key, .. } if &**key == "locks/a/a1");
    assert!(txn.then.iter().any(held), "{txn:?}");
}

#[test]
fn refused_lease_refuses_only_calls_of_its_ttl() {
    let mut rig = Rig::warm();
    rig.acquire_for(1, "locks/a", Wait::Forever, TTL + 1);
    rig.acquire(2, "locks/a", Wait::Forever);
    let (grant, _) = rig.take();
    rig.answer(grant, Err(refused(Refusal::Other)));
    assert!(matches!(rig.refused(1), Refused::Backend(_)));
    rig.serve();
    rig.granted(2);
}

/// An operator has revoked the lease.
#[test]
fn session_without_its_key_is_renewed_at_once() {
    let mut rig = holder();
    rig.granted(1);
    doubt(&mut rig, "locks/b");
    let barrier = rig.take_put();
    rig.store.revoke(0xa1);
    rig.carry_out(barrier);
    let renewal = renewal(&mut rig);
    rig.carry_out(renewal);
    assert_eq!(rig.lost(1), LossCause::Gone);
}

/// Another call's thread comes first after the stop time: it grants nothing, and reports no loss of others.
#[test]
fn command_after_the_stop_time_grants_and_loses_nothing() {
    let mut rig = Rig::warm();
    for call in 1..=100 {
        rig.hold(call, &format!("locks/{call}"));
    }
    rig.acquire(101, "locks/1", Wait::Forever);
    rig.now = rig.now + WHOLE;
    rig.release(1);
    rig.acquire(102, "locks/2", Wait::Forever);
    assert!(rig.steps < 20 && rig.is_due());
    assert!(rig.output(101).is_none() && rig.output(2).is_none());
    rig.pass(Duration::ZERO);
    assert_eq!(rig.lost(2), LossCause::Expired);
}
