//! Tests of the judge of order.

use super::*;

/// History in which the second call of two is served first.
const OVERTAKEN: &str = "0-500 holds 1.1; 100 asks 1.2; 400 asks 1.3; 600 begins 1.3; 700 ends 1.3;
                         800 begins 1.2; 900 ends 1.2;";

#[test]
fn a_call_that_is_overtaken_in_calm_is_found() {
    breaks(OVERTAKEN, Breach::OvertakenInCalm);
    holds(&format!("{OVERTAKEN} 400-450 fault all_connections_reset"));
}

#[test]
fn a_first_call_that_another_process_overtakes_is_found() {
    let of = |asked| {
        format!(
            "0-5000 holds 1.1; 100 asks 2.1; {asked} asks 3.1; 6000 begins 3.1; 6100 ends 3.1;
             6200 begins 2.1; 6300 ends 2.1"
        )
    };
    breaks(&of(3_000), Breach::OvertakenInCalm);
    // The calls are so close that either may have reached etcd first.
    holds(&of(900));
}

#[test]
fn a_call_may_have_the_place_of_one_before_it() {
    let of = |before, given_up| {
        format!(
            "0-7000 holds 1.1; {before} asks 3.1; 1000 asks 2.1; 4000 asks 3.2;
             {given_up} returns 3.1 gave_up; 7100 begins 3.2; 7200 ends 3.2;
             7300 begins 2.1; 7400 ends 2.1"
        )
    };
    // Its process has waited longer, with a call that gave up.
    holds(&of(500, 5_000));
    breaks(&of(500, 2_000), Breach::OvertakenInCalm);
}

#[test]
fn a_call_that_is_overtaken_and_gives_up_is_found() {
    let of = |begin| {
        format!(
            "0-500 holds 1.1; 100 asks 1.2 wait=5000; 400 asks 1.3; {begin} begins 1.3;
             6000 ends 1.3; 5200 returns 1.2 busy"
        )
    };
    breaks(&of(5_000), Breach::OvertakenInCalm);
    // Its wait may have been over by then.
    holds(&of(5_150));
}
