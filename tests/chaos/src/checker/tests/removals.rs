//! Tests of the judge of removals.

use super::*;

#[test]
fn an_overlap_by_an_operators_delete_is_measured() {
    let of = |name| format!("8 fault key_deleted on={name}; 0-12 holds 1.1; 9-20 holds 2.1");
    excused(&of("hot/0"), "key deleted", 3);
    breaks(&of("hot/1"), Breach::Overlap);
    // A fault without effect excuses nothing.
    breaks(&format!("{}; 8 missed", of("hot/0")), Breach::Overlap);
}

#[test]
fn a_delete_excuses_nothing_once_its_holder_must_know() {
    let of = |end, more| {
        format!("8 fault key_deleted on=hot/0; 0-{end} loses 1.1 Gone; 9-30000 holds 2.1; {more}")
    };
    holds(&of(2_000, ""));
    breaks(&of(2_010, ""), Breach::Overlap);
    // A stall of its holder extends the excuse.
    holds(&of(2_500, "100-1100 stalls 1"));
}

#[test]
fn a_delete_that_its_holder_did_not_notice_explains_nothing() {
    let of =
        |end| format!("8 fault key_deleted on=hot/0 owner=1; 0-{end} holds 1.1; 9-30000 holds 2.1");
    holds(&of(250));
    breaks(&of(300), Breach::Overlap);
}

#[test]
fn a_key_of_another_process_explains_no_overlap() {
    let of = |owner| {
        format!(
            "8 fault key_deleted on=hot/0 owner={owner}; 0-1000 loses 1.1 Gone;
             500-1500 holds 2.1"
        )
    };
    holds(&of(1));
    assert_eq!(count(&of(3), Breach::Overlap), 1);
}

#[test]
fn the_key_of_a_waiter_explains_no_overlap() {
    let of = |older| {
        format!(
            "800 fault key_deleted on=hot/0 owner=1 older={older}; 0-2000 holds 2.1;
             1000-1500 loses 1.1 Gone"
        )
    };
    assert_eq!(count(&of(0), Breach::Overlap), 0);
    assert_eq!(count(&of(1), Breach::Overlap), 1);
}

#[test]
fn a_key_in_the_way_excuses_no_overlap() {
    let of =
        |kind| format!("0-20000 fault {kind} on=hot/0; 1000-5000 holds 1.1; 4000-6000 holds 2.1");
    breaks(&of("junk_key"), Breach::Overlap);
    // While the key exists, it excludes all others.
    breaks(&of("key_overwritten"), Breach::Overlap);
}

#[test]
fn the_deletion_of_an_overwritten_key_excuses_an_overlap() {
    let of = |begin: u64| {
        let (lost, end) = (begin + 200, begin + 300);
        format!(
            "0-7000 fault key_overwritten on=hot/0; 1000-{lost} loses 1.1 Overwritten;
             {begin}-{end} holds 2.1"
        )
    };
    excused(&of(7_100), "key overwritten", 200);
    assert_eq!(count(&of(17_100), Breach::Overlap), 1);
}

#[test]
fn a_lease_that_etcd_revoked_explains_an_overlap() {
    let of = |cause| {
        format!(
            "0-8 fault leader_frozen; 0 enters 1.1; 12 polls 1.1; 13 returns 1.1 {cause};
             9-20 holds 2.1"
        )
    };
    holds(&of("Gone"));
    breaks(&of("Expired"), Breach::Overlap);
}

#[test]
fn a_revocation_excuses_until_the_next_renewal() {
    let of = |begin, end| {
        format!("0-1000 fault leader_frozen; 0-{end} loses 1.1 Gone; {begin}-20000 holds 2.1")
    };
    holds(&of(1_000, 2_600));
    breaks(&of(1_000, 2_700), Breach::Overlap);
    // etcd does so for eight seconds, or two TTLs.
    holds(&of(8_900, 9_000));
    breaks(&of(9_100, 9_200), Breach::Overlap);
}

#[test]
fn a_revocation_needs_a_loss_of_that_lease() {
    let of = |ttl, ended| {
        format!(
            "0-8 fault leader_frozen; 0 enters 1.1; 12 polls 1.1; 12 {ended}; 13 returns 1.1;
             0 asks 1.2 on=cold/0 ttl={ttl}; 500 returns 1.2 Gone; 9-20 holds 2.1"
        )
    };
    // Its body was over before its process could know; calls of one TTL share a lease.
    holds(&of(2_000, "ended 1.1"));
    breaks(&of(2_000, "ends_dropped 1.1 held"), Breach::Overlap);
    breaks(&of(10_000, "ended 1.1"), Breach::Overlap);
}

