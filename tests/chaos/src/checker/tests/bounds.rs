//! Tests of the judge of bounds.

use super::*;
use crate::history::Run;

#[test]
fn a_call_beyond_its_bound_is_found() {
    let story = |at| {
        Story::default().holds(0, at - 10, 2, 1, 0).asks(0, 1, 1).begins(at, 1, 1, 1).ends(
            at + 1,
            1,
            1,
        )
    };
    story(12_900).holds_all();
    story(13_100).breaks(Breach::Bound);
    // It never returns.
    Story::default()
        .holds(0, 13_990, 2, 1, 0)
        .asks(0, 1, 1)
        .add(14_000, What::Over)
        .breaks(Breach::Bound);
}

#[test]
fn time_in_which_a_process_was_stopped_does_not_count() {
    Story::default()
        .holds(0, 19_990, 2, 1, 0)
        .asks(0, 1, 1)
        .stops(1_000, 9_000, 1)
        .begins(20_000, 1, 1, 1)
        .ends(20_001, 1, 1)
        .holds_all();
}

#[test]
fn time_in_which_the_machine_stood_still_does_not_count() {
    Story::default()
        .holds(0, 19_990, 2, 1, 0)
        .asks(0, 1, 1)
        .says(9_000, 1, Said::Stalled { since: ms(1_000) })
        .returns(20_000, 1, 1, Outcome::Busy)
        .holds_all();
}

#[test]
fn a_release_that_takes_too_long_is_found() {
    let ended = Said::Ended { call: 1, held: true, how: Ending::Done };
    Story::default()
        .asks(0, 1, 1)
        .begins(0, 1, 1, 1)
        .says(10, 1, ended)
        .returns(6_000, 1, 1, Outcome::Done)
        .breaks(Breach::Bound);
}

#[test]
fn a_retention_cut_short_is_found() {
    let story = |next| {
        let asked = Asked { at_least: 500, ..asked(&["hot/0"], Mode::Exclusive) };
        let story = Story::default().asks_as(0, 1, 1, asked).begins(0, 1, 1, 1).ends(10, 1, 1);
        story.holds(next, next + 10, 2, 1, 2)
    };
    story(501).holds_all();
    story(400).breaks(Breach::Retention);
}

#[test]
fn an_error_without_a_fault_is_found() {
    let story = |from| {
        let story = Story::default().fault(from, from + 1, "worker cut off", &[]);
        let error = Outcome::Refused("etcd failed".to_owned());
        story.asks(50_000, 1, 1).returns(50_001, 1, 1, error)
    };
    story(49_000).holds_all();
    story(34_000).breaks(Breach::Error);
}

#[test]
fn a_single_try_takes_its_time_only_by_a_fault() {
    let story = || {
        let asked = Asked { wait: Some(0), ..asked(&["hot/0"], Mode::Exclusive) };
        Story::default().holds(0, 25_000, 2, 1, 0).asks_as(20_000, 1, 1, asked).returns(
            24_000,
            1,
            1,
            Outcome::Busy,
        )
    };
    story().breaks(Breach::Bound);
    story().fault(19_000, 25_000, "leader frozen", &[]).holds_all();
}

#[test]
fn a_call_returns_soon_after_its_loss() {
    let story = |returned| {
        let ended = Said::Ended { call: 1, held: false, how: Ending::Dropped };
        let lost = Outcome::Lost("Expired".to_owned());
        Story::default()
            .fault(0, 3_000, "worker cut off", &[])
            .asks(0, 1, 1)
            .begins(0, 1, 1, 1)
            .polls(1_990, 1, 1, true)
            .says(2_000, 1, ended)
            .returns(returned, 1, 1, lost)
    };
    story(6_900).holds_all();
    story(7_100).breaks(Breach::Bound);
    // A body that goes on without its caller ends later.
    story(1_000).holds_all();
}

