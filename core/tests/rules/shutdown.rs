//! Shutdown: refuses calls, waits for bodies, revokes leases, finishes (rule P26).

use std::time::Duration;

use etcd_locked_core::{Input, LossCause, Op, Output, Refused, Request, Txn, Wait};
use etcd_locked_sim::etcd::unknown;

use crate::SOON;
use crate::rig::{Rig, TTL};

fn ending(grace: Duration) -> Rig {
    let mut rig = Rig::warm();
    rig.acquire(1, "locks/a", Wait::Forever);
    rig.queue(2, "locks/a");
    rig.granted(1);
    rig.shut_down(grace);
    rig
}

#[test]
fn shutdown_refuses_calls_and_waits_for_bodies() {
    let mut rig = ending(SOON * 10);
    rig.acquire(3, "locks/b", Wait::Forever);
    assert!(matches!(rig.refused(2), Refused::ShuttingDown));
    assert!(matches!(rig.refused(3), Refused::ShuttingDown));
    rig.live(SOON * 2);
    assert!(!rig.is_finished() && rig.output(1).is_none() && rig.has("locks/a/a1"));
    rig.give_back(1);
    assert!(matches!(rig.output(1), Some(Output::Released { result: Ok(()), .. })));
    assert!(rig.is_finished() && rig.store.kvs().next().is_none() && rig.store.leases().is_empty());
}

#[test]
fn bodies_lose_their_locks_when_the_grace_is_over() {
    let mut rig = ending(SOON);
    rig.live(SOON * 2);
    assert_eq!(rig.lost(1), LossCause::Shutdown);
    assert!(!rig.is_finished() && rig.has("locks/a/a1"));
    rig.give_back(1);
    assert!(rig.is_finished() && rig.store.kvs().next().is_none());
}

#[test]
fn lease_of_a_body_that_does_not_end_runs_out() {
    let mut rig = ending(SOON);
    rig.live(SOON * 2);
    assert_eq!(rig.lost(1), LossCause::Shutdown);
    rig.live(Duration::from_secs(TTL as u64 + 3));
    assert!(rig.is_finished() && rig.store.kvs().next().is_none(), "neither renewed nor revoked");
}

/// The first call has asked for it.
#[test]
fn lease_that_is_granted_meanwhile_is_revoked() {
    let mut rig = Rig::new();
    rig.acquire(1, "locks/a", Wait::Forever);
    let grant = rig.take();
    rig.shut_down(SOON);
    assert!(!rig.is_finished());
    rig.carry_out(grant);
    rig.serve();
    assert!(rig.is_finished() && rig.store.leases().is_empty());
}

#[test]
fn shutdown_ends_although_etcd_is_gone() {
    let mut rig = ending(SOON);
    rig.release(1);
    for _ in 0..50 {
        rig.pass(Duration::from_millis(100));
        rig.fail_all(unknown);
    }
    assert!(rig.is_finished());
}

/// Two calls hold their names during a shutdown; the key of the first has just got a lease of its own.
fn moved() -> Rig {
    let mut rig = Rig::warm();
    rig.hold(1, "locks/a");
    rig.hold(2, "locks/b");
    rig.live(SOON * 5); // from now on the keys are watched
    rig.shut_down(SOON * 10);
    let lease = rig.store.grant(rig.now, Duration::from_secs(60));
    let put = Op::Put { key: "locks/a/a1".into(), value: [].into(), lease };
    let txn = Txn { then: vec![put], ..Txn::default() };
    rig.store.apply(rig.now, &Request::Txn(txn)).expect("a lease");
    rig.report();
    rig.submit(Input::Moved(1.into()));
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
    rig.acquire_inside(3, "locks/a", 2);
    rig.live(SOON * 2);
    assert!(rig.output(3).is_none() && !rig.is_finished());
    rig.live(SOON * 10);
    assert!(matches!(rig.refused(3), Refused::ShuttingDown));
    rig.give_back(2);
    assert!(rig.is_finished() && rig.has("locks/a/a1"));
}
