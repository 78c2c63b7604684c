//! The shutdown: refuses, waits, cancels, revokes, finishes (rule P26).

use std::time::Duration;

use super::SOON;
use super::rig::{Rig, TTL};
use etcd_locked_core::{Input, Output, Refused};
use etcd_locked_core::LossCause;
use etcd_locked_core::Wait;
use crate::world::etcd::unknown;

fn ending(grace: Duration) -> Rig {
    let mut rig = Rig::warm();
    rig.acquire(1, "locks/a", Wait::Forever);
    rig.acquire(2, "locks/a", Wait::Forever);
    rig.serve();
    rig.granted(1);
    let until = rig.now + grace;
    rig.tell(Input::Shutdown { until });
    rig
}

#[test]
fn a_shutdown_refuses_and_waits_for_the_bodies() {
    let mut rig = ending(SOON * 10);
    rig.acquire(3, "locks/b", Wait::Forever);
    assert!(matches!(rig.refused(2), Refused::ShuttingDown));
    assert!(matches!(rig.refused(3), Refused::ShuttingDown));
    rig.live(SOON * 2);
    assert!(!rig.finished() && rig.told(1).is_none() && rig.has("locks/a/a1"));
    rig.release(1);
    rig.serve();
    assert!(matches!(
        rig.told(1),
        Some(Output::Released { result: Ok(()), .. })
    ));
    assert!(rig.finished() && rig.store.kvs().next().is_none() && rig.store.leases().is_empty());
}

#[test]
fn when_the_grace_is_over_the_bodies_are_cancelled_and_waited_for() {
    let mut rig = ending(SOON);
    rig.live(SOON * 2);
    assert_eq!(rig.lost(1), LossCause::Shutdown);
    assert!(!rig.finished() && rig.has("locks/a/a1"));
    rig.release(1);
    rig.serve();
    assert!(rig.finished() && rig.store.kvs().next().is_none());
}

#[test]
fn a_body_that_does_not_end_keeps_its_lease_until_it_runs_out() {
    let mut rig = ending(SOON);
    rig.live(SOON * 2);
    assert_eq!(rig.lost(1), LossCause::Shutdown);
    rig.live(Duration::from_secs(TTL as u64 + 3));
    assert!(
        rig.finished() && rig.store.kvs().next().is_none(),
        "neither renewed nor revoked"
    );
}

#[test]
fn a_shutdown_does_not_wait_for_ever_for_an_etcd_that_is_gone() {
    let mut rig = ending(SOON);
    rig.release(1);
    for _ in 0..50 {
        rig.pass(Duration::from_millis(100));
        for (id, _) in std::mem::take(&mut rig.sent) {
            rig.answer(id, Err(unknown()));
        }
    }
    assert!(rig.finished());
}
