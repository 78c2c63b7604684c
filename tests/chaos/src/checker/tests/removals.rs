//! Tests of the judge of removals.

use super::*;

#[test]
fn an_overlap_by_an_operators_delete_is_measured() {
    let story = |names: &[&str]| {
        Story::default()
            .fault(8, 8, "key deleted", names)
            .holds(0, 12, 1, 1, 1)
            .holds(9, 20, 2, 1, 2)
    };
    let verdicts = story(&["hot/0"]).judged();
    assert!(verdicts.violations.is_empty(), "{verdicts:#?}");
    assert_eq!(removed(&verdicts), [("key deleted", &[ms(3)][..])]);
    story(&["hot/1"]).breaks(Breach::Overlap);
}

#[test]
fn a_delete_excuses_nothing_once_its_holder_must_know() {
    let story = |end| {
        Story::default()
            .fault(8, 8, "key deleted", &["hot/0"])
            .loses(0, end, 1, 1, "Deleted")
            .holds(9, 30_000, 2, 1, 2)
    };
    story(2_000).holds_all();
    story(2_010).breaks(Breach::Overlap);
}

#[test]
fn a_lease_that_etcd_revoked_explains_an_overlap() {
    let story = |cause: &str| {
        Story::default()
            .fault(0, 8, "leader frozen", &[])
            .asks(0, 1, 1)
            .begins(0, 1, 1, 1)
            .polls(12, 1, 1, true)
            .returns(13, 1, 1, Outcome::Lost(cause.to_owned()))
            .holds(9, 20, 2, 1, 2)
    };
    story("Revoked").holds_all();
    story("Expired").breaks(Breach::Overlap);
}

#[test]
fn a_key_that_is_gone_may_be_handed_over_once_more() {
    Story::default()
        .fault(0, 8, "leader frozen", &[])
        .asks(0, 2, 1)
        .begins(9, 2, 1, 2)
        .ends(20, 2, 1)
        .asks(0, 1, 1)
        .begins(10, 1, 1, 1)
        .polls(12, 1, 1, true)
        .returns(13, 1, 1, Outcome::Lost("Revoked".to_owned()))
        .holds_all();
}

#[test]
fn a_key_in_the_way_excuses_no_overlap() {
    let story = |kind| {
        Story::default()
            .fault(0, 20_000, kind, &["hot/0"])
            .holds(1_000, 5_000, 1, 1, 1)
            .holds(4_000, 6_000, 2, 1, 2)
    };
    story("junk key").breaks(Breach::Overlap);
    // As long as the key is there, it excludes everyone.
    story("key overwritten").breaks(Breach::Overlap);
}

#[test]
fn the_deletion_of_an_overwritten_key_excuses_an_overlap() {
    let story = |begin| {
        Story::default()
            .fault(0, 7_000, "key overwritten", &["hot/0"])
            .loses(1_000, begin + 200, 1, 1, "Overwritten")
            .holds(begin, begin + 300, 2, 1, 2)
    };
    let verdicts = story(7_100).judged();
    assert_eq!(removed(&verdicts), [("key overwritten", &[ms(200)][..])]);
    story(7_100).holds_all();
    assert_eq!(story(17_100).judged().counts()[&Breach::Overlap], 1);
}

#[test]
fn locks_of_before_may_be_held_until_a_wipe_is_known() {
    let story = |begin, end, token, ttl| {
        let asked = Asked { ttl, ..asked(&["hot/0"], Mode::Exclusive) };
        Story::default()
            .fault(5_000, 6_000, "etcd wiped", &[])
            .asks_as(4_000, 1, 1, asked)
            .begins(4_000, 1, 1, 9)
            .ends(end, 1, 1)
            .holds(begin, 20_000, 2, 1, token)
    };
    let verdicts = story(7_000, 13_500, 1, 10_000).judged();
    assert_eq!(removed(&verdicts), [("etcd wiped", &[ms(6_500)][..])]);
    story(7_000, 13_500, 1, 10_000).holds_all();
    story(7_000, 14_500, 1, 10_000).breaks(Breach::Overlap);
    // Its last renewal is longer ago than its TTL.
    story(7_000, 13_500, 1, 6_000).breaks(Breach::Overlap);
    story(4_500, 4_600, 10, 10_000).breaks(Breach::Overlap);
}

