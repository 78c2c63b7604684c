//! Tests of the judge of bounds.

use super::*;
use crate::history::Run;

#[test]
fn a_call_beyond_its_bound_is_found() {
    let story = |at| {
        Story::default()
            .asks(0, 1, 1)
            .begins(at, 1, 1, 1)
            .ends(at + 1, 1, 1)
    };
    story(12_900).holds_all();
    story(13_100).breaks(Breach::Bound);
    // It never returns.
    Story::default()
        .asks(0, 1, 1)
        .add(14_000, What::Over)
        .breaks(Breach::Bound);
}

#[test]
fn time_in_which_a_process_was_stopped_does_not_count() {
    Story::default()
        .asks(0, 1, 1)
        .stops(1_000, 9_000, 1)
        .begins(20_000, 1, 1, 1)
        .ends(20_001, 1, 1)
        .holds_all();
}

#[test]
fn time_in_which_the_machine_stood_still_does_not_count() {
    Story::default()
        .asks(0, 1, 1)
        .says(9_000, 1, Said::Stalled { since: ms(1_000) })
        .returns(20_000, 1, 1, Outcome::Busy)
        .holds_all();
}

#[test]
fn a_release_that_takes_too_long_is_found() {
    let ended = Said::Ended {
        call: 1,
        held: true,
        how: Ending::Done,
    };
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
        let asked = Asked {
            at_least: 500,
            ..asked(&["hot/0"], Mode::Exclusive)
        };
        let story = Story::default()
            .asks_as(0, 1, 1, asked)
            .begins(0, 1, 1, 1)
            .ends(10, 1, 1);
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
        let asked = Asked {
            wait: Some(0),
            ..asked(&["hot/0"], Mode::Exclusive)
        };
        Story::default()
            .asks_as(20_000, 1, 1, asked)
            .returns(24_000, 1, 1, Outcome::Busy)
    };
    story().breaks(Breach::Bound);
    story()
        .fault(19_000, 25_000, "leader frozen", &[])
        .holds_all();
}

#[test]
fn a_call_returns_soon_after_its_loss() {
    let story = |returned| {
        let ended = Said::Ended {
            call: 1,
            held: false,
            how: Ending::Dropped,
        };
        let lost = Outcome::Lost("Expired".to_owned());
        Story::default()
            .fault(0, 3_000, "worker cut off", &[])
            .asks(0, 1, 1)
            .begins(0, 1, 1, 1)
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
        let story = bodies.step_by(lasts as usize).fold(story, |story, at| {
            story.holds(at, at + lasts - 10, 2, at, at as i64)
        });
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
fn time_that_is_judged_is_without_faults_and_what_follows() {
    let verdicts = Story::default()
        .add(0, What::Run(Run::default()))
        .fault(100_000, 101_000, "leader killed", &[])
        .stalls(110_000, 111_000, 1)
        .stalls(180_000, 180_300, 1)
        .add(200_000, What::Draining)
        .judged();
    assert_eq!(verdicts.errors_judged, ms(200_000 - 26_000));
}
