//! Tests of the judge of remains.

use super::*;

#[test]
fn what_is_left_is_found() {
    breaks("0 left locks/hot/0/1", Breach::KeysLeft);
    holds("0 idle");
    breaks("0 idle locks/hot/0/1", Breach::KeysLeft);
    holds("0 drained 1");
    breaks("0 drained 1 left=1", Breach::KeysLeft);
}

#[test]
fn a_log_storm_is_found() {
    let of = |lines| format!("0-1 fault worker_cut_off; {}", "10 logs 1 lost;".repeat(lines));
    holds(&of(10));
    breaks(&of(11), Breach::LogStorm);
}

#[test]
fn a_worker_that_does_not_end_well_is_found() {
    let said = |text| judged(text).violations.remove(0).text;
    assert_eq!(said("0 exits 1"), "process 1 has ended by itself");
    assert_eq!(said("0 exits 1 hung"), "process 1 did not end when it was asked to");
    breaks("0 exits 1", Breach::WorkerDied);
}
