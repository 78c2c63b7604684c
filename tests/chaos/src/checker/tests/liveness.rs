//! Tests of the judge of liveness.

use super::*;

/// Writes bodies of tasks that always want a hot name, by their times and calls.
fn hot(bodies: &[(u64, &str)]) -> String {
    let body = |(at, call): &(u64, &str)| format!("{at}-{} holds {call} kind=hot;", at + 1);
    bodies.iter().map(body).collect()
}

#[test]
fn a_name_that_is_not_served_in_calm_is_found() {
    let of = |next| {
        let bodies = hot(&[(0, "1.1"), (next, "1.2")]);
        format!("{bodies} 10-1000 fault leader_killed; 60000 draining")
    };
    assert_eq!(holds(&of(3_000)).recoveries[0].1, ms(2_000));
    breaks(&of(60_001), Breach::NotServedInCalm);
}

#[test]
fn a_worker_that_is_not_served_while_another_is_is_found() {
    let of = |victim, more| {
        let bodies = hot(&[(0, "1.1"), (5, "2.1"), (2_000, "1.2"), (victim, "2.2")]);
        let fault = "10-1000 fault worker_cut_off slot=2";
        format!("0 starts 1; 0 starts 2; {bodies} {fault}; 60000 draining; {more}")
    };
    assert_eq!(holds(&of(5_000, "")).recoveries[0].1, ms(4_000));
    breaks(&of(60_001, ""), Breach::NotServedInCalm);
    // A killed process does not want a name any more.
    holds(&of(60_001, "30 killed 2"));
}