#[test]
fn tokens_begin_anew_after_a_restore() {
    let story = |kind| {
        Story::default()
            .fault(1_000, 2_000, kind, &[])
            .holds(0, 500, 1, 1, 9)
            .holds(3_000, 3_500, 2, 1, 4)
            .holds(11_000, 11_500, 3, 1, 5)
    };
    story("etcd restored from a snapshot").holds_all();
    story("all members restarted").breaks(Breach::Token);
    let again = story("etcd wiped").holds(12_000, 12_500, 4, 1, 5);
    again.breaks(Breach::Token);
}

#[test]
fn permits_of_before_may_be_held_until_a_wipe_is_known() {
    let story = |kind, first| {
        let story = Story::default().fault(500, 1_000, kind, &[]);
        [(0, first), (1, 2_001), (2, 2_002)].into_iter().fold(story, |story, (process, at)| {
            story
                .asks_as(at, process, 1, asked(&["hot/0"], Mode::Permits(2)))
                .begins(at, process, 1, 1)
                .ends(2_010, process, 1)
        })
    };
    let verdicts = story("etcd wiped", 400).judged();
    assert!(verdicts.violations.is_empty(), "{verdicts:#?}");
    assert_eq!(removed(&verdicts), [("etcd wiped", &[ms(8)][..])]);
    story("etcd wiped", 2_000).breaks(Breach::Permits);
    story("all members restarted", 400).breaks(Breach::Permits);
}

#[test]
fn a_wipe_ends_a_retention() {
    let story = |kind| {
        let asked = Asked { at_least: 500, ..asked(&["hot/0"], Mode::Exclusive) };
        let story = Story::default().fault(200, 300, kind, &[]);
        story.asks_as(0, 1, 1, asked).begins(0, 1, 1, 1).ends(10, 1, 1).holds(400, 410, 2, 1, 2)
    };
    story("etcd wiped").holds_all();
    story("all members restarted").breaks(Breach::Retention);
}

#[test]
fn a_restore_excuses_nothing_while_etcd_is_healthy() {
    let story = |begin, end| {
        Story::default()
            .fault(1_000, 6_000, "etcd restored from a snapshot", &[])
            .add(5_000, What::Rewound { fault: 0 })
            .holds(0, end, 1, 1, 1)
            .holds(begin, 20_000, 2, 1, 2)
    };
    story(3_000, 3_100).breaks(Breach::Overlap);
    story(5_100, 5_200).holds_all();
}

#[test]
fn a_revocation_excuses_until_the_next_renewal() {
    let story = |begin, end| {
        Story::default()
            .fault(0, 1_000, "leader frozen", &[])
            .loses(0, end, 1, 1, "Revoked")
            .holds(begin, 20_000, 2, 1, 2)
    };
    story(1_000, 2_600).holds_all();
    story(1_000, 2_700).breaks(Breach::Overlap);
    // etcd does so for eight seconds, or two TTLs.
    story(8_900, 9_000).holds_all();
    story(9_100, 9_200).breaks(Breach::Overlap);
}

#[test]
fn a_stall_of_its_holder_extends_an_excuse() {
    Story::default()
        .fault(8, 8, "key deleted", &["hot/0"])
        .stalls(100, 1_100, 1)
        .loses(0, 2_500, 1, 1, "Deleted")
        .holds(9, 30_000, 2, 1, 2)
        .holds_all();
}

#[test]
fn a_revocation_needs_a_loss_of_that_lease() {
    let story = |ttl, how| {
        let other = Asked { ttl, ..asked(&["cold/0"], Mode::Exclusive) };
        Story::default()
            .fault(0, 8, "leader frozen", &[])
            .asks(0, 1, 1)
            .begins(0, 1, 1, 1)
            .polls(12, 1, 1, true)
            .says(12, 1, Said::Ended { call: 1, held: true, how })
            .returns(13, 1, 1, Outcome::Done)
            .asks_as(0, 1, 2, other)
            .returns(500, 1, 2, Outcome::Lost("Revoked".to_owned()))
            .holds(9, 20, 2, 1, 2)
    };
    // Its body was over before its process could know; calls of one TTL share a lease.
    story(2_000, Ending::Done).holds_all();
    story(2_000, Ending::Dropped).breaks(Breach::Overlap);
    story(10_000, Ending::Done).breaks(Breach::Overlap);
}

