//! Leases: relied on as long as the clock says, retired or lost as a whole (rules P10, P12, P26, P28, P35).

use std::time::Duration;

use super::SOON;
use super::rig::{Rig, TTL};
use etcd_locked_core::LEASES;
use etcd_locked_core::lease::State;
use etcd_locked_core::{Refusal, Request, Response};
use etcd_locked_core::{Input, Output, Refused};
use etcd_locked_core::LossCause;
use etcd_locked_core::Wait;
use crate::world::etcd::{refused, unknown};

const WHOLE: Duration = Duration::from_secs(TTL as u64);

fn holder() -> Rig {
    let mut rig = Rig::warm();
    rig.acquire(1, "locks/a", Wait::Forever);
    rig.serve();
    rig
}

#[test]
fn time_is_counted_from_when_a_renewal_was_sent() {
    let mut rig = holder();
    let deadline = rig.granted(1).deadline;
    rig.pass(WHOLE / 3);
    let sent = rig.now;
    let (renewal, request) = rig.take();
    assert!(matches!(request, Request::KeepAlive { .. }));
    rig.pass(SOON);
    rig.answer(renewal, Ok(Response::KeptAlive { ttl: WHOLE }));
    assert_eq!(
        deadline.stop(),
        Some(sent + WHOLE.mul_f64(0.99) - WHOLE / 10)
    );
}

#[test]
fn a_late_renewal_does_not_bring_a_lost_lock_back() {
    let mut rig = holder();
    let deadline = rig.granted(1).deadline;
    rig.pass(WHOLE / 3);
    let (renewal, _) = rig.take();
    rig.now = rig.now + WHOLE;
    rig.answer(renewal, Ok(Response::KeptAlive { ttl: WHOLE }));
    assert_eq!(rig.lost(1), LossCause::Expired);
    assert!(deadline.is_over(rig.now) && deadline.stop().is_none());
    let renews = |request: &Request| matches!(request, Request::KeepAlive { .. });
    let renewed = rig.sent.iter().any(|(_, request)| renews(request));
    assert!(!renewed, "nor is the lease renewed again");
}

#[test]
fn a_lost_lease_is_not_brought_back_by_a_late_bundle() {
    let mut rig = holder();
    rig.granted(1);
    rig.acquire(2, "locks/b", Wait::Forever);
    let (put, _) = rig.take();
    rig.pass(WHOLE);
    assert_eq!(rig.lost(1), LossCause::Expired);
    rig.sent.clear();
    let answer = etcd_locked_core::TxnAnswer {
        revision: 99,
        succeeded: false,
        answers: Vec::new(),
    };
    rig.answer(put, Ok(Response::Txn(answer)));
    assert!(
        rig.core
            .leases
            .values()
            .any(|l| l.state == State::Lost && l.bodies == 1)
    );
}

#[test]
fn nothing_is_granted_on_a_lease_with_less_than_half_its_time() {
    let mut rig = Rig::warm();
    rig.acquire(1, "locks/a", Wait::Forever);
    let (put, request) = rig.take();
    let answer = rig.store.apply(rig.now, &request);
    rig.pass(WHOLE * 6 / 10);
    rig.answer(put, answer);
    assert!(rig.told(1).is_none());
    rig.serve();
    rig.granted(1);
}

#[test]
fn renewals_do_not_multiply() {
    let mut rig = holder();
    let lease = *rig.core.leases.keys().next().unwrap();
    for _ in 0..20 {
        rig.pass(Duration::from_millis(100));
        let now = rig.now;
        rig.core.renew(now, lease); // as when an operator deletes keys
        rig.tell(Input::Tick);
        rig.serve();
    }
    let mut renewals = 0;
    for _ in 0..WHOLE.as_millis() * 3 / 100 {
        rig.pass(Duration::from_millis(100));
        renewals += rig
            .sent
            .iter()
            .filter(|(_, request)| matches!(request, Request::KeepAlive { .. }))
            .count();
        rig.serve();
    }
    assert!((8..=10).contains(&renewals), "{renewals} in three TTLs");
}

