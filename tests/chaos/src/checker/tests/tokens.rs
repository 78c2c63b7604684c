//! Tests of the judge of tokens.

use super::*;

#[test]
fn a_token_that_does_not_rise_is_found() {
    Story::default().holds(0, 10, 1, 1, 7).holds(11, 20, 2, 1, 7).breaks(Breach::Token);
}

#[test]
fn tokens_of_readers_need_not_rise_among_them() {
    let reader = |story: Story, at, process, token| {
        story
            .asks_as(at, process, 1, asked(&["hot/0"], Mode::Shared))
            .begins(at, process, 1, token)
            .ends(at + 5, process, 1)
    };
    let story = reader(Story::default().holds(0, 1, 1, 1, 5), 2, 2, 8);
    let story = reader(story, 3, 3, 7);
    story.holds(20, 21, 4, 1, 9).holds_all();
    let story = reader(Story::default().holds(0, 1, 1, 1, 5), 2, 2, 4);
    story.breaks(Breach::Token);
}

#[test]
fn a_refused_write_of_a_holder_is_found() {
    let write = |at| {
        let written = What::Written {
            process: 1,
            call: 1,
            name: "hot/0".to_owned(),
            token: 1,
            accepted: false,
        };
        Story::default().holds(0, 10, 1, 1, 1).add(at, written)
    };
    write(5).breaks(Breach::Register);
    let verdicts = write(12).judged();
    assert!(verdicts.violations.is_empty());
    assert_eq!(verdicts.refused_writes, 1);
}

#[test]
fn a_group_partly_held_is_found() {
    Story::default()
        .asks_as(0, 1, 1, asked(&["hot/0", "hot/1"], Mode::Exclusive))
        .begins(0, 1, 1, 1)
        .ends(10, 1, 1)
        .breaks(Breach::Group);
}
