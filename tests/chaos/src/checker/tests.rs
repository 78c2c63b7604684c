//! Tests of the checker: tiny histories, each with one verdict.

use super::judge;
use super::verdicts::{Breach, Verdicts};
use crate::clock::ms;
use crate::history::{Asked, Ending, Event, Mode, Outcome, Said, What};

/// A history in the making. Times are in milliseconds.
#[derive(Default)]
struct Story(Vec<Event>);

impl Story {
    fn add(mut self, at: u64, what: What) -> Self {
        self.0.push(Event { at: ms(at), what });
        self
    }

    fn says(self, at: u64, process: u32, said: Said) -> Self {
        self.add(at, What::Said { process, said })
    }

    fn asks_as(self, at: u64, process: u32, call: u64, asked: Asked) -> Self {
        self.says(at, process, Said::Asked { call, asked })
    }

    fn asks(self, at: u64, process: u32, call: u64) -> Self {
        self.asks_as(at, process, call, asked(&["hot/0"], Mode::Exclusive))
    }

    fn begins(self, at: u64, process: u32, call: u64, token: i64) -> Self {
        let tokens = vec![("hot/0".to_owned(), token)];
        let held = true;
        self.says(at, process, Said::Begun { call, held, tokens })
    }

    fn polls(self, at: u64, process: u32, call: u64, held: bool) -> Self {
        self.says(at, process, Said::Polled { call, held })
    }

    fn ends(self, at: u64, process: u32, call: u64) -> Self {
        let (held, how) = (true, Ending::Done);
        self.says(at, process, Said::Ended { call, held, how })
            .returns(at + 1, process, call, Outcome::Done)
    }

    fn returns(self, at: u64, process: u32, call: u64, result: Outcome) -> Self {
        self.says(at, process, Said::Returned { call, result })
    }

    /// A body of one call, from its begin to its end.
    fn holds(self, from: u64, to: u64, process: u32, call: u64, token: i64) -> Self {
        self.asks(from, process, call)
            .begins(from, process, call, token)
            .ends(to, process, call)
    }

    fn fault(self, from: u64, to: u64, kind: &str, names: &[&str]) -> Self {
        let fault = 0;
        let begun = What::FaultBegun {
            fault,
            kind: kind.to_owned(),
            target: String::new(),
            names: names.iter().map(|name| (*name).to_owned()).collect(),
        };
        self.add(from, begun).add(to, What::FaultHealed { fault })
    }

    fn judged(self) -> Verdicts {
        judge(&self.0)
    }

    /// Asserts that this promise is broken, and no other.
    fn breaks(self, breach: Breach) {
        let verdicts = self.judged();
        let breaches: Vec<_> = verdicts.violations.iter().map(|it| it.breach).collect();
        assert!(
            !breaches.is_empty() && breaches.iter().all(|it| *it == breach),
            "{verdicts:#?}"
        );
    }

    fn holds_all(self) {
        let verdicts = self.judged();
        assert!(verdicts.violations.is_empty(), "{verdicts:#?}");
    }
}

fn asked(names: &[&str], mode: Mode) -> Asked {
    Asked {
        kind: "exclusive".to_owned(),
        names: names.iter().map(|name| (*name).to_owned()).collect(),
        mode,
        wait: Some(10_000),
        ttl: 2_000,
        at_least: 0,
    }
}

#[test]
fn bodies_one_after_the_other_are_well() {
    Story::default()
        .holds(0, 10, 1, 1, 1)
        .holds(11, 20, 2, 1, 2)
        .holds_all();
}

#[test]
fn bodies_that_overlap_are_found() {
    Story::default()
        .holds(0, 10, 1, 1, 1)
        .holds(9, 20, 2, 1, 2)
        .breaks(Breach::Overlap);
}