#[test]
fn late_answers_of_lower_revisions_are_no_wipe() {
    let mut rig = holder();
    rig.granted(1);
    // The first seal of another lease is overtaken by puts under ours.
    rig.acquire_for(2, "locks/b", Wait::Forever, TTL + 1);
    let (id, grant) = rig.take();
    let granted = rig.store.apply(rig.now, &grant);
    rig.answer(id, granted);
    let (seal, request) = rig.take();
    let sealed = rig.store.apply(rig.now, &request);
    rig.acquire(3, "locks/c", Wait::Forever);
    rig.serve();
    rig.answer(seal, sealed);
    rig.serve();
    rig.granted(2);
    assert!(rig.told(1).is_none());
}

#[test]
fn a_read_from_a_lagging_member_is_no_wipe() {
    let mut rig = holder();
    rig.granted(1);
    rig.contend("locks/b/zz");
    rig.acquire(2, "locks/b", Wait::Forever);
    let (put, request) = rig.take_puts();
    let answer = rig.store.apply(rig.now, &request);
    rig.answer(put, answer);
    let (look, request) = rig.take();
    let Request::Txn(txn) = request else {
        panic!("not a look")
    };
    let stale = rig.store.stale(&txn, 3);
    rig.answer(look, Ok(Response::Txn(stale)));
    rig.serve();
    rig.live(SOON);
    assert!(rig.told(1).is_none() && rig.told(2).is_none());
    assert_eq!(rig.lease(), State::Open);
}

#[test]
fn a_wipe_loses_everything_and_says_so() {
    let mut rig = holder();
    rig.granted(1);
    let lease = rig.contend("locks/b/zz");
    rig.acquire(2, "locks/b", Wait::Forever);
    rig.serve();
    rig.store.wipe();
    rig.live(Duration::from_millis(100));
    assert_eq!(rig.lost(1), LossCause::Wiped);
    rig.granted(2);
    rig.release(1);
    rig.acquire(3, "locks/a", Wait::Forever);
    rig.serve();
    rig.granted(3);
    assert!(!rig.store.leases().contains(&lease));
}

#[test]
fn answers_from_before_a_wipe_do_not_make_reads_look_stale_after_it() {
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
    rig.acquire(2, "locks/b", Wait::Forever);
    rig.serve();
    rig.answer(delete, deleted);
    rig.live(SOON);
    rig.store.delete(b"locks/b/zz");
    rig.live(SOON * 15);
    rig.granted(2);
}

#[test]
fn without_its_session_key_a_lease_keeps_its_bodies_and_takes_no_more() {
    let mut rig = holder();
    rig.granted(1);
    rig.store.delete(b"locks%s/a1");
    rig.acquire(2, "locks/b", Wait::Forever);
    rig.serve();
    assert_eq!(&*rig.granted(2).owned[0].key, "locks/b/a2");
    rig.live(WHOLE * 2);
    assert!(
        rig.told(1).is_none() && rig.has("locks/a/a1"),
        "the first is still renewed"
    );
    rig.release(1);
    rig.serve();
    assert_eq!(rig.store.leases(), [0xa2]);
}

#[test]
fn a_lease_whose_seals_have_no_answer_is_retired_after_its_time() {
    let mut rig = Rig::warm();
    rig.acquire(1, "locks/a", Wait::For(WHOLE * 3));
    for _ in 0..WHOLE.as_millis() / 100 + 20 {
        rig.pass(Duration::from_millis(100));
        for (id, request) in std::mem::take(&mut rig.sent) {
            let writes = matches!(request, Request::Txn(_))
                && rig.core.leases.values().any(|l| l.id == 0xa1);
            let result = if writes {
                Err(unknown())
            } else {
                rig.store.apply(rig.now, &request)
            };
            rig.answer(id, result);
        }
    }
    rig.serve();
    assert!(!rig.store.leases().contains(&0xa1));
}

