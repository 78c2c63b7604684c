//! Tests of the judge of tokens.

use super::*;

#[test]
fn a_token_that_does_not_rise_is_found() {
    breaks("0-10 holds 1.1 token=7; 11-20 holds 2.1 token=7", Breach::TokenNotRising);
}

#[test]
fn tokens_of_readers_need_not_rise_among_them() {
    let readers = "2-7 holds 2.1 shared token=8; 3-8 holds 3.1 shared token=7";
    holds(&format!("0-1 holds 1.1 token=5; {readers}; 20-21 holds 4.1 token=9"));
    breaks("0-1 holds 1.1 token=5; 2-7 holds 2.1 shared token=4", Breach::TokenNotRising);
}

#[test]
fn a_refused_write_of_a_holder_is_found() {
    breaks("0-10 holds 1.1 token=1; 5 refuses 1.1 token=1", Breach::HolderRefusedByTheRegister);
    let late = holds("0-10 holds 1.1 token=1; 12 refuses 1.1 token=1");
    assert_eq!(late.measured.refused_writes, 1);
}

#[test]
fn a_group_partly_held_is_found() {
    breaks("0 asks 1.1 on=hot/0,hot/1; 0 begins 1.1; 10 ends 1.1", Breach::GroupPartlyHeld);
}
