//! Tests of the judge of remains.

use super::*;

#[test]
fn what_is_left_is_found() {
    let keys = vec!["locks/hot/0/1".to_owned()];
    Story::default().add(0, What::Left { keys }).breaks(Breach::Left);
    let drained = |left| Said::Drained { left, leases: 0 };
    Story::default().says(0, 1, drained(0)).holds_all();
    Story::default().says(0, 1, drained(1)).breaks(Breach::Left);
}

#[test]
fn a_log_storm_is_found() {
    let story = |lines| {
        let line = || Said::Logged { level: "WARN".to_owned(), text: "a lock was lost".to_owned() };
        let story = Story::default().fault(0, 1, "worker cut off", &[]);
        (0..lines).fold(story, |story, at| story.says(10 + at, 1, line()))
    };
    story(10).holds_all();
    story(11).breaks(Breach::Logs);
}

#[test]
fn a_worker_that_does_not_end_well_is_found() {
    let text = |hung| {
        let exited = What::Exited { process: 1, well: false, hung };
        let verdicts = Story::default().add(0, exited).judged();
        let violation = verdicts.violations.into_iter().next();
        violation.map(|it| (it.breach, it.text))
    };
    let died = |text: &str| Some((Breach::Died, text.to_owned()));
    assert_eq!(text(false), died("process 1 has ended by itself"));
    assert_eq!(text(true), died("process 1 did not end when it was asked to"));
}

#[test]
fn a_key_that_is_there_after_all_calls_is_found() {
    let keys =
        |keys: &[&str]| What::Idle { keys: keys.iter().map(|key| (*key).to_owned()).collect() };
    Story::default().add(0, keys(&[])).holds_all();
    Story::default().add(0, keys(&["locks/hot/0/1"])).breaks(Breach::Left);
}
