//! Tests of the judge of order.

use super::*;

#[test]
fn a_call_that_is_overtaken_in_calm_is_found() {
    let story = Story::default().holds(0, 500, 1, 1, 1).asks(100, 1, 2).asks(400, 1, 3);
    story
        .begins(600, 1, 3, 2)
        .ends(700, 1, 3)
        .begins(800, 1, 2, 3)
        .ends(900, 1, 2)
        .breaks(Breach::Order);
}

#[test]
fn a_fault_excuses_calls_that_are_overtaken() {
    let story = Story::default().holds(0, 500, 1, 1, 1).asks(100, 1, 2).asks(400, 1, 3);
    story
        .fault(400, 450, "all connections reset", &[])
        .begins(600, 1, 3, 2)
        .ends(700, 1, 3)
        .begins(800, 1, 2, 3)
        .ends(900, 1, 2)
        .holds_all();
}

#[test]
fn a_first_call_that_another_process_overtakes_is_found() {
    let story = |asked, token| {
        let story = Story::default().holds(0, 5_000, 1, 1, 1).asks(100, 2, 1).asks(asked, 3, 1);
        story
            .begins(6_000, 3, 1, token)
            .ends(6_100, 3, 1)
            .begins(6_200, 2, 1, 3 << 16)
            .ends(6_300, 2, 1)
    };
    story(3_000, 2 << 16).breaks(Breach::Order);
    // So soon after it, either may have reached etcd first.
    story(900, 2 << 16).holds_all();
}

#[test]
fn a_call_may_have_the_place_of_one_before_it() {
    let story = |before, given_up| {
        Story::default()
            .holds(0, 7_000, 1, 1, 1)
            .asks(before, 3, 1)
            .asks(1_000, 2, 1)
            .asks(4_000, 3, 2)
            .returns(given_up, 3, 1, Outcome::Dropped)
            .begins(7_100, 3, 2, 2 << 16)
            .ends(7_200, 3, 2)
            .begins(7_300, 2, 1, 3 << 16)
            .ends(7_400, 2, 1)
    };
    // Its process has waited for longer, by a call that gave up.
    story(500, 5_000).holds_all();
    story(500, 2_000).breaks(Breach::Order);
}

#[test]
fn a_call_that_is_overtaken_and_gives_up_is_found() {
    let story = |begin| {
        let patient = Asked { wait: Some(5_000), ..asked(&["hot/0"], Mode::Exclusive) };
        Story::default()
            .holds(0, 500, 1, 1, 1)
            .asks_as(100, 1, 2, patient)
            .asks(400, 1, 3)
            .begins(begin, 1, 3, 2)
            .ends(6_000, 1, 3)
            .returns(5_200, 1, 2, Outcome::Busy)
    };
    story(5_000).breaks(Breach::Order);
    // Its wait may have been over by then.
    story(5_150).holds_all();
}

#[test]
fn a_stall_puts_off_the_order_of_calls() {
    let story = |to| {
        Story::default()
            .holds(0, 500, 1, 1, 1)
            .asks(100, 1, 2)
            .stalls(150, to, 1)
            .asks(700, 1, 3)
            .begins(800, 1, 3, 2)
            .ends(900, 1, 3)
            .begins(1_000, 1, 2, 3)
            .ends(1_100, 1, 2)
    };
    story(350).breaks(Breach::Order);
    story(600).holds_all();
}

#[test]
fn pairs_of_two_processes_are_counted_apart() {
    let verdicts = Story::default()
        .holds(0, 5_000, 1, 1, 1)
        .asks(100, 2, 1)
        .asks(400, 2, 2)
        .asks(3_000, 3, 1)
        .begins(6_000, 2, 1, 2 << 16)
        .ends(6_100, 2, 1)
        .begins(6_200, 2, 2, (2 << 16) + 1)
        .ends(6_300, 2, 2)
        .begins(6_400, 3, 1, 3 << 16)
        .ends(6_500, 3, 1)
        .judged();
    assert!(verdicts.violations.is_empty(), "{verdicts:#?}");
    // The second process's two calls, and the first of them with the third process's.
    assert_eq!((verdicts.ordered, verdicts.ordered_apart), (2, 1));
}
