//! Shutdown: refuses calls, waits for bodies, revokes leases, and finishes (rule P26).

use crate::*;

/// Call 1 holds `locks/a`, call 2 waits for it, and a shutdown begins.
fn ending(grace: Duration) -> Rig {
    let mut rig = Rig::holding();
    rig.queue(2, A).shut_down(grace);
    rig
}

fn is_finished_without_a_key(rig: &Rig) -> bool {
    rig.is_finished() && rig.store.kvs().next().is_none()
}

#[test]
fn shutdown_refuses_calls_and_waits_for_bodies() {
    let mut rig = ending(SOON * 10);
    assert!(rig.core.has_sessions() && !rig.core.has_waiters());
    rig.acquire(3, B);
    assert!(matches!(rig.refused(2), Refused::ShuttingDown));
    assert!(matches!(rig.refused(3), Refused::ShuttingDown));
    rig.live(SOON * 2).nothing_about(1);
    assert!(!rig.is_finished() && rig.has("locks/a/a1"));
    rig.release(1).serve_one(deletes).fail_all(unknown).live(SOON); // the revocation is repeated
    assert!(is_finished_without_a_key(&rig) && rig.store.leases().is_empty());
    assert!(!rig.core.has_sessions());
}

#[test]
fn bodies_lose_their_locks_when_the_grace_is_over() {
    let mut rig = ending(SOON);
    rig.submit(Input::Kick(Id(1))).lost(1, LossCause::Kicked); // its body may continue
    rig.live(SOON * 2).lost(1, LossCause::Shutdown);
    assert!(!rig.is_finished() && rig.has("locks/a/a1"));
    rig.give_back(1);
    assert!(is_finished_without_a_key(&rig));
}

#[test]
fn lease_of_a_body_that_does_not_end_runs_out() {
    let mut rig = ending(SOON);
    rig.live(SOON * 2).lost(1, LossCause::Shutdown).live(WHOLE + 3 * SECOND);
    assert!(is_finished_without_a_key(&rig), "neither renewed nor revoked");
}

#[test]
fn lease_that_is_granted_meanwhile_is_revoked() {
    let mut rig = Rig::new();
    let grant = rig.acquire(1, A).take(any);
    rig.shut_down(SOON);
    assert!(!rig.is_finished());
    rig.carry_out(grant).serve();
    assert!(rig.is_finished() && rig.store.leases().is_empty());
}

#[test]
fn shutdown_ends_although_etcd_is_gone() {
    let mut rig = ending(SOON);
    rig.release(1);
    for _ in 0..50 {
        rig.pass(millis(100)).fail_all(unknown);
    }
    assert!(rig.is_finished());
}

/// Two calls hold their names during a shutdown. The key of the first was just moved to a separate lease.
fn moved() -> Rig {
    let mut rig = Rig::holding();
    rig.hold(2, B).live(SOON * 5); // now the keys are watched
    rig.shut_down(SOON * 10).contend("locks/a/a1").report().release_as(1, Release::Moved, true);
    rig
}

#[test]
fn moved_key_outlives_its_session() {
    let mut rig = moved();
    rig.give_back(2);
    assert!(rig.is_finished() && rig.has("locks/a/a1") && !rig.has("locks/b/a1"));
    assert_eq!(rig.store.leases().len(), 1, "the session is revoked");
}

/// A new key of this process would have the same name, and replace it.
#[test]
fn name_of_a_moved_key_stays_closed() {
    let mut rig = moved();
    rig.nest(3, &[A], 2).live(SOON * 2).nothing_about(3);
    assert!(rig.core.has_waiters() && !rig.is_finished());
    rig.live(SOON * 10);
    assert!(matches!(rig.refused(3), Refused::ShuttingDown));
    rig.release(2).serve();
    assert!(rig.is_finished() && rig.has("locks/a/a1"));
}
