//! Tests of the judge of validity.

use super::*;

/// A body of process 1, from its begin to its last poll, while nothing reaches its process from 1 s on.
fn silent(kind: &str, begin: u64, last: u64) -> Story {
    Story::default()
        .starts(0, 1)
        .fault_of(1_000, 15_000, kind, 1)
        .loses(begin, last, 1, 1, "Expired")
}

#[test]
fn a_guard_that_says_held_for_longer_than_a_lease_is_found() {
    for kind in ["worker cut off", "answers lost", "connections frozen"] {
        silent(kind, 0, 3_500).holds_all();
        silent(kind, 0, 3_600).breaks(Breach::Validity);
    }
    let quorum = |last| {
        Story::default().fault(1_000, 15_000, "quorum frozen", &[]).loses(0, last, 1, 1, "Expired")
    };
    quorum(3_500).holds_all();
    quorum(3_600).breaks(Breach::Validity);
}

#[test]
fn a_body_that_begins_one_lease_into_the_silence_is_found() {
    silent("worker cut off", 3_400, 3_450).holds_all();
    silent("worker cut off", 3_600, 3_650).breaks(Breach::Validity);
}

#[test]
fn a_lease_may_be_renewed_once_etcd_is_back() {
    Story::default()
        .starts(0, 1)
        .fault_of(1_000, 2_000, "worker cut off", 1)
        .holds(0, 9_000, 1, 1, 1)
        .holds_all();
}

#[test]
fn other_processes_are_not_silent() {
    Story::default()
        .starts(0, 1)
        .starts(0, 2)
        .fault_of(1_000, 15_000, "worker cut off", 1)
        .holds(0, 9_000, 2, 1, 1)
        .holds_all();
}
