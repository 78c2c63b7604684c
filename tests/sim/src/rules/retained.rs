//! Names that stay locked after an early end: on a lease of their own, and no longer than they are to (rule P39).

use std::time::Duration;

use super::SOON;
use super::rig::{Rig, TTL, deletes, puts};
use etcd_locked_core::Mode;
use etcd_locked_core::queue::Slot;
use etcd_locked_core::{LeaseId, Request, Revision};
use etcd_locked_core::{CallId, Input, Output, Refused, Release};
use etcd_locked_core::LossCause;
use etcd_locked_core::Wait;
use crate::world::etcd::unknown;

/// How long the name of call 1 is to stay locked, from when it has it.
const LONG: Duration = Duration::from_secs(20);

fn keep(rig: &mut Rig, call: CallId, time: Duration) {
    let until = rig.now + time;
    rig.tell(Input::Keep { call, until });
}

/// Call 1 has the name, which is to stay locked; its body has not ended.
fn holding() -> Rig {
    let mut rig = Rig::warm();
    rig.acquire(1, "locks/a", Wait::Forever);
    rig.serve();
    rig.granted(1);
    keep(&mut rig, 1, LONG);
    rig
}

/// The lease and the create revision of the key.
fn key(rig: &Rig) -> Option<(LeaseId, Revision)> {
    let kv = rig.store.kv(b"locks/a/a1")?;
    Some((kv.lease, kv.create_revision))
}

fn released(rig: &mut Rig, call: CallId) -> Result<(), Refused> {
    match rig.told(call) {
        Some(Output::Released { result, .. }) => result,
        other => panic!("call {call} is told {other:?}"),
    }
}

#[test]
fn an_early_end_leaves_the_same_key_under_a_lease_of_its_own() {
    let mut rig = holding();
    let (pooled, created) = key(&rig).unwrap();
    rig.acquire(2, "locks/a", Wait::Forever);
    rig.release(1);
    let (grant, request) = rig.take();
    assert!(matches!(request, Request::Grant { ttl_secs: 20 }));
    assert!(rig.told(1).is_none(), "not before etcd has it");
    let granted = rig.store.apply(rig.now, &request);
    rig.answer(grant, granted);
    rig.serve();
    assert!(matches!(released(&mut rig, 1), Ok(())));
    let (own, same) = key(&rig).unwrap();
    assert_ne!(own, pooled);
    assert_eq!(same, created);
    // Neither handed on nor renewed, and the call that waits here gets it once the time is over.
    rig.live(LONG - SOON);
    assert!(rig.told(2).is_none() && rig.has("locks/a/a1"));
    rig.live(SOON * 2);
    let grant = rig.granted(2);
    assert!(grant.owned[0].created > created && grant.owned[0].handover == 0);
}

#[test]
fn it_goes_by_itself_if_its_process_does() {
    let mut rig = holding();
    rig.release(1);
    rig.serve();
    let (own, _) = key(&rig).unwrap();
    let most = LONG + Duration::from_secs(1);
    let end = rig.now + most;
    while rig.now < end {
        rig.now = rig.now + SOON;
        rig.store.expire(rig.now);
        let early = rig.now + SOON + Duration::from_secs(1) < end;
        assert!(!early || key(&rig).is_some_and(|(lease, _)| lease == own));
    }
    assert!(key(&rig).is_none());
}

#[test]
fn an_end_in_time_leaves_nothing_and_hands_on() {
    let mut rig = holding();
    rig.acquire(2, "locks/a", Wait::Forever);
    rig.live(LONG);
    rig.release(1);
    assert_eq!(rig.granted(2).owned[0].handover, 1);
    rig.release(2);
    rig.serve();
    assert!(key(&rig).is_none());
    assert!(matches!(released(&mut rig, 1), Ok(())));
}

#[test]
fn a_body_that_never_began_promises_nothing() {
    let mut rig = Rig::warm();
    rig.acquire(1, "locks/a", Wait::Forever);
    rig.serve();
    rig.granted(1);
    rig.tell(Input::Release {
        call: 1,
        how: Release::Unconfirmed,
        fenced: false,
    });
    keep(&mut rig, 1, LONG);
    rig.serve();
    assert!(key(&rig).is_none());
}

