//! Lists and guards: held keys are watched after one second of holding, regardless of reads meanwhile (rule P18). Once a minute
//! they are listed, in case a silent watch hides a loss (rule P17).

use crate::*;

const MINUTE: Duration = Duration::from_secs(60);

/// A session that holds two names, whose watches are open and silent.
fn holder() -> Rig {
    let mut rig = Rig::holding();
    rig.hold(2, B).live(3 * SECOND);
    rig
}

/// The same session with a list due that has not reached etcd.
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
    let mut rig = holder();
    rig.acquire(3, A).release(1).serve(); // after this hand-over
    assert_eq!(rig.count(3 * MINUTE, reads), 0);
}

#[test]
fn session_without_a_holder_is_not_listed() {
    let mut rig = holder();
    rig.give_back(1).give_back(2);
    assert_eq!(rig.count(2 * MINUTE, lists), 0);
}

/// Reads of many keys return no leases (etcd#22209), so the holder reads its own key once more, with its lease.
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

/// The list may come from a member that lags.
#[test]
fn missing_key_is_lost_only_if_a_read_shows_so() {
    let mut rig = listing();
    rig.answer(lists, Ok(Response::Listed(Some(Vec::new()))));
    assert!(rig.under_way(reads) > 0);
    rig.live(SOON).nothing_about(1).nothing_about(2);
}

#[test]
fn list_from_before_a_grant_does_not_affect_it() {
    let mut rig = listing();
    let list = rig.applied(lists);
    rig.pass(millis(1)).hold(3, C).deliver(list).sends_nothing();
}

#[test]
fn names_are_read_in_turn_without_a_list() {
    let failures = [unavailable(), unknown(), refused(Refusal::PermissionDenied)].map(Err);
    for answer in failures.into_iter().chain([Ok(Response::Listed(None))]) {
        let mut rig = listing();
        rig.delete_unseen("locks/a/a1").answer(lists, answer).pass(SOON).come_back();
        assert_eq!(rig.count(MINUTE, reads), 1, "both in one read");
        rig.lost(1, LossCause::Gone);
    }
}

/// The renewal shows whether the lease is gone. Until then its names are only read in turn.
#[test]
fn list_of_a_lease_that_is_gone_renews_it_at_once() {
    let mut rig = listing();
    rig.answer(lists, Err(refused(Refusal::LeaseNotFound)));
    assert_eq!((rig.sent.len(), rig.under_way(renews)), (1, 1), "{:?}", rig.sent);
}

/// Lets time pass. etcd responds to everything but reads.
fn live_without_reads(rig: &mut Rig, time: u64) {
    for _ in 0..time / 50 {
        rig.pass(millis(50)).serve_all(|request| !reads(request));
    }
}

fn is_guarded(rig: &Rig) -> bool {
    rig.watched().contains(&"locks/a/a1")
}

#[test]
fn key_that_is_read_again_in_its_first_second_is_watched() {
    let mut rig = Rig::reading();
    rig.pass(millis(200)).share(2, A, Mode::Shared, Wait::Forever);
    rig.fail_all(unavailable); // this read was to show whether another process waits
    rig.live(millis(500)).granted(2);
    assert!(!is_guarded(&rig));
    rig.live(SECOND);
    assert!(is_guarded(&rig));
}

#[test]
fn key_that_is_being_read_after_a_second_is_watched() {
    let mut rig = Rig::holding();
    rig.acquire(2, A).acquire(3, A);
    live_without_reads(&mut rig, 100);
    rig.release(1); // the next call needs a read
    live_without_reads(&mut rig, 950);
    rig.release(2).granted(3);
    live_without_reads(&mut rig, 50);
    rig.serve();
    assert!(!is_guarded(&rig), "held for less than a second");
    rig.live(SECOND);
    assert!(is_guarded(&rig));
}