#[test]
fn a_call_that_is_not_served_in_calm_is_found() {
    let story = |kind, lasts: u64| {
        let story = Story::default().fault(0, 1, kind, &[]).asks(20_000, 1, 1);
        let bodies = 20_000..30_000;
        let story = bodies
            .step_by(lasts as usize)
            .fold(story, |story, at| story.holds(at, at + lasts - 10, 2, at, at as i64));
        story.returns(30_000, 1, 1, Outcome::Busy)
    };
    story("leader killed", 200).breaks(Breach::Starved);
    // Bodies that last long leave no time.
    story("leader killed", 2_000).holds_all();
    let disturbed = story("leader killed", 200).fault(19_000, 20_000, "worker killed", &[]);
    disturbed.holds_all();
}

#[test]
fn only_a_long_stall_explains_an_error() {
    let story = |stalled: u64| {
        let error = Outcome::Refused("etcd failed".to_owned());
        Story::default()
            .stalls(1_000, 1_000 + stalled, 2)
            .asks(5_000, 1, 1)
            .returns(5_001, 1, 1, error)
    };
    story(600).breaks(Breach::Error);
    story(700).holds_all();
}

#[test]
fn a_silence_of_etcd_explains_an_error() {
    let story = |silent: u64| {
        let asked = What::Silent { since: ms(49_000) };
        let story = Story::default().add(49_000 + silent, asked);
        ends_so(story, 1, 2, lost("Expired"))
    };
    story(600).breaks(Breach::Error);
    story(700).holds_all();
}

#[test]
fn silences_with_no_answer_between_them_are_one() {
    let story = |again: u64| {
        let silent = |from: u64, to: u64| (to, What::Silent { since: ms(from) });
        let silences = [silent(45_000, 47_000), silent(again, again + 2_000)];
        let story =
            silences.into_iter().fold(Story::default(), |story, (at, what)| story.add(at, what));
        ends_so(story, 1, 10, lost("Expired"))
    };
    story(47_150).holds_all();
    story(47_250).breaks(Breach::Error);
}

#[test]
fn time_that_is_judged_is_without_faults_and_what_follows() {
    let verdicts = Story::default()
        .add(0, What::Run(Run::default()))
        .starts(0, 1)
        .starts(0, 2)
        .fault_of(100_000, 105_000, "worker cut off", 2)
        .stalls(110_000, 114_000, 1)
        .stalls(180_000, 180_300, 1)
        .add(200_000, What::Draining)
        .judged();
    // Of the one 19 s are not judged, of the other 29 s.
    assert_eq!(verdicts.errors_judged, (400.0 - 48.0) / 400.0);
}

/// A call with a lease of this many seconds that ends so at 50 s.
fn ends_so(story: Story, process: u32, ttl: u64, outcome: Outcome) -> Story {
    let asked = Asked { ttl: ttl * 1_000, ..asked(&["hot/0"], Mode::Exclusive) };
    story
        .asks_as(50_000, process, 1, asked)
        .begins(50_000, process, 1, 1)
        .returns(50_001, process, 1, outcome)
}

fn lost(cause: &str) -> Outcome {
    Outcome::Lost(cause.to_owned())
}

#[test]
fn a_fault_of_a_worker_explains_no_error_of_another() {
    let story = |process, outcome| {
        let story = Story::default().starts(0, 1).starts(0, 2);
        let story = story.fault_of(45_000, 49_000, "worker cut off", 2);
        ends_so(story, process, 10, outcome)
    };
    for outcome in [lost("Expired"), Outcome::Refused("etcd failed".to_owned())] {
        story(2, outcome.clone()).holds_all();
        story(1, outcome).breaks(Breach::Error);
    }
}

#[test]
fn one_member_explains_no_loss_of_a_long_lease() {
    let story = |kind, ttl, outcome| {
        let story = Story::default().fault(40_000, 45_000, kind, &[]);
        ends_so(story, 1, ttl, outcome)
    };
    for kind in ["leader killed", "endpoint frozen", "member replaced"] {
        story(kind, 2, lost("Expired")).holds_all();
        story(kind, 10, lost("Expired")).breaks(Breach::Error);
        story(kind, 2, Outcome::Refused("etcd failed".to_owned())).breaks(Breach::Error);
    }
    story("endpoint refused", 2, lost("Expired")).breaks(Breach::Error);
    story("quorum killed", 10, lost("Expired")).holds_all();
}

