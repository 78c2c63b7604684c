//! Lists: once a minute a lease's keys are listed while calls hold some, so that a silent watch hides no loss for longer (rule P17).

use std::time::Duration;

use etcd_locked_core::{LossCause, Refusal, Request, RequestId, Response};
use etcd_locked_sim::etcd::{refused, unavailable, unknown};

use crate::SOON;
use crate::rig::{Rig, reads};

const MINUTE: Duration = Duration::from_secs(60);

fn lists(request: &Request) -> bool {
    matches!(request, Request::List(_))
}

/// A session that holds two names, whose watches are open and silent.
fn holder() -> Rig {
    let mut rig = Rig::warm();
    rig.hold(1, "locks/a");
    rig.hold(2, "locks/b");
    rig.live(Duration::from_secs(3));
    rig
}

/// The list of a holder that is due within a minute; etcd answers all else until then.
fn due(rig: &mut Rig) -> (RequestId, Request) {
    for _ in 0..MINUTE.as_millis() / 50 {
        rig.pass(Duration::from_millis(50));
        if let Some(list) = rig.find(lists) {
            rig.serve();
            return list;
        }
        rig.serve();
    }
    panic!("no list within a minute");
}

/// Requests of one kind in so long, all of which etcd answers.
fn count(rig: &mut Rig, time: Duration, such: fn(&Request) -> bool) -> usize {
    let mut count = 0;
    for _ in 0..time.as_millis() / 50 {
        rig.pass(Duration::from_millis(50));
        count += rig.sent.iter().filter(|(_, it)| such(it)).count();
        rig.serve();
    }
    count
}

#[test]
fn held_names_cost_one_list_a_minute_and_no_read() {
    assert!((2..=3).contains(&count(&mut holder(), 3 * MINUTE, lists)));
    assert_eq!(count(&mut holder(), 3 * MINUTE, reads), 0);
}

#[test]
fn session_without_a_holder_is_not_listed() {
    let mut rig = holder();
    rig.give_back(1);
    rig.give_back(2);
    assert_eq!(count(&mut rig, 2 * MINUTE, lists), 0);
}

#[test]
fn key_of_another_client_is_missing_and_found_out() {
    let mut rig = holder();
    let theirs = rig.contend("locks/other/zz");
    rig.store.put(b"locks/a/a1", theirs);
    rig.live(MINUTE + SOON);
    assert_eq!(rig.lost(1), LossCause::Overwritten);
    assert!(rig.output(2).is_none(), "the other name is not lost");
}

/// A member may have answered that is behind.
#[test]
fn missing_key_is_lost_only_if_a_read_shows_so() {
    let mut rig = holder();
    let (list, _) = due(&mut rig);
    rig.answer(list, Ok(Response::Listed(Some(Vec::new()))));
    assert!(rig.sent.iter().any(|(_, request)| reads(request)));
    rig.live(SOON);
    assert!(rig.output(1).is_none() && rig.output(2).is_none());
}

#[test]
fn list_of_before_a_grant_says_nothing_of_it() {
    let mut rig = holder();
    let (list, request) = due(&mut rig);
    let shown = rig.store.apply(rig.now, &request);
    rig.pass(Duration::from_millis(1));
    rig.hold(3, "locks/c");
    rig.answer(list, shown);
    assert!(rig.sent.is_empty(), "{:?}", rig.sent);
}

#[test]
fn names_are_read_in_turn_where_no_list_is_to_be_had() {
    let answers = [
        Ok(Response::Listed(None)),
        Err(unavailable()),
        Err(unknown()),
        Err(refused(Refusal::PermissionDenied)),
    ];
    for answer in answers {
        let mut rig = holder();
        let (list, _) = due(&mut rig);
        rig.store.delete(b"locks/a/a1");
        rig.answer(list, answer);
        rig.pass(SOON);
        rig.come_back();
        assert_eq!(count(&mut rig, MINUTE, reads), 1, "both in one");
        assert_eq!(rig.lost(1), LossCause::Gone);
    }
}

/// The renewal shows whether it is gone; until then its names are only to be read in turn.
#[test]
fn list_of_a_lease_that_is_gone_renews_it_at_once() {
    let mut rig = holder();
    let (list, _) = due(&mut rig);
    rig.answer(list, Err(refused(Refusal::LeaseNotFound)));
    let sent: Vec<_> = rig.sent.iter().map(|(_, request)| request).collect();
    assert!(matches!(sent[..], [Request::KeepAlive { .. }]), "{sent:?}");
}