#[test]
fn one_key_explains_one_permit_too_many() {
    let of = |permits: u64, name| {
        let permit = |n| format!("{}-2010 holds {n}.1 permits=2;", 2_000 + n);
        let permits: String = (0..permits).map(permit).collect();
        format!("1990 fault key_deleted on={name}; {permits}")
    };
    holds(&of(3, "hot/0"));
    breaks(&of(3, "hot/1"), Breach::TooManyPermits);
    breaks(&of(4, "hot/0"), Breach::TooManyPermits);
}

#[test]
fn a_key_or_history_that_is_gone_ends_a_retention() {
    let of = |fault| format!("{fault}; 0-10 holds 1.1 min_hold=500; 400-410 holds 2.1");
    holds(&of("200 fault key_deleted on=hot/0"));
    breaks(&of("200 fault key_deleted on=hot/1"), Breach::RetentionCutShort);
    holds(&of("200-300 fault etcd_wiped"));
    breaks(&of("200-300 fault all_members_restarted"), Breach::RetentionCutShort);
}

#[test]
fn locks_of_before_may_be_held_until_a_wipe_is_known() {
    let of = |begin, end, token, ttl| {
        format!(
            "5000-6000 fault etcd_wiped; 4000-{end} holds 1.1 token=9 ttl={ttl};
             {begin}-20000 holds 2.1 token={token}"
        )
    };
    excused(&of(7_000, 13_500, 1, 10_000), "etcd wiped", 6_500);
    breaks(&of(7_000, 14_500, 1, 10_000), Breach::Overlap);
    // Its last renewal was more than a TTL ago.
    breaks(&of(7_000, 13_500, 1, 6_000), Breach::Overlap);
    breaks(&of(4_500, 4_600, 10, 10_000), Breach::Overlap);
}

#[test]
fn permits_of_before_may_be_held_until_a_wipe_is_known() {
    let of = |kind, first| {
        let permits = [(0, first), (1, 2_001), (2, 2_002)];
        let permits = permits.map(|(n, at)| format!("{at}-2010 holds {n}.1 permits=2;"));
        format!("500-1000 fault {kind}; {}", permits.concat())
    };
    excused(&of("etcd_wiped", 400), "etcd wiped", 8);
    breaks(&of("etcd_wiped", 2_000), Breach::TooManyPermits);
    breaks(&of("all_members_restarted", 400), Breach::TooManyPermits);
}

#[test]
fn tokens_begin_anew_after_a_restore() {
    let of = |kind, more| {
        format!(
            "1000-2000 fault {kind}; 0-500 holds 1.1 token=9; 3000-3500 holds 2.1 token=4;
             11000-11500 holds 3.1 token=5; {more}"
        )
    };
    holds(&of("etcd_restored_from_a_snapshot", ""));
    breaks(&of("all_members_restarted", ""), Breach::TokenNotRising);
    breaks(&of("etcd_wiped", "12000-12500 holds 4.1 token=5"), Breach::TokenNotRising);
}

#[test]
fn a_restore_excuses_nothing_while_etcd_is_healthy() {
    let of = |begin, end| {
        format!(
            "1000-6000 fault etcd_restored_from_a_snapshot; 5000 rewound; 0-{end} holds 1.1;
             {begin}-20000 holds 2.1"
        )
    };
    breaks(&of(3_000, 3_100), Breach::Overlap);
    holds(&of(5_100, 5_200));
}

#[test]
fn bodies_after_a_wipe_are_judged_among_themselves() {
    let wiped = "5000-6000 fault etcd_wiped;";
    let both = format!("{wiped} 6500-7100 holds 1.1; 7000-7200 holds 2.1");
    breaks(&both, Breach::Overlap);
    // Its process had not yet noticed that etcd was wiped.
    holds(&format!("{both}; 7050 logs 1 code=\"etcd.history_lost\""));
    let of = |token| {
        format!(
            "{wiped} 4000-4100 holds 1.1 token=99; 6500-6600 holds 1.2 token=5;
             7000-7200 holds 2.1 token={token}"
        )
    };
    holds(&of(6));
    breaks(&of(5), Breach::TokenNotRising);
}
