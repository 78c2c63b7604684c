//! Retention: names stay locked after an early end, on a lease of their own, and no longer than they are to (rule P39).

use std::time::Duration;

use etcd_locked_core::{
    Contender, Input, LeaseId, LossCause, Mode, Owner, Refused, Release, Request, Revision, Wait,
};
use etcd_locked_sim::etcd::unknown;

use crate::SOON;
use crate::rig::{Rig, TTL, deletes, puts, reads};

/// How long the name of call 1 is to stay locked, from when it has it.
const LONG: Duration = Duration::from_secs(20);

/// Call 1 has the name, which is to stay locked; its body has not ended.
fn holding() -> Rig {
    let mut rig = Rig::warm();
    rig.hold(1, "locks/a");
    rig.retain(1, LONG);
    rig
}

/// The lease and the create revision of the key.
fn key(rig: &Rig) -> Option<(LeaseId, Revision)> {
    let kv = rig.store.kv(b"locks/a/a1")?;
    Some((kv.lease?, kv.create_revision))
}

#[test]
fn early_end_leaves_the_key_under_a_lease_of_its_own() {
    let mut rig = holding();
    let (pooled, created) = key(&rig).expect("a value");
    rig.acquire(2, "locks/a", Wait::Forever);
    rig.release(1);
    let (grant, request) = rig.take();
    assert!(matches!(request, Request::Reserve(20)));
    assert!(rig.output(1).is_none(), "not before etcd has it");
    rig.carry_out((grant, request));
    rig.serve();
    assert!(matches!(rig.released(1), Ok(())));
    let (own, same) = key(&rig).expect("a value");
    assert_ne!(own, pooled);
    assert_eq!(same, created);
    // Neither handed on nor renewed, and the call that waits here gets it once the time is over.
    rig.live(LONG - SOON);
    assert!(rig.output(2).is_none() && rig.has("locks/a/a1"));
    rig.live(SOON * 2);
    let grant = rig.granted(2);
    assert!(grant.owned[0].created > created && grant.owned[0].handover == 0);
}