#[test]
fn a_single_try_here_is_told_who_had_it() {
    let mut rig = holding();
    rig.release(1);
    rig.serve();
    rig.acquire(2, "locks/a", Wait::Once);
    match rig.refused(2) {
        Refused::Held {
            holder: Some(holder),
            ..
        } => assert_eq!(&*holder, b"call 1"),
        other => panic!("{other:?}"),
    }
    rig.acquire(3, "locks/a", Wait::For(SOON));
    rig.live(SOON * 2);
    assert!(matches!(
        rig.refused(3),
        Refused::Timeout {
            holder: Some(_),
            ..
        }
    ));
}

#[test]
fn what_lingers_gives_way_to_what_is_kept() {
    let mut rig = holding();
    rig.tell(Input::Release {
        call: 1,
        how: Release::Lingering,
        fenced: false,
    });
    rig.acquire(2, "locks/a", Wait::Forever);
    rig.serve();
    assert!(rig.told(1).is_none() && rig.told(2).is_none());
    assert!(matches!(rig.slot("locks/a"), Slot::Retained));
}

#[test]
fn a_shutdown_keeps_the_promise() {
    let mut rig = holding();
    rig.release(1);
    let until = rig.now + SOON;
    rig.tell(Input::Shutdown { until });
    assert!(!rig.finished());
    rig.serve();
    assert!(rig.finished());
    let (own, _) = key(&rig).unwrap();
    assert_eq!(rig.store.leases(), [own], "the others are revoked");
    let end = rig.now + LONG;
    rig.store.expire(end - SOON);
    assert!(key(&rig).is_some());
    rig.store.expire(end);
    assert!(key(&rig).is_none());
}

#[test]
fn a_body_that_a_shutdown_ends_keeps_it_too() {
    let mut rig = holding();
    let until = rig.now + SOON;
    rig.tell(Input::Shutdown { until });
    rig.live(SOON * 2);
    assert_eq!(rig.lost(1), LossCause::Shutdown);
    rig.release(1);
    rig.serve();
    assert!(rig.finished());
    let (own, _) = key(&rig).unwrap();
    assert_eq!(rig.store.leases(), [own]);
}

#[test]
fn without_etcd_a_shutdown_ends_with_the_lease() {
    let mut rig = holding();
    rig.release(1);
    let until = rig.now + SOON;
    rig.tell(Input::Shutdown { until });
    for _ in 0..TTL * 10 {
        assert!(deletes_of(&rig).is_empty());
        rig.pass(Duration::from_millis(100));
        for (id, _) in std::mem::take(&mut rig.sent) {
            rig.answer(id, Err(unknown()));
        }
    }
    assert!(rig.finished());
    assert!(rig.has("locks/a/a1"), "left to run out");
}

fn deletes_of(rig: &Rig) -> Vec<&str> {
    rig.sent
        .iter()
        .flat_map(|(_, request)| deletes(request))
        .collect()
}

#[test]
fn what_has_no_answer_is_sent_again_and_does_no_harm() {
    let mut rig = holding();
    rig.release(1);
    let (grant, request) = rig.take();
    rig.answer(grant, Err(unknown()));
    // The first one was carried out all the same: a lease that nobody uses.
    rig.store.apply(rig.now, &request).unwrap();
    rig.pass(SOON);
    let (grant, request) = rig.take();
    let granted = rig.store.apply(rig.now, &request);
    rig.answer(grant, granted);
    let (put, first) = rig.take();
    assert_eq!(puts(&first), ["locks/a/a1"]);
    rig.answer(put, Err(unknown()));
    rig.pass(SOON);
    rig.serve();
    assert!(matches!(released(&mut rig, 1), Ok(())));
    let before = key(&rig).unwrap();
    rig.store.apply(rig.now, &first).unwrap();
    assert_eq!(key(&rig).unwrap(), before, "the same once more");
    // And late, when the name is somebody else's, it does nothing.
    rig.acquire(2, "locks/a", Wait::Forever);
    rig.live(LONG);
    rig.granted(2);
    let before = key(&rig).unwrap();
    rig.store.apply(rig.now, &first).unwrap();
    assert_eq!(key(&rig).unwrap(), before);
}

