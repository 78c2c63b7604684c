//! Tests of the judge of liveness.

use super::*;

#[test]
fn a_name_that_is_not_served_in_calm_is_found() {
    let story = |next| {
        Story::default()
            .holds(0, 1, 1, 1, 1)
            .fault(10, 1_000, "leader killed", &[])
            .holds(next, next + 1, 1, 2, 2)
            .add(60_000, What::Draining)
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
        kind: kind.to_owned(),
        target: String::new(),
        names: Vec::new(),
    };
    let verdicts = Story::default()
        .holds(0, 1, 1, 1, 1)
        .add(10, begun(0, "leader killed"))
        .add(20, begun(1, "worker killed"))
        .add(1_000, What::FaultHealed { fault: 1 })
        .add(1_100, What::FaultHealed { fault: 0 })
        .holds(2_000, 2_001, 1, 2, 2)
        .add(10_000, What::Draining)
        .judged();
    assert_eq!(verdicts.recoveries, []);
}
