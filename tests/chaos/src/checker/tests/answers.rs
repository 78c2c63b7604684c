//! Tests of the judge of answers.

use super::*;

fn waits(wait: u64) -> Asked {
    Asked { wait: Some(wait), ..asked(&["hot/0"], Mode::Exclusive) }
}

#[test]
fn busy_before_its_wait_is_over_is_found() {
    let story = |at| {
        Story::default()
            .fault(0, 20_000, "leader frozen", &[])
            .holds(0, 20_000, 2, 1, 1)
            .asks_as(1_000, 1, 1, waits(400))
            .returns(at, 1, 1, Outcome::Busy)
    };
    story(1_400).holds_all();
    story(1_300).breaks(Breach::Error);
}

#[test]
fn a_try_of_a_free_name_that_is_refused_is_found() {
    let story =
        || Story::default().asks_as(30_000, 1, 1, waits(0)).returns(30_010, 1, 1, Outcome::Busy);
    story().breaks(Breach::Free);
    story().holds(29_000, 30_005, 2, 1, 1).holds_all();
    // Its key may be there for a moment.
    story().holds(28_000, 28_500, 2, 1, 1).holds_all();
    story().holds(27_000, 27_500, 2, 1, 1).breaks(Breach::Free);
    story().fault(29_000, 31_000, "quorum frozen", &[]).holds_all();
    story().fault(29_000, 31_000, "junk key", &["hot/0"]).holds_all();
    let elsewhere = story().fault(29_000, 31_000, "junk key", &["hot/1"]);
    elsewhere.breaks(Breach::Free);
}

#[test]
fn a_key_of_a_dead_process_is_in_the_way() {
    let story = |died| {
        Story::default()
            .asks(died, 2, 1)
            .begins(died, 2, 1, 1)
            .add(died + 1, What::Killed { process: 2 })
            .asks_as(30_000, 1, 1, waits(0))
            .returns(30_010, 1, 1, Outcome::Busy)
    };
    story(22_000).holds_all();
    story(20_000).breaks(Breach::Free);
}

#[test]
fn a_call_that_waits_for_ever_while_its_name_is_free_is_found() {
    let story = |from| {
        let asked = Asked { wait: None, ..asked(&["hot/0"], Mode::Exclusive) };
        Story::default()
            .holds(0, from, 2, 1, 1)
            .asks_as(100, 1, 1, asked)
            .add(20_000, What::Killed { process: 1 })
            .add(30_000, What::Over)
    };
    story(14_000).holds_all();
    story(10_000).breaks(Breach::Starved);
    let disturbed = story(10_000).fault(9_000, 10_000, "leader killed", &[]);
    disturbed.holds_all();
}

/// A call in the body of another one of its process.
fn under(story: Story, at: u64, process: u32, outer: &str, inner: &str) -> Story {
    let (name, tokens) = (outer.to_owned(), vec![(outer.to_owned(), 1)]);
    let (call, held) = (1, true);
    let nested = Asked { under: Some(1), ..asked(&[inner], Mode::Exclusive) };
    story
        .asks_as(at, process, 1, asked(&[&name], Mode::Exclusive))
        .says(at, process, Said::Begun { call, held, tokens })
        .asks_as(at + 10, process, 2, nested)
        .polls(at + 1_000, process, 1, true)
}

#[test]
fn a_deadlock_without_a_cycle_is_found() {
    let story = |other: &str| {
        let story = under(Story::default(), 0, 1, "nest/1", "nest/2");
        let story = under(story, 0, 2, "nest/2", other);
        story.returns(1_000, 1, 2, Outcome::Deadlock)
    };
    story("nest/1").holds_all();
    story("nest/3").breaks(Breach::Deadlock);
    // A call that is made in no body waits for others only.
    Story::default().asks(0, 1, 1).returns(10, 1, 1, Outcome::Deadlock).breaks(Breach::Deadlock);
}
