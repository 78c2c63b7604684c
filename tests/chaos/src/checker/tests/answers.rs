//! Tests of the judge of answers.

use super::*;

#[test]
fn busy_before_its_wait_is_over_is_found() {
    let of = |at| {
        format!(
            "0-20000 fault leader_frozen; 0-20000 holds 2.1; 1000 asks 1.1 wait=400;
             {at} returns 1.1 busy"
        )
    };
    holds(&of(1_400));
    breaks(&of(1_300), Breach::UnexplainedError);
}

#[test]
fn a_try_of_a_free_name_that_is_refused_is_found() {
    let of = |more| format!("30000 asks 1.1 wait=0; 30010 returns 1.1 busy; {more}");
    breaks(&of(""), Breach::BusyThoughFree);
    holds(&of("29000-30005 holds 2.1"));
    // Its key may still exist for a moment.
    holds(&of("28000-28500 holds 2.1"));
    breaks(&of("27000-27500 holds 2.1"), Breach::BusyThoughFree);
    holds(&of("29000-31000 fault quorum_frozen"));
    holds(&of("29000-31000 fault junk_key on=hot/0"));
    breaks(&of("29000-31000 fault junk_key on=hot/1"), Breach::BusyThoughFree);
}

#[test]
fn a_key_of_a_dead_process_is_in_the_way() {
    let of = |at| {
        let died = at + 1;
        format!("{at} enters 2.1; {died} killed 2; 30000 asks 1.1 wait=0; 30010 returns 1.1 busy")
    };
    holds(&of(22_000));
    breaks(&of(20_000), Breach::BusyThoughFree);
}

#[test]
fn a_call_that_waits_for_ever_while_its_name_is_free_is_found() {
    let of = |until, more| {
        format!("0-{until} holds 2.1; 100 asks 1.1 patient; 20000 killed 1; 30000 over; {more}")
    };
    holds(&of(14_000, ""));
    breaks(&of(10_000, ""), Breach::BusyInCalm);
    holds(&of(10_000, "9000-10000 fault leader_killed"));
}

#[test]
fn a_deadlock_without_a_cycle_is_found() {
    let of = |other| {
        format!(
            "0 enters 1.1 on=nest/1; 10 asks 1.2 on=nest/2 under=1; 1000 polls 1.1;
             0 enters 2.1 on=nest/2 token=1; 10 asks 2.2 on={other} under=1; 1000 polls 2.1;
             1000 returns 1.2 deadlock"
        )
    };
    holds(&of("nest/1"));
    breaks(&of("nest/3"), Breach::DeadlockWithoutACycle);
    // A call that is not made in a body only waits for others, so it cannot be in a cycle.
    breaks("0 asks 1.1; 10 returns 1.1 deadlock", Breach::DeadlockWithoutACycle);
}