#[test]
fn the_lease_it_was_under_stays_until_it_has_its_own() {
    let mut rig = holding();
    rig.release(1);
    let (grant, request) = rig.take();
    // For longer than that lease would live, and it is renewed as if the body ran.
    for _ in 0..TTL * 30 {
        rig.pass(Duration::from_millis(50));
        rig.store.expire(rig.now);
        rig.serve();
    }
    let granted = rig.store.apply(rig.now, &request);
    rig.answer(grant, granted);
    rig.serve();
    let (own, _) = key(&rig).expect("renewed meanwhile");
    // From now on it may be lost with all that is under it.
    let pooled: Vec<_> = rig
        .store
        .leases()
        .into_iter()
        .filter(|lease| *lease != own)
        .collect();
    for lease in pooled {
        rig.store.revoke(lease);
    }
    rig.live(SOON);
    assert_eq!(key(&rig).map(|(lease, _)| lease), Some(own));
}

#[test]
fn a_lost_lock_promises_nothing() {
    let mut rig = holding();
    let (pooled, _) = key(&rig).unwrap();
    rig.store.revoke(pooled);
    rig.live(Duration::from_secs(TTL as u64));
    assert!(rig.told(1).is_some());
    rig.release(1);
    rig.serve();
    rig.acquire(2, "locks/a", Wait::Forever);
    rig.serve();
    rig.granted(2);
}

#[test]
fn a_group_is_kept_together_and_what_an_operator_takes_is_free() {
    let mut rig = Rig::warm();
    rig.acquire_all(1, &["locks/a", "locks/b"], Wait::Forever);
    rig.serve();
    rig.granted(1);
    keep(&mut rig, 1, LONG);
    rig.release(1);
    rig.store.delete(b"locks/b/a1");
    rig.serve();
    assert!(matches!(released(&mut rig, 1), Ok(())));
    assert_eq!(rig.core.retentions.len(), 1);
    rig.acquire(2, "locks/b", Wait::Forever);
    rig.acquire(3, "locks/a", Wait::Forever);
    rig.serve();
    rig.granted(2);
    assert!(rig.told(3).is_none());
    rig.live(LONG + SOON);
    rig.granted(3);
    assert!(rig.core.retentions.is_empty());
}

/// An operator has taken all of it: what was to keep it goes too.
#[test]
fn a_lease_that_has_nothing_to_keep_is_given_back() {
    let mut rig = holding();
    rig.release(1);
    let (grant, request) = rig.take();
    let granted = rig.store.apply(rig.now, &request);
    rig.store.delete(b"locks/a/a1");
    rig.answer(grant, granted);
    rig.serve();
    assert!(matches!(released(&mut rig, 1), Ok(())));
    assert_eq!(rig.store.leases().len(), 1, "only the pooled one is left");
    assert!(rig.core.retentions.is_empty() && rig.core.queues.is_empty());
}

/// A rate limiter: so many in a time, and not only at a time.
#[test]
fn a_permit_is_kept_as_a_name_is() {
    let of = Mode::Permits(2.try_into().unwrap());
    let mut rig = Rig::warm();
    for call in [1, 2, 3] {
        rig.share(call, "locks/a", of, Wait::Forever);
    }
    rig.serve();
    rig.granted(1);
    rig.granted(2);
    keep(&mut rig, 1, LONG);
    rig.release(1);
    rig.serve();
    assert!(matches!(released(&mut rig, 1), Ok(())));
    assert!(rig.told(3).is_none() && rig.has("locks/a/a1.p2.0"));
    rig.share(4, "locks/a", of, Wait::Once);
    assert!(matches!(rig.refused(4), Refused::Held { .. }));
    // The other one is given back at once, and handed on.
    rig.release(2);
    rig.granted(3);
    rig.release(3);
    rig.serve();
    rig.share(5, "locks/a", of, Wait::Once);
    rig.serve();
    rig.granted(5);
    rig.share(6, "locks/a", of, Wait::Forever);
    rig.live(LONG - SOON);
    assert!(rig.told(6).is_none());
    rig.live(SOON * 2);
    rig.granted(6);
}

#[test]
fn the_shortest_lease_is_cut_short() {
    let mut rig = holding();
    rig.acquire(2, "locks/a", Wait::Forever);
    rig.live(LONG - SOON);
    rig.release(1);
    assert!(
        rig.sent
            .iter()
            .any(|(_, request)| matches!(request, Request::Grant { ttl_secs: 2 }))
    );
    rig.serve();
    rig.live(SOON * 2);
    rig.granted(2);
}