#[test]
fn a_killed_holder_overlaps_up_to_its_last_poll() {
    let story = |poll| {
        Story::default()
            .asks(0, 1, 1)
            .begins(0, 1, 1, 1)
            .polls(poll, 1, 1, true)
            .add(30, What::Killed { process: 1 })
            .holds(20, 40, 2, 1, 2)
    };
    story(19).holds_all();
    story(21).breaks(Breach::Overlap);
}

#[test]
fn a_poll_after_the_stop_time_is_measured() {
    let verdicts = Story::default()
        .asks(0, 1, 1)
        .begins(0, 1, 1, 1)
        .fault(1, 2, "worker stopped", &[])
        .holds(3_000, 3_100, 2, 1, 2)
        .polls(3_050, 1, 1, false)
        .returns(3_051, 1, 1, Outcome::Lost("Expired".to_owned()))
        .judged();
    assert!(verdicts.violations.is_empty(), "{verdicts:#?}");
    assert_eq!(verdicts.after_stop, [ms(50)]);
    assert_eq!(verdicts.late_polls, 1);
}

#[test]
fn a_body_that_runs_on_after_its_loss_is_found() {
    Story::default()
        .asks(0, 1, 1)
        .begins(0, 1, 1, 1)
        .polls(100, 1, 1, false)
        .polls(110, 1, 1, false)
        .breaks(Breach::RanOn);
}

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
    assert_eq!(verdicts.removed, [ms(3)]);
    story(&["hot/1"]).breaks(Breach::Overlap);
}

#[test]
fn a_delete_excuses_nothing_once_its_holder_must_know() {
    let story = |end| {
        Story::default()
            .fault(8, 8, "key deleted", &["hot/0"])
            .holds(0, end, 1, 1, 1)
            .holds(9, 30_000, 2, 1, 2)
    };
    story(10_000).holds_all();
    story(10_010).breaks(Breach::Overlap);
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
fn a_reader_beside_a_writer_is_found() {
    let story = |mode| {
        Story::default()
            .asks_as(0, 1, 1, asked(&["hot/0"], Mode::Shared))
            .begins(0, 1, 1, 1)
            .ends(10, 1, 1)
            .asks_as(5, 2, 1, asked(&["hot/0"], mode))
            .begins(5, 2, 1, 2)
            .ends(15, 2, 1)
    };
    story(Mode::Shared).holds_all();
    story(Mode::Exclusive).breaks(Breach::Overlap);
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
            .holds(1_000, begin + 200, 1, 1, 1)
            .holds(begin, begin + 300, 2, 1, 2)
    };
    assert_eq!(story(7_100).judged().removed, [ms(200)]);
    story(7_100).holds_all();
    story(17_100).breaks(Breach::Overlap);
}

#[test]
fn locks_of_before_may_be_held_until_a_wipe_is_known() {
    let story = |begin, end, token| {
        Story::default()
            .fault(5_000, 6_000, "etcd wiped", &[])
            .holds(4_000, end, 1, 1, 9)
            .holds(begin, 20_000, 2, 1, token)
    };
    assert_eq!(story(7_000, 13_500, 1).judged().removed, [ms(6_500)]);
    story(7_000, 13_500, 1).holds_all();
    story(7_000, 14_500, 1).breaks(Breach::Overlap);
    story(4_500, 4_600, 10).breaks(Breach::Overlap);
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
    let story = |kind| {
        (0..3).fold(
            Story::default().fault(0, 1_000, kind, &[]),
            |story, process| {
                story
                    .asks_as(2_000, process, 1, asked(&["hot/0"], Mode::Permits(2)))
                    .begins(2_000 + u64::from(process), process, 1, 1)
                    .ends(2_010, process, 1)
            },
        )
    };
    let verdicts = story("etcd wiped").judged();
    assert!(verdicts.violations.is_empty(), "{verdicts:#?}");
    assert_eq!(verdicts.removed, [ms(8)]);
    story("all members restarted").breaks(Breach::Permits);
}