#[test]
fn a_fault_that_hit_nothing_excuses_nothing() {
    Story::default()
        .add(
            8,
            What::FaultBegun {
                fault: 0,
                kind: named("key deleted"),
                target: "locks/hot/0/1".to_owned(),
                names: vec!["hot/0".to_owned()],
                worker: None,
                taken: None,
            },
        )
        .add(8, What::FaultMissed { fault: 0 })
        .holds(0, 12, 1, 1, 1)
        .holds(9, 20, 2, 1, 2)
        .breaks(Breach::Overlap);
}

#[test]
fn permits_are_excused_by_an_operators_delete() {
    let story = |names: &[&str]| {
        (0..3).fold(Story::default().fault(1_990, 1_990, "key deleted", names), |story, process| {
            story
                .asks_as(2_000, process, 1, asked(&["hot/0"], Mode::Permits(2)))
                .begins(2_000 + u64::from(process), process, 1, 1)
                .ends(2_010, process, 1)
        })
    };
    story(&["hot/0"]).holds_all();
    story(&["hot/1"]).breaks(Breach::Permits);
}

#[test]
fn an_operators_delete_ends_a_retention() {
    let story = |names: &[&str]| {
        let asked = Asked { at_least: 500, ..asked(&["hot/0"], Mode::Exclusive) };
        Story::default()
            .fault(200, 200, "key deleted", names)
            .asks_as(0, 1, 1, asked)
            .begins(0, 1, 1, 1)
            .ends(10, 1, 1)
            .holds(400, 410, 2, 1, 2)
    };
    story(&["hot/0"]).holds_all();
    story(&["hot/1"]).breaks(Breach::Retention);
}

#[test]
fn bodies_after_a_wipe_are_judged_among_themselves() {
    let story = || {
        Story::default()
            .fault(5_000, 6_000, "etcd wiped", &[])
            .holds(6_500, 7_100, 1, 1, 5)
            .holds(7_000, 7_200, 2, 1, 6)
    };
    story().breaks(Breach::Overlap);
    // Its process had not yet learnt that etcd was wiped.
    let late = Said::Logged {
        level: "ERROR".to_owned(),
        text: "etcd was wiped code=\"etcd.history_lost\" ".to_owned(),
    };
    story().says(7_050, 1, late).holds_all();
}

#[test]
fn tokens_after_a_wipe_are_judged_among_themselves() {
    let story = |token| {
        Story::default()
            .fault(5_000, 6_000, "etcd wiped", &[])
            .holds(4_000, 4_100, 1, 1, 99)
            .holds(6_500, 6_600, 1, 2, 5)
            .holds(7_000, 7_200, 2, 1, token)
    };
    story(6).holds_all();
    story(5).breaks(Breach::Token);
}

#[test]
fn a_key_of_another_process_explains_no_overlap() {
    let story = |owner, older| {
        Story::default()
            .takes(8, "key deleted", owner, older)
            .loses(0, 1_000, 1, 1, "Deleted")
            .holds(500, 1_500, 2, 1, 2)
    };
    story(1, 0).holds_all();
    let verdicts = story(3, 0).judged();
    assert_eq!(verdicts.counts()[&Breach::Overlap], 1);
}

#[test]
fn the_key_of_a_waiter_explains_no_overlap() {
    let story = |older| {
        Story::default()
            .takes(800, "key deleted", 1, older)
            .holds(0, 2_000, 2, 1, 1)
            .loses(1_000, 1_500, 1, 1, "Deleted")
    };
    let overlaps = |older| story(older).judged().counts().get(&Breach::Overlap).copied();
    assert_eq!(overlaps(0), None);
    assert_eq!(overlaps(1), Some(1));
}

#[test]
fn a_delete_that_its_holder_did_not_notice_explains_nothing() {
    let story = |end| {
        Story::default()
            .takes(8, "key deleted", 1, 0)
            .holds(0, end, 1, 1, 1)
            .holds(9, 30_000, 2, 1, 2)
    };
    story(250).holds_all();
    story(300).breaks(Breach::Overlap);
}

#[test]
fn one_key_explains_one_permit_too_many() {
    let story = |permits| {
        (0..permits).fold(
            Story::default().fault(1_990, 1_990, "key deleted", &["hot/0"]),
            |story, process| {
                story
                    .asks_as(2_000, process, 1, asked(&["hot/0"], Mode::Permits(2)))
                    .begins(2_000 + u64::from(process), process, 1, 1)
                    .ends(2_010, process, 1)
            },
        )
    };
    story(3).holds_all();
    story(4).breaks(Breach::Permits);
}
