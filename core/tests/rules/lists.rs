//! Lists: once a minute a lease's keys are listed while calls hold some, so that a silent watch hides no loss for longer (rule P17).

use crate::*;

const MINUTE: Duration = Duration::from_secs(60);

/// A session that holds two names, whose watches are open and silent.
fn holder() -> Rig {
    let mut rig = Rig::holding();
    rig.hold(2, B).live(3 * SECOND);
    rig
}

/// Such a session when a list is due, which has not reached etcd.
fn listing() -> Rig {
    let mut rig = holder();
    let since = rig.now;
    while rig.under_way(lists) == 0 {
        assert!(rig.now - since < MINUTE, "no list within a minute");
        rig.pass(millis(50)).serve_all(|request| !lists(request));
    }
    rig
}

#[test]
fn held_names_cost_one_list_a_minute_and_no_read() {
    assert!((2..=3).contains(&holder().count(3 * MINUTE, lists)));
    assert_eq!(holder().count(3 * MINUTE, reads), 0);
}

#[test]
fn session_without_a_holder_is_not_listed() {
    let mut rig = holder();
    rig.give_back(1).give_back(2);
    assert_eq!(rig.count(2 * MINUTE, lists), 0);
}

/// Reads that show many keys come without leases (etcd#22209): the holder reads its own key once more, with its lease.
#[test]
fn key_that_a_list_does_not_show_is_lost() {
    for cause in [LossCause::Gone, LossCause::Overwritten] {
        let mut rig = holder();
        if cause == LossCause::Gone {
            rig.delete_unseen("locks/a/a1");
        } else {
            rig.contend("locks/a/a1");
        }
        rig.live(MINUTE + SOON).lost(1, cause).nothing_about(2); // the other name is not lost
    }
}

/// A member may have answered that is behind.
#[test]
fn missing_key_is_lost_only_if_a_read_shows_so() {
    let mut rig = listing();
    rig.answer(lists, Ok(Response::Listed(Some(Vec::new()))));
    assert!(rig.under_way(reads) > 0);
    rig.live(SOON).nothing_about(1).nothing_about(2);
}

#[test]
fn list_of_before_a_grant_says_nothing_of_it() {
    let mut rig = listing();
    let list = rig.applied(lists);
    rig.pass(millis(1)).hold(3, C).deliver(list).sends_nothing();
}

#[test]
fn names_are_read_in_turn_where_no_list_is_to_be_had() {
    let failures = [unavailable(), unknown(), refused(Refusal::PermissionDenied)].map(Err);
    for answer in failures.into_iter().chain([Ok(Response::Listed(None))]) {
        let mut rig = listing();
        rig.delete_unseen("locks/a/a1").answer(lists, answer).pass(SOON).come_back();
        assert_eq!(rig.count(MINUTE, reads), 1, "both in one");
        rig.lost(1, LossCause::Gone);
    }
}

/// The renewal shows whether it is gone; until then its names are only to be read in turn.
#[test]
fn list_of_a_lease_that_is_gone_renews_it_at_once() {
    let mut rig = listing();
    rig.answer(lists, Err(refused(Refusal::LeaseNotFound)));
    assert_eq!((rig.sent.len(), rig.under_way(renews)), (1, 1), "{:?}", rig.sent);
}