#[test]
fn a_lease_is_revoked_only_after_its_bodies_are_dropped() {
    let mut rig = holder();
    let grant = rig.granted(1);
    rig.pass(WHOLE / 3);
    let (renewal, _) = rig.take();
    rig.answer(renewal, Err(refused(Refusal::LeaseNotFound)));
    assert!(grant.deadline.is_over(rig.now), "at once");
    rig.serve();
    assert_eq!(rig.lost(1), LossCause::Revoked);
    rig.live(SOON);
    assert!(rig.has("locks/a/a1"));
    rig.acquire(2, "locks/a", Wait::Forever);
    rig.live(SOON);
    assert!(rig.told(2).is_none(), "not before the body is dropped");
    rig.release(1);
    rig.serve();
    assert!(matches!(
        rig.told(1),
        Some(Output::Released { result: Err(_), .. })
    ));
    assert!(!rig.has("locks/a/a1"));
    rig.granted(2);
}

#[test]
fn a_holder_hears_of_an_operators_hand() {
    for overwritten in [true, false] {
        let mut rig = holder();
        rig.granted(1);
        rig.live(Duration::from_secs(2));
        rig.store.delete(b"locks/a/a1");
        if overwritten {
            rig.contend("locks/a/a1");
        }
        for event in rig.store.events("locks/a/", rig.store.revision()).unwrap() {
            rig.news(etcd_locked_core::WatchEvent::Changed(event));
        }
        let cause = rig.lost(1);
        assert_eq!(
            cause,
            if overwritten {
                LossCause::Overwritten
            } else {
                LossCause::Deleted
            }
        );
    }
}

#[test]
fn a_call_is_told_that_the_session_keys_are_forbidden_not_its_own() {
    let mut rig = Rig::new();
    rig.acquire(1, "locks/a", Wait::Forever);
    let (grant, request) = rig.take();
    let granted = rig.store.apply(rig.now, &request);
    rig.answer(grant, granted);
    let (seal, _) = rig.take();
    rig.answer(seal, Err(refused(Refusal::PermissionDenied)));
    assert!(matches!(rig.refused(1), Refused::SessionDenied(_)));
}

/// A lease takes what hangs on it along when it is lost: not everything, where there is much (rule P27).
#[test]
fn many_locks_are_spread_over_leases_and_one_takes_only_its_own_along() {
    let mut rig = Rig::spreading(3);
    let held = u64::try_from(3 * 3 * LEASES).unwrap();
    for call in 0..held {
        rig.acquire(call, &format!("locks/{call}"), Wait::Forever);
        rig.serve();
        rig.granted(call);
    }
    let bodies = |rig: &Rig| -> Vec<usize> { rig.core.leases.values().map(|l| l.bodies).collect() };
    assert_eq!(
        bodies(&rig).len(),
        LEASES,
        "renewals do not grow with the locks"
    );
    assert!(bodies(&rig).iter().all(|bodies| *bodies >= 3));
    let lost = rig.core.leases.values().next().unwrap();
    let (lost, its) = (lost.id, lost.bodies);
    rig.store.revoke(lost);
    rig.live(WHOLE);
    let gone = (0..held).filter(|call| rig.told(*call).is_some()).count();
    assert_eq!(gone, its);
}

#[test]
fn leases_that_nothing_hangs_on_any_more_are_given_back_but_one() {
    let mut rig = Rig::spreading(3);
    for call in 0..20 {
        rig.acquire(call, &format!("locks/{call}"), Wait::Forever);
        rig.serve();
        rig.granted(call);
    }
    assert!(rig.core.leases.len() > 1);
    for call in 0..20 {
        rig.release(call);
    }
    rig.serve();
    rig.live(WHOLE);
    assert_eq!(rig.core.leases.len(), 1);
    assert_eq!(rig.store.leases().len(), 1);
    rig.acquire(100, "locks/a", Wait::Forever);
    rig.serve();
    rig.granted(100);
}
