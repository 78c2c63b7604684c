//! Tests of the judge of exclusion.

use super::*;

#[test]
fn bodies_one_after_the_other_are_well() {
    Story::default().holds(0, 10, 1, 1, 1).holds(11, 20, 2, 1, 2).holds_all();
}

#[test]
fn bodies_that_overlap_are_found() {
    Story::default().holds(0, 10, 1, 1, 1).holds(9, 20, 2, 1, 2).breaks(Breach::Overlap);
}

#[test]
fn a_killed_holder_overlaps_up_to_its_last_poll() {
    let story = |poll| {
        Story::default()
            .asks(0, 1, 1)
            .begins(0, 1, 1, 1)
            .polls(poll, 1, 1, true)
            .add(30, What::Killed { process: 1 })
            .holds(20, 40, 2, 1, 2)
    };
    story(19).holds_all();
    story(21).breaks(Breach::Overlap);
}

#[test]
fn a_poll_after_the_stop_time_is_measured() {
    let verdicts = Story::default()
        .asks(0, 1, 1)
        .begins(0, 1, 1, 1)
        .fault(1, 2, "worker stopped", &[])
        .stops(1, 3_040, 1)
        .holds(3_000, 3_100, 2, 1, 2)
        .polls(3_050, 1, 1, false)
        .returns(3_051, 1, 1, Outcome::Lost("Expired".to_owned()))
        .judged();
    assert!(verdicts.violations.is_empty(), "{verdicts:#?}");
    assert_eq!(verdicts.after_stop, [ms(50)]);
    assert_eq!(verdicts.late_stopped, 1);
}

#[test]
fn a_loss_between_gate_and_poll_is_no_breach_if_it_ends_the_body() {
    let story = |returns| {
        Story::default()
            .asks(0, 1, 1)
            .begins(0, 1, 1, 1)
            .fault(90, 95, "lease revoked", &["hot/0"])
            .polls(100, 1, 1, false)
            .returns(returns, 1, 1, Outcome::Lost("Revoked".to_owned()))
    };
    assert_eq!(story(110).judged().late_between, 1);
    story(300).breaks(Breach::RanOn);
}

#[test]
fn a_body_that_runs_on_after_its_loss_is_found() {
    Story::default()
        .asks(0, 1, 1)
        .begins(0, 1, 1, 1)
        .polls(100, 1, 1, false)
        .polls(110, 1, 1, false)
        .breaks(Breach::RanOn);
}

#[test]
fn a_reader_beside_a_writer_is_found() {
    let story = |mode| {
        Story::default()
            .asks_as(0, 1, 1, asked(&["hot/0"], Mode::Shared))
            .begins(0, 1, 1, 1)
            .ends(10, 1, 1)
            .asks_as(5, 2, 1, asked(&["hot/0"], mode))
            .begins(5, 2, 1, 2)
            .ends(15, 2, 1)
    };
    story(Mode::Shared).holds_all();
    story(Mode::Exclusive).breaks(Breach::Overlap);
}

#[test]
fn a_permit_too_many_is_found() {
    let story = |of| {
        (0..3).fold(Story::default(), |story, process| {
            story
                .asks_as(0, process, 1, asked(&["hot/0"], Mode::Permits(of)))
                .begins(u64::from(process), process, 1, 1)
                .ends(10, process, 1)
        })
    };
    story(3).holds_all();
    story(2).breaks(Breach::Permits);
}

#[test]
fn one_poll_after_a_loss_needs_a_reason() {
    let story = |kind: &str| {
        let asked = Asked { kind: kind.to_owned(), ..asked(&["hot/0"], Mode::Exclusive) };
        Story::default()
            .asks_as(0, 1, 1, asked)
            .begins(0, 1, 1, 1)
            .polls(100, 1, 1, true)
            .polls(3_000, 1, 1, false)
    };
    story("exclusive").breaks(Breach::RanOn);
    story("blocking").holds_all();
    story("exclusive").stops(200, 2_990, 1).holds_all();
    story("exclusive").stalls(200, 2_990, 1).holds_all();
    story("exclusive").stops(200, 2_990, 2).breaks(Breach::RanOn);
}

#[test]
fn a_body_that_begins_twice_is_found() {
    Story::default()
        .asks(0, 1, 1)
        .begins(0, 1, 1, 1)
        .begins(5, 1, 1, 1)
        .ends(10, 1, 1)
        .breaks(Breach::Twice);
}

#[test]
fn a_body_that_is_held_once_more_after_its_loss_is_found() {
    Story::default()
        .asks(0, 1, 1)
        .begins(0, 1, 1, 1)
        .stops(10, 2_990, 1)
        .polls(3_000, 1, 1, false)
        .polls(3_010, 1, 1, true)
        .breaks(Breach::RanOn);
}

#[test]
fn a_gate_that_is_off_is_found_where_cancelling_works() {
    let story = |bodies: u64| {
        let story = Story::default().stops(100, 3_000, 1);
        (0..bodies).fold(story, |story, call| {
            let name = format!("cold/{call}");
            let tokens = vec![(name.clone(), 1)];
            let held = true;
            let lost = Outcome::Lost("Expired".to_owned());
            story
                .asks_as(0, 1, call, asked(&[&name], Mode::Exclusive))
                .says(0, 1, Said::Begun { call, held, tokens })
                .polls(3_001, 1, call, false)
                .returns(3_002, 1, call, lost)
        })
    };
    let late = |bodies| {
        let counts = story(bodies).fault(100, 3_000, "worker stopped", &[]);
        counts.judged().counts().get(&Breach::RanOn).copied()
    };
    assert_eq!(late(1), None);
    assert_eq!(late(2), Some(2));
}

#[test]
fn a_late_poll_counts_once_however_many_begin() {
    let verdicts = Story::default()
        .asks(0, 1, 1)
        .begins(0, 1, 1, 1)
        .fault(1, 2, "worker stopped", &[])
        .stops(1, 3_040, 1)
        .holds(3_000, 3_010, 2, 1, 2)
        .holds(3_020, 3_030, 2, 2, 3)
        .polls(3_050, 1, 1, false)
        .returns(3_051, 1, 1, Outcome::Lost("Expired".to_owned()))
        .judged();
    assert_eq!(verdicts.after_stop, [ms(50)]);
}
