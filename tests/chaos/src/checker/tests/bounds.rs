//! Tests of the judge of bounds.

use super::*;

#[test]
fn a_call_beyond_its_bound_is_found() {
    let of = |at| format!("0-{} holds 2.1; 0 asks 1.1; {at} begins 1.1; {at} ends 1.1", at - 10);
    holds(&of(12_900));
    breaks(&of(13_100), Breach::BeyondItsBound);
    // The call never returns.
    breaks("0-13990 holds 2.1; 0 asks 1.1; 14000 over", Breach::BeyondItsBound);
}

#[test]
fn a_single_try_takes_its_time_only_by_a_fault() {
    let of =
        |more| format!("0-25000 holds 2.1; 20000 asks 1.1 wait=0; 24000 returns 1.1 busy; {more}");
    breaks(&of(""), Breach::BeyondItsBound);
    holds(&of("19000-25000 fault leader_frozen"));
}

#[test]
fn a_call_returns_soon_after_its_loss() {
    let of = |returned| {
        format!(
            "0-3000 fault worker_cut_off; 0 enters 1.1; 1990 polls 1.1; 2000 ends_dropped 1.1;
             {returned} returns 1.1 Expired"
        )
    };
    holds(&of(6_900));
    breaks(&of(7_100), Breach::BeyondItsBound);
    // A body that continues without its caller ends later.
    holds(&of(1_000));
}

#[test]
fn a_body_that_hangs_until_its_process_is_killed_is_found() {
    let of = |killed, more| {
        format!("0 enters 1.1; 100 polls 1.1; {killed} killed 1; 60000 over; {more}")
    };
    holds(&of(1_100, ""));
    breaks(&of(9_000, ""), Breach::BeyondItsBound);
    holds(&of(9_000, "150-8900 stops 1"));
    // Pauses that overlap count once.
    holds(&of(9_000, "150-5000 stops 1; 4000-8900 stops 1"));
    breaks(&of(9_000, "150-5000 stops 1; 500-4900 stops 1"), Breach::BeyondItsBound);
}

#[test]
fn a_retention_cut_short_is_found() {
    let of = |next| format!("0-10 holds 1.1 min_hold=500; {next}-{next} holds 2.1");
    holds(&of(501));
    breaks(&of(400), Breach::RetentionCutShort);
    // The next body begins when the one before ends.
    let of = |next| {
        format!(
            "0-10 holds 1.1 min_hold=500; 0 asks 2.1 min_hold=500; 500 begins 2.1; 510 ends 2.1;
             {next}-{next} holds 3.1"
        )
    };
    holds(&of(1_001));
    breaks(&of(600), Breach::RetentionCutShort);
}

#[test]
fn a_call_that_is_not_served_in_calm_is_found() {
    let of = |lasts, more| {
        let bodies = (20_000..30_000).step_by(lasts).zip(1..);
        let bodies = bodies.map(|(at, n)| format!("{at}-{} holds 2.{n};", at + lasts - 10));
        let bodies: String = bodies.collect();
        format!("0-1 fault leader_killed; 20000 asks 1.1; 30000 returns 1.1 busy; {bodies} {more}")
    };
    breaks(&of(200, ""), Breach::BusyInCalm);
    // Bodies that last long leave no time.
    holds(&of(2_000, ""));
    holds(&of(200, "19000-20000 fault worker_killed"));
}

/// Writes a call with a lease of this many seconds, which ends with this outcome at 50 s.
fn ends_so(before: &str, process: u32, ttl: u64, outcome: &str) -> String {
    let call = format!("{process}.1");
    format!("{before}; 50000 enters {call} ttl={ttl}000; 50001 returns {call} {outcome}")
}

#[test]
fn an_error_without_a_fault_is_found() {
    let of = |from: u64| {
        let cut = format!("{from}-{} fault worker_cut_off", from + 1);
        format!("{cut}; 50000 asks 1.1; 50001 returns 1.1 refused")
    };
    holds(&of(49_000));
    breaks(&of(34_000), Breach::UnexplainedError);
}

#[test]
fn only_a_long_stall_or_silence_explains_an_error() {
    for paused in ["stalls 2", "silent"] {
        let of = |to| ends_so(&format!("49000-{to} {paused}"), 1, 2, "Expired");
        breaks(&of(49_600), Breach::UnexplainedError);
        holds(&of(49_700));
    }
}

#[test]
fn a_fault_of_a_worker_explains_no_error_of_another() {
    let cut = "0 starts 1; 0 starts 2; 45000-49000 fault worker_cut_off slot=2";
    for outcome in ["Expired", "refused"] {
        holds(&ends_so(cut, 2, 10, outcome));
        breaks(&ends_so(cut, 1, 10, outcome), Breach::UnexplainedError);
    }
}

#[test]
fn a_fault_explains_what_it_can_do_to_a_lease_of_that_ttl() {
    let of = |fault: &str, ttl, outcome| ends_so(&format!("0 starts 1; {fault}"), 1, ttl, outcome);
    for kind in ["leader_killed", "endpoint_frozen", "member_replaced"] {
        let fault = format!("40000-45000 fault {kind}");
        holds(&of(&fault, 2, "Expired"));
        breaks(&of(&fault, 10, "Expired"), Breach::UnexplainedError);
        breaks(&of(&fault, 2, "refused"), Breach::UnexplainedError);
    }
    breaks(&of("40000-45000 fault endpoint_refused", 2, "Expired"), Breach::UnexplainedError);
    holds(&of("40000-45000 fault quorum_killed", 10, "Expired"));
    let delay = "40000-49000 fault delay_of_80_ms slot=1";
    holds(&of(delay, 2, "Expired"));
    breaks(&of(delay, 10, "Expired"), Breach::UnexplainedError);
}

#[test]
fn a_brief_or_old_outage_explains_no_loss_of_a_long_lease() {
    let of =
        |from, to, ttl| ends_so(&format!("{from}-{to} fault quorum_frozen"), 1, ttl, "Expired");
    holds(&of(45_000, 48_400, 10));
    breaks(&of(45_000, 48_300, 10), Breach::UnexplainedError);
    holds(&of(45_000, 48_300, 2));
    for (ttl, until) in [(10, 35_002), (2, 43_002)] {
        holds(&of(20_000, until, ttl));
        breaks(&of(20_000, until - 102, ttl), Breach::UnexplainedError);
    }
}

#[test]
fn a_lease_that_etcd_revoked_is_told_apart() {
    let of = |kind| ends_so(&format!("40000-45000 fault {kind}"), 1, 10, "Gone");
    assert_eq!(holds(&of("leader_frozen")).measured.revoked, 1);
    breaks(&of("leader_killed"), Breach::UnexplainedError);
}

#[test]
fn a_key_that_is_taken_explains_the_loss_of_its_name_alone() {
    let of = |fault: &str, cause| ends_so(&format!("49000 fault {fault}"), 1, 10, cause);
    for kind in ["key_deleted", "lease_revoked"] {
        holds(&of(&format!("{kind} on=hot/0 owner=1"), "Gone"));
        breaks(&of(&format!("{kind} on=hot/0 owner=2"), "Gone"), Breach::UnexplainedError);
    }
    breaks(&of("key_deleted on=hot/0 owner=1", "Expired"), Breach::UnexplainedError);
    breaks(&of("key_deleted on=hot/1", "Gone"), Breach::UnexplainedError);
    breaks(&of("junk_key on=hot/0", "Gone"), Breach::UnexplainedError);
}