#[test]
fn a_brief_outage_explains_no_loss_of_a_long_lease() {
    let story = |lasts: u64, ttl| {
        let story = Story::default().fault(45_000, 45_000 + lasts, "quorum frozen", &[]);
        ends_so(story, 1, ttl, lost("Expired"))
    };
    story(3_400, 10).holds_all();
    story(3_300, 10).breaks(Breach::Error);
    story(3_300, 2).holds_all();
}

#[test]
fn a_fault_long_before_a_loss_explains_nothing() {
    let story = |until, ttl| {
        let story = Story::default().fault(20_000, until, "quorum frozen", &[]);
        ends_so(story, 1, ttl, lost("Expired"))
    };
    story(35_002, 10).holds_all();
    story(34_900, 10).breaks(Breach::Error);
    story(43_002, 2).holds_all();
    story(42_900, 2).breaks(Breach::Error);
}

#[test]
fn a_delay_explains_no_loss_of_a_long_lease() {
    let story = |ttl, outcome| {
        let story = Story::default().starts(0, 1);
        let story = story.fault_of(40_000, 49_000, "delay of 80 ms", 1);
        ends_so(story, 1, ttl, outcome)
    };
    story(2, lost("Expired")).holds_all();
    story(10, lost("Expired")).breaks(Breach::Error);
}

#[test]
fn a_lease_that_etcd_revoked_is_told_apart() {
    let story = |kind| {
        let story = Story::default().fault(40_000, 45_000, kind, &[]);
        ends_so(story, 1, 10, lost("Revoked"))
    };
    assert_eq!(story("leader frozen").judged().revoked, 1);
    story("leader frozen").holds_all();
    story("leader killed").breaks(Breach::Error);
}

#[test]
fn a_key_that_is_taken_explains_the_loss_of_its_name_alone() {
    let story = |owner, kind, cause| {
        let story = Story::default().takes(49_000, kind, owner, 0);
        ends_so(story, 1, 10, lost(cause))
    };
    story(1, "key deleted", "Deleted").holds_all();
    story(2, "key deleted", "Deleted").breaks(Breach::Error);
    story(1, "key deleted", "Expired").breaks(Breach::Error);
    story(1, "lease revoked", "Revoked").holds_all();
    story(2, "lease revoked", "Revoked").breaks(Breach::Error);
    let other = Story::default().fault(49_000, 49_000, "key deleted", &["hot/1"]);
    ends_so(other, 1, 10, lost("Deleted")).breaks(Breach::Error);
    let junk = Story::default().fault(49_000, 49_000, "junk key", &["hot/0"]);
    ends_so(junk, 1, 10, lost("Deleted")).breaks(Breach::Error);
}

#[test]
fn a_body_that_hangs_until_its_process_is_killed_is_found() {
    let story = |killed| {
        Story::default()
            .asks(0, 1, 1)
            .begins(0, 1, 1, 1)
            .polls(100, 1, 1, true)
            .add(killed, What::Killed { process: 1 })
            .add(60_000, What::Over)
    };
    story(1_100).holds_all();
    story(9_000).breaks(Breach::Bound);
    story(9_000).stops(150, 8_900, 1).holds_all();
}

#[test]
fn a_retention_begins_at_the_end_of_the_one_before() {
    let story = |next| {
        let asked = || Asked { at_least: 500, ..asked(&["hot/0"], Mode::Exclusive) };
        Story::default()
            .asks_as(0, 1, 1, asked())
            .begins(0, 1, 1, 1)
            .ends(10, 1, 1)
            .asks_as(0, 2, 1, asked())
            .begins(500, 2, 1, 2)
            .ends(510, 2, 1)
            .holds(next, next + 10, 3, 1, 3)
    };
    story(1_001).holds_all();
    story(600).breaks(Breach::Retention);
}