#[test]
fn a_wipe_ends_a_retention() {
    let story = |kind| {
        let asked = Asked {
            at_least: 500,
            ..asked(&["hot/0"], Mode::Exclusive)
        };
        let story = Story::default().fault(200, 300, kind, &[]);
        story
            .asks_as(0, 1, 1, asked)
            .begins(0, 1, 1, 1)
            .ends(10, 1, 1)
            .holds(400, 410, 2, 1, 2)
    };
    story("etcd wiped").holds_all();
    story("all members restarted").breaks(Breach::Retention);
}

#[test]
fn a_permit_too_many_is_found() {
    let story = |of| {
        (0..3).fold(Story::default(), |story, process| {
            story
                .asks_as(0, process, 1, asked(&["hot/0"], Mode::Permits(of)))
                .begins(u64::from(process), process, 1, 1)
                .ends(10, process, 1)
        })
    };
    story(3).holds_all();
    story(2).breaks(Breach::Permits);
}

#[test]
fn a_token_that_does_not_rise_is_found() {
    Story::default()
        .holds(0, 10, 1, 1, 7)
        .holds(11, 20, 2, 1, 7)
        .breaks(Breach::Token);
}

#[test]
fn tokens_of_readers_need_not_rise_among_them() {
    let reader = |story: Story, at, process, token| {
        story
            .asks_as(at, process, 1, asked(&["hot/0"], Mode::Shared))
            .begins(at, process, 1, token)
            .ends(at + 5, process, 1)
    };
    let story = reader(Story::default().holds(0, 1, 1, 1, 5), 2, 2, 8);
    let story = reader(story, 3, 3, 7);
    story.holds(20, 21, 4, 1, 9).holds_all();
    let story = reader(Story::default().holds(0, 1, 1, 1, 5), 2, 2, 4);
    story.breaks(Breach::Token);
}

#[test]
fn a_refused_write_of_a_holder_is_found() {
    let write = |at| {
        let written = What::Written {
            process: 1,
            call: 1,
            name: "hot/0".to_owned(),
            token: 1,
            accepted: false,
        };
        Story::default().holds(0, 10, 1, 1, 1).add(at, written)
    };
    write(5).breaks(Breach::Register);
    let verdicts = write(12).judged();
    assert!(verdicts.violations.is_empty());
    assert_eq!(verdicts.refused_writes, 1);
}

#[test]
fn a_group_partly_held_is_found() {
    Story::default()
        .asks_as(0, 1, 1, asked(&["hot/0", "hot/1"], Mode::Exclusive))
        .begins(0, 1, 1, 1)
        .ends(10, 1, 1)
        .breaks(Breach::Group);
}

#[test]
fn a_call_that_is_overtaken_in_calm_is_found() {
    let story = Story::default()
        .holds(0, 500, 1, 1, 1)
        .asks(100, 1, 2)
        .asks(300, 1, 3);
    story
        .begins(600, 1, 3, 2)
        .ends(700, 1, 3)
        .begins(800, 1, 2, 3)
        .ends(900, 1, 2)
        .breaks(Breach::Order);
}

#[test]
fn a_fault_excuses_calls_that_are_overtaken() {
    let story = Story::default()
        .holds(0, 500, 1, 1, 1)
        .asks(100, 1, 2)
        .asks(300, 1, 3);
    story
        .fault(400, 450, "all connections reset", &[])
        .begins(600, 1, 3, 2)
        .ends(700, 1, 3)
        .begins(800, 1, 2, 3)
        .ends(900, 1, 2)
        .holds_all();
}

#[test]
fn a_first_call_that_another_process_overtakes_is_found() {
    let story = |asked, token| {
        let story = Story::default()
            .holds(0, 5_000, 1, 1, 1)
            .asks(100, 2, 1)
            .asks(asked, 3, 1);
        story
            .begins(6_000, 3, 1, token)
            .ends(6_100, 3, 1)
            .begins(6_200, 2, 1, 3 << 16)
            .ends(6_300, 2, 1)
    };
    story(3_000, 2 << 16).breaks(Breach::Order);
    // So soon after it, either may have reached etcd first.
    story(900, 2 << 16).holds_all();
    // It was handed on inside its process.
    story(3_000, (2 << 16) + 1).holds_all();
}

