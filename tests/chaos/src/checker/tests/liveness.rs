//! Tests of the judge of liveness.

use super::*;

/// A body of the task that wants a hot name all the time.
fn hot(story: Story, at: u64, process: u32, call: u64) -> Story {
    let asked = Asked { kind: "hot".to_owned(), ..asked(&["hot/0"], Mode::Exclusive) };
    story.asks_as(at, process, call, asked).begins(at, process, call, at as i64).ends(
        at + 1,
        process,
        call,
    )
}

#[test]
fn a_name_that_is_not_served_in_calm_is_found() {
    let story = |next| {
        let story = hot(Story::default(), 0, 1, 1).fault(10, 1_000, "leader killed", &[]);
        hot(story, next, 1, 2).add(60_000, What::Draining)
    };
    let verdicts = story(3_000).judged();
    assert!(verdicts.violations.is_empty(), "{verdicts:#?}");
    assert_eq!(verdicts.recoveries[0].took, ms(2_000));
    story(60_001).breaks(Breach::Liveness);
}

#[test]
fn a_recovery_of_two_faults_is_of_neither() {
    let begun = |fault, kind: &str| What::FaultBegun {
        fault,
        kind: named(kind),
        target: String::new(),
        names: Vec::new(),
        worker: None,
        taken: None,
    };
    let verdicts = hot(Story::default(), 0, 1, 1)
        .add(10, begun(0, "leader killed"))
        .add(20, begun(1, "worker killed"))
        .add(1_000, What::FaultHealed { fault: 1 })
        .add(1_100, What::FaultHealed { fault: 0 })
        .add(10_000, What::Draining);
    let verdicts = hot(verdicts, 2_000, 1, 2).judged();
    assert_eq!(verdicts.recoveries, []);
}

#[test]
fn a_worker_that_is_not_served_while_another_is_is_found() {
    let story = |victim| {
        let story = hot(hot(Story::default(), 0, 1, 1), 5, 2, 1);
        let story = story.starts(0, 1).starts(0, 2);
        let story = hot(story.fault_of(10, 1_000, "worker cut off", 2), 2_000, 1, 2);
        hot(story, victim, 2, 2).add(60_000, What::Draining)
    };
    assert_eq!(story(5_000).judged().recoveries[0].took, ms(4_000));
    story(5_000).holds_all();
    story(60_001).breaks(Breach::Liveness);
    // One that was killed wants nothing any more.
    let killed = story(60_001).add(30, What::Killed { process: 2 });
    killed.holds_all();
}
