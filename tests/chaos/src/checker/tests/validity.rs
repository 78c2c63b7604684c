//! Tests of the judge of validity.

use super::*;

/// Writes a body of process 1, from its begin to its last poll, while nothing reaches its process after 1 s.
fn silent(kind: &str, begin: u64, last: u64) -> String {
    let fault = format!("0 starts 1; 1000-15000 fault {kind} slot=1");
    format!("{fault}; {begin}-{last} loses 1.1 Expired")
}

#[test]
fn a_guard_that_says_held_for_longer_than_a_lease_is_found() {
    for kind in ["worker_cut_off", "answers_lost", "connections_frozen", "quorum_frozen"] {
        holds(&silent(kind, 0, 3_500));
        breaks(&silent(kind, 0, 3_600), Breach::HeldForTooLong);
    }
}

#[test]
fn a_body_that_begins_one_lease_into_the_silence_is_found() {
    holds(&silent("worker_cut_off", 3_400, 3_450));
    breaks(&silent("worker_cut_off", 3_600, 3_650), Breach::HeldForTooLong);
}