#[test]
fn a_call_beyond_its_bound_is_found() {
    let story = |at| {
        Story::default()
            .asks(0, 1, 1)
            .returns(at, 1, 1, Outcome::Busy)
    };
    story(12_900).holds_all();
    story(13_100).breaks(Breach::Bound);
    // It never returns.
    Story::default()
        .asks(0, 1, 1)
        .add(14_000, What::Over)
        .breaks(Breach::Bound);
}

#[test]
fn time_in_which_a_process_was_stopped_does_not_count() {
    Story::default()
        .asks(0, 1, 1)
        .add(1_000, What::Stopped { process: 1 })
        .add(9_000, What::Continued { process: 1 })
        .returns(20_000, 1, 1, Outcome::Busy)
        .holds_all();
}

#[test]
fn time_in_which_the_machine_stood_still_does_not_count() {
    Story::default()
        .asks(0, 1, 1)
        .says(9_000, 1, Said::Stalled { since: ms(1_000) })
        .returns(20_000, 1, 1, Outcome::Busy)
        .holds_all();
}

#[test]
fn a_release_that_takes_too_long_is_found() {
    let ended = Said::Ended {
        call: 1,
        held: true,
        how: Ending::Done,
    };
    Story::default()
        .asks(0, 1, 1)
        .begins(0, 1, 1, 1)
        .says(10, 1, ended)
        .returns(6_000, 1, 1, Outcome::Done)
        .breaks(Breach::Bound);
}

#[test]
fn a_retention_cut_short_is_found() {
    let story = |next| {
        let asked = Asked {
            at_least: 500,
            ..asked(&["hot/0"], Mode::Exclusive)
        };
        let story = Story::default()
            .asks_as(0, 1, 1, asked)
            .begins(0, 1, 1, 1)
            .ends(10, 1, 1);
        story.holds(next, next + 10, 2, 1, 2)
    };
    story(501).holds_all();
    story(400).breaks(Breach::Retention);
}

#[test]
fn an_error_without_a_fault_is_found() {
    let story = |from| {
        let story = Story::default().fault(from, from + 1, "worker cut off", &[]);
        let error = Outcome::Refused("etcd failed".to_owned());
        story.asks(50_000, 1, 1).returns(50_001, 1, 1, error)
    };
    story(49_000).holds_all();
    story(34_000).breaks(Breach::Error);
}

#[test]
fn a_name_that_is_not_served_in_calm_is_found() {
    let story = |next| {
        Story::default()
            .holds(0, 1, 1, 1, 1)
            .fault(10, 1_000, "leader killed", &[])
            .holds(next, next + 1, 1, 2, 2)
            .add(60_000, What::Draining)
    };
    let verdicts = story(3_000).judged();
    assert!(verdicts.violations.is_empty(), "{verdicts:#?}");
    assert_eq!(verdicts.recoveries[0].took, ms(2_000));
    story(60_001).breaks(Breach::Liveness);
}

#[test]
fn what_is_left_is_found() {
    let keys = vec!["locks/hot/0/1".to_owned()];
    Story::default()
        .add(0, What::Left { keys })
        .breaks(Breach::Left);
    let died = What::Exited {
        process: 1,
        well: false,
    };
    Story::default().add(0, died).breaks(Breach::Died);
}

#[test]
fn a_log_storm_is_found() {
    let story = |lines| {
        let line = || Said::Logged {
            level: "WARN".to_owned(),
            text: "a lock was lost".to_owned(),
        };
        let story = Story::default().fault(0, 1, "worker cut off", &[]);
        (0..lines).fold(story, |story, at| story.says(10 + at, 1, line()))
    };
    story(10).holds_all();
    story(11).breaks(Breach::Logs);
}