#[test]
fn retained_key_goes_though_its_process_is_gone() {
    let mut rig = holding();
    rig.give_back(1);
    let (own, _) = key(&rig).expect("a value");
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
fn end_in_time_hands_over_and_leaves_no_key() {
    let mut rig = holding();
    rig.acquire(2, "locks/a", Wait::Forever);
    rig.live(LONG);
    rig.release(1);
    assert_eq!(rig.granted(2).owned[0].handover, 1);
    rig.give_back(2);
    assert!(key(&rig).is_none());
    assert!(matches!(rig.released(1), Ok(())));
}

#[test]
fn body_that_never_began_retains_nothing() {
    let mut rig = Rig::warm();
    rig.hold(1, "locks/a");
    rig.release_as(1, Release::Unconfirmed, false);
    rig.retain(1, LONG);
    rig.serve();
    assert!(key(&rig).is_none());
}

#[test]
fn refused_try_names_the_last_holder() {
    let mut rig = holding();
    rig.give_back(1);
    rig.acquire(2, "locks/a", Wait::Once);
    match rig.refused(2) {
        Refused::Held { owner: Some(Owner { record: holder, .. }), .. } => {
            assert_eq!(&*holder, b"call 1")
        }
        other => panic!("{other:?}"),
    }
    rig.acquire(3, "locks/a", Wait::For(SOON));
    rig.live(SOON * 2);
    assert!(matches!(rig.refused(3), Refused::Timeout { owner: Some(_), .. }));
}

#[test]
fn retained_key_does_not_linger() {
    let mut rig = holding();
    rig.release_as(1, Release::Lingering, false);
    rig.queue(2, "locks/a");
    assert!(rig.output(1).is_none() && rig.output(2).is_none());
    let contenders = rig.contenders("locks/a");
    let retained = |it: &&Contender| !it.is_in_line() && it.ownership().is_none();
    assert!(retained(&contenders[0]) && contenders[0].created().is_some());
}

#[test]
fn shutdown_leaves_a_retained_key_its_lease() {
    let mut rig = holding();
    rig.release(1);
    rig.shut_down(SOON);
    assert!(!rig.is_finished());
    rig.serve();
    assert!(rig.is_finished());
    let (own, _) = key(&rig).expect("a value");
    assert_eq!(rig.store.leases(), [own], "the others are revoked");
    let end = rig.now + LONG;
    rig.store.expire(end - SOON);
    assert!(key(&rig).is_some());
    rig.store.expire(end);
    assert!(key(&rig).is_none());
}

#[test]
fn body_that_a_shutdown_ends_retains_its_name() {
    let mut rig = holding();
    rig.shut_down(SOON);
    rig.live(SOON * 2);
    assert_eq!(rig.lost(1), LossCause::Shutdown);
    rig.give_back(1);
    assert!(rig.is_finished());
    let (own, _) = key(&rig).expect("a value");
    assert_eq!(rig.store.leases(), [own]);
}

#[test]
fn shutdown_without_etcd_ends_with_the_lease() {
    let mut rig = holding();
    rig.release(1);
    rig.shut_down(SOON);
    for _ in 0..TTL * 10 {
        assert!(deletes_of(&rig).is_empty());
        rig.pass(Duration::from_millis(100));
        rig.fail_all(unknown);
    }
    assert!(rig.is_finished());
    assert!(rig.has("locks/a/a1"), "left to run out");
}

fn deletes_of(rig: &Rig) -> Vec<&str> {
    rig.sent.iter().flat_map(|(_, request)| deletes(request)).collect()
}

#[test]
fn unanswered_retention_is_sent_again_without_harm() {
    let mut rig = holding();
    rig.release(1);
    let (grant, request) = rig.take();
    rig.answer(grant, Err(unknown()));
    // The first one was carried out all the same: a lease that no key uses.
    rig.store.apply(rig.now, &request).expect("a value");
    rig.pass(SOON);
    let request = rig.take();
    rig.carry_out(request);
    let (put, first) = rig.take();
    assert_eq!(puts(&first), ["locks/a/a1"]);
    rig.answer(put, Err(unknown()));
    rig.pass(SOON);
    rig.serve();
    assert!(matches!(rig.released(1), Ok(())));
    let before = key(&rig).expect("a value");
    rig.store.apply(rig.now, &first).expect("a value");
    assert_eq!(key(&rig).expect("a value"), before, "the same once more");
    // Late, when another call has the name, it does nothing.
    rig.acquire(2, "locks/a", Wait::Forever);
    rig.live(LONG);
    rig.granted(2);
    let before = key(&rig).expect("a value");
    rig.store.apply(rig.now, &first).expect("a value");
    assert_eq!(key(&rig).expect("a value"), before);
}

#[test]
fn session_lives_until_the_key_has_its_own_lease() {
    let mut rig = holding();
    rig.release(1);
    let (grant, request) = rig.take();
    // For longer than that lease would live, and it is renewed as if the body ran.
    for _ in 0..TTL * 30 {
        rig.pass(Duration::from_millis(50));
        rig.store.expire(rig.now);
        rig.serve();
    }
    rig.carry_out((grant, request));
    rig.serve();
    let (own, _) = key(&rig).expect("renewed meanwhile");
    // From now on it may be lost with all that is under it.
    let pooled: Vec<_> = rig.store.leases().into_iter().filter(|lease| *lease != own).collect();
    for lease in pooled {
        rig.store.revoke(lease);
    }
    rig.live(SOON);
    assert_eq!(key(&rig).map(|(lease, _)| lease), Some(own));
}

#[test]
fn lost_lock_retains_nothing() {
    let mut rig = holding();
    let (pooled, _) = key(&rig).expect("a value");
    rig.store.revoke(pooled);
    rig.live(Duration::from_secs(TTL as u64));
    assert!(rig.output(1).is_some());
    rig.give_back(1);
    rig.hold(2, "locks/a");
}

#[test]
fn group_is_retained_though_an_operator_deletes_a_key() {
    let mut rig = Rig::warm();
    rig.hold_all(1, &["locks/a", "locks/b"]);
    rig.retain(1, LONG);
    rig.release(1);
    rig.store.delete(b"locks/b/a1");
    rig.serve();
    assert!(matches!(rig.released(1), Ok(())));
    rig.acquire(2, "locks/b", Wait::Forever);
    rig.queue(3, "locks/a");
    assert!(rig.output(3).is_none());
    rig.live(LONG + SOON);
    rig.granted(2);
    rig.granted(3);
    assert_eq!(rig.store.leases().len(), 1);
}

/// An operator has taken all of it: what was to keep it goes too.
#[test]
fn lease_without_a_key_to_retain_is_revoked() {
    let mut rig = holding();
    rig.release(1);
    let (grant, request) = rig.take();
    let granted = rig.store.apply(rig.now, &request);
    rig.store.delete(b"locks/a/a1");
    rig.answer(grant, granted);
    rig.serve();
    assert!(matches!(rig.released(1), Ok(())));
    assert_eq!(rig.store.leases().len(), 1, "only the pooled one is left");
    assert!(rig.is_idle());
}

/// An operator takes the key away, which a watch tells at once where it had been held for a second; else a read within a minute.
#[test]
fn name_whose_retained_key_is_gone_is_free_here_too() {
    for held in [Duration::ZERO, SOON * 5] {
        let mut rig = Rig::warm();
        rig.hold(1, "locks/a");
        rig.live(held);
        rig.retain(1, LONG * 10);
        rig.give_back(1);
        rig.acquire(2, "locks/a", Wait::Forever);
        rig.live(SOON);
        assert!(rig.output(2).is_none());
        rig.store.delete(b"locks/a/a1");
        rig.report();
        rig.live(if held.is_zero() { LONG * 4 } else { SOON });
        rig.granted(2);
    }
}

#[test]
fn history_that_is_lost_retains_nothing() {
    let mut rig = Rig::warm();
    rig.hold(1, "locks/a");
    rig.retain(1, LONG * 10);
    rig.give_back(1);
    rig.store.wipe();
    rig.acquire(2, "locks/a", Wait::Forever);
    rig.live(LONG * 4);
    rig.granted(2);
}

/// Two reads are under way, and the later one is answered first: each tells of the keys by their names.
#[test]
fn group_stays_retained_in_whatever_order_reads_show_losses() {
    let mut rig = Rig::warm();
    rig.hold_all(1, &["locks/a", "locks/b", "locks/c"]);
    rig.live(SOON * 5); // from now on its keys are watched
    rig.retain(1, LONG);
    rig.give_back(1);
    assert!(matches!(rig.released(1), Ok(())));
    let mut under_way = Vec::new();
    for key in [b"locks/a/a1", b"locks/b/a1"] {
        rig.store.delete(key);
        rig.report();
        let (id, read) = rig.take_that(reads);
        let answer = rig.store.apply(rig.now, &read);
        under_way.push((id, answer));
    }
    while let Some((id, answer)) = under_way.pop() {
        rig.answer(id, answer);
    }
    rig.acquire(2, "locks/c", Wait::Forever);
    rig.live(SOON);
    assert!(rig.output(2).is_none() && rig.has("locks/c/a1"));
    rig.live(LONG);
    rig.granted(2);
}

/// A read of the holder is answered between the move of its keys and the answer to that.
#[test]
fn group_stays_retained_though_a_read_of_its_holder_is_late() {
    let mut rig = Rig::warm();
    rig.hold_all(1, &["locks/a", "locks/b"]);
    rig.live(SOON * 5);
    rig.retain(1, LONG);
    rig.submit(Input::Inspect);
    let (read, request) = rig.take_that(reads);
    rig.store.delete(b"locks/a/a1");
    let seen = rig.store.apply(rig.now, &request);
    rig.release(1);
    let reserve = rig.take_that(|request| matches!(request, Request::Reserve(_)));
    rig.carry_out(reserve);
    rig.answer(read, seen);
    rig.serve();
    assert!(matches!(rig.released(1), Ok(())));
    let kept = rig.store.kv(b"locks/b/a1").expect("retained");
    assert_ne!(kept.lease, Some(0xa1), "on a lease of its own");
    rig.acquire(2, "locks/b", Wait::Forever);
    rig.live(SOON);
    assert!(rig.output(2).is_none());
    rig.live(LONG);
    rig.granted(2);
    rig.give_back(2);
    assert!(!rig.has("locks/b/a1"));
}

/// The session of a body that goes on after its loss writes nothing more.
#[test]
fn retained_name_is_free_after_a_wipe_beside_a_lost_body() {
    let mut rig = Rig::warm();
    rig.hold(1, "locks/a");
    rig.hold(2, "locks/b");
    rig.retain(1, LONG * 10);
    rig.give_back(1);
    rig.store.wipe();
    rig.acquire(3, "locks/a", Wait::Forever);
    rig.live(LONG * 4);
    rig.granted(3);
}

/// A rate limiter: so many in a time, and not only at a time.
#[test]
fn permit_is_retained_as_a_name_is() {
    let of = Mode::Permits(2.try_into().expect("not zero"));
    let mut rig = Rig::warm();
    for call in [1, 2, 3] {
        rig.share(call, "locks/a", of, Wait::Forever);
    }
    rig.serve();
    rig.granted(1);
    rig.granted(2);
    rig.retain(1, LONG);
    rig.give_back(1);
    assert!(matches!(rig.released(1), Ok(())));
    assert!(rig.output(3).is_none() && rig.has("locks/a/a1.p0"));
    rig.share(4, "locks/a", of, Wait::Once);
    rig.serve();
    assert!(matches!(rig.refused(4), Refused::Held { .. }));
    // The other one is given back at once, and handed on.
    rig.release(2);
    rig.granted(3);
    rig.give_back(3);
    rig.share(5, "locks/a", of, Wait::Once);
    rig.serve();
    rig.granted(5);
    rig.share(6, "locks/a", of, Wait::Forever);
    rig.live(LONG - SOON);
    assert!(rig.output(6).is_none());
    rig.live(SOON * 2);
    rig.granted(6);
}

#[test]
fn retention_ends_in_time_though_its_lease_is_longer() {
    let mut rig = holding();
    rig.acquire(2, "locks/a", Wait::Forever);
    rig.live(LONG - SOON);
    rig.release(1);
    assert!(rig.sent.iter().any(|(_, request)| matches!(request, Request::Reserve(2))));
    rig.serve();
    rig.live(SOON * 2);
    rig.granted(2);
}
