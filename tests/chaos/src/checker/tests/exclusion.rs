//! Tests of the judge of exclusion.

use super::*;

#[test]
fn bodies_that_overlap_are_found() {
    holds("0-10 holds 1.1; 11-20 holds 2.1");
    breaks("0-10 holds 1.1; 9-20 holds 2.1", Breach::Overlap);
}

#[test]
fn a_killed_holder_overlaps_up_to_its_last_poll() {
    let of = |poll| format!("0 enters 1.1; {poll} polls 1.1; 30 killed 1; 20-40 holds 2.1");
    holds(&of(19));
    breaks(&of(21), Breach::Overlap);
}

#[test]
fn a_loss_between_gate_and_poll_is_no_breach_if_it_ends_the_body() {
    let of = |returns| {
        format!(
            "0 enters 1.1; 90-95 fault lease_revoked on=hot/0; 100 polls 1.1 lost;
             {returns} returns 1.1 Gone"
        )
    };
    holds(&of(110));
    breaks(&of(300), Breach::PolledAfterItsLoss);
}

#[test]
fn a_body_that_runs_on_after_its_loss_is_found() {
    breaks("0 enters 1.1; 100 polls 1.1 lost; 110 polls 1.1 lost", Breach::PolledAfterItsLoss);
    let held_again = "0 enters 1.1; 10-2990 stops 1; 3000 polls 1.1 lost; 3010 polls 1.1";
    breaks(held_again, Breach::PolledAfterItsLoss);
}

#[test]
fn one_poll_after_a_loss_needs_a_reason() {
    let of = |kind, more| {
        format!("0 enters 1.1 kind={kind}; 100 polls 1.1; 3000 polls 1.1 lost; {more}")
    };
    breaks(&of("exclusive", ""), Breach::PolledAfterItsLoss);
    holds(&of("blocking", ""));
    holds(&of("exclusive", "200-2990 stops 1"));
    holds(&of("exclusive", "200-2990 stalls 1"));
    breaks(&of("exclusive", "200-2990 stops 2"), Breach::PolledAfterItsLoss);
}

#[test]
fn a_gate_that_is_off_is_found_where_cancelling_works() {
    let of = |bodies: u64| {
        let body = |n| {
            format!(
                "0 enters 1.{n} on=cold/{n}; 3001 polls 1.{n} lost; 3002 returns 1.{n} Expired;"
            )
        };
        let bodies: String = (0..bodies).map(body).collect();
        format!("100-3000 stops 1; 100-3000 fault worker_stopped; {bodies}")
    };
    assert_eq!(count(&of(1), Breach::PolledAfterItsLoss), 0);
    assert_eq!(count(&of(2), Breach::PolledAfterItsLoss), 2);
}

#[test]
fn a_reader_beside_a_writer_is_found() {
    let of = |mode| format!("0-10 holds 1.1 shared; 5-15 holds 2.1 {mode}");
    holds(&of("shared"));
    breaks(&of(""), Breach::Overlap);
}

#[test]
fn a_permit_too_many_is_found() {
    let of = |n| (0..3).map(|at| format!("{at}-10 holds {at}.1 permits={n};")).collect::<String>();
    holds(&of(3));
    breaks(&of(2), Breach::TooManyPermits);
}

#[test]
fn a_body_that_begins_twice_is_found() {
    breaks("0 enters 1.1; 5 begins 1.1; 10 ends 1.1", Breach::BodyBegunTwice);
}
