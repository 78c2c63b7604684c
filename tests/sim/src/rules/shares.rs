//! Readers have a name together, writers alone, and all in the order in which they came (rule P37).

use std::time::Duration;

use super::rig::Rig;
use super::town::{Town, is_publication};
use etcd_locked_core::Mode;
use etcd_locked_core::Request;
use etcd_locked_core::{CallId, Output, Refused};
use etcd_locked_core::Wait;
use crate::world::etcd::unavailable;

const SECOND: Duration = Duration::from_secs(1);

/// Longer than a look is relied on.
pub(super) const LATER: Duration = Duration::from_millis(100);

pub(super) fn read(town: &mut Town, n: usize, call: CallId, holds: &[CallId]) {
    town.ask_as(n, call, Mode::Shared, &["s"], holds, Wait::Forever);
}

pub(super) fn try_to_read(town: &mut Town, n: usize, call: CallId) {
    town.ask_as(n, call, Mode::Shared, &["s"], &[], Wait::Once);
}

pub(super) fn write(town: &mut Town, n: usize, call: CallId) {
    town.ask(n, call, &["s"], &[]);
}

/// So many processes, in the first of which call 1 reads.
pub(super) fn read_in_one_of(processes: u64) -> Town {
    let mut town = Town::of(processes);
    read(&mut town, 0, 1, &[]);
    assert!(town.is_granted(0, 1));
    town
}

pub(super) fn granted(town: &Town, calls: &[CallId]) -> Vec<bool> {
    let anywhere = |call: &CallId| {
        let mut processes = 0..town.processes.len();
        processes.any(|n| town.is_granted(n, *call))
    };
    calls.iter().map(anywhere).collect()
}

#[test]
fn readers_of_a_process_have_one_key_and_it_goes_with_the_last() {
    let mut town = read_in_one_of(1);
    let requests = town.requests;
    for call in 2..=9 {
        read(&mut town, 0, call, &[]);
        assert!(town.is_granted(0, call));
    }
    assert_eq!(town.requests, requests, "etcd hears of the first alone");
    for call in [1, 9, 2, 3, 4, 5, 6, 7] {
        town.release(0, call);
        assert_eq!(town.keys("s"), ["locks/s/a1.r"]);
    }
    town.release(0, 8);
    assert!(town.keys("s").is_empty());
}

#[test]
fn readers_of_several_processes_are_beside_each_other() {
    let mut town = read_in_one_of(3);
    read(&mut town, 1, 2, &[]);
    try_to_read(&mut town, 2, 3);
    assert_eq!(granted(&town, &[2, 3]), [true, true]);
    assert_eq!(
        town.keys("s"),
        ["locks/s/a1.r", "locks/s/a2.r", "locks/s/a3.r"]
    );
}

#[test]
fn a_writer_in_the_middle_is_alone() {
    let mut town = read_in_one_of(4);
    read(&mut town, 1, 2, &[]);
    write(&mut town, 2, 3);
    read(&mut town, 3, 4, &[]);
    town.release(0, 1);
    assert_eq!(granted(&town, &[3, 4]), [false, false]);
    town.release(1, 2);
    assert_eq!(granted(&town, &[3, 4]), [true, false]);
    town.live(SECOND);
    assert!(!town.is_granted(3, 4));
    town.release(2, 3);
    assert!(town.is_granted(3, 4));
}

#[test]
fn inside_a_process_too() {
    let mut town = read_in_one_of(1);
    read(&mut town, 0, 2, &[]);
    write(&mut town, 0, 3);
    read(&mut town, 0, 4, &[]);
    town.live(SECOND);
    assert_eq!(granted(&town, &[2, 3, 4]), [true, false, false]);
    town.release(0, 1);
    town.release(0, 2);
    assert_eq!(granted(&town, &[3, 4]), [true, false]);
    town.release(0, 3);
    assert!(town.is_granted(0, 4));
}

/// Nor is a writer kept waiting by readers that come one after the other, nor they by writers.
#[test]
fn who_comes_later_than_a_writer_is_served_later() {
    let mut town = read_in_one_of(2);
    write(&mut town, 1, 2);
    town.live(LATER);
    read(&mut town, 0, 3, &[]);
    write(&mut town, 1, 4);
    town.live(SECOND);
    assert_eq!(granted(&town, &[2, 3, 4]), [false, false, false]);
    town.release(0, 1);
    assert_eq!(granted(&town, &[2, 3, 4]), [true, false, false]);
    town.release(1, 2);
    town.until(|town| town.is_granted(0, 3) || town.is_granted(1, 4));
    let (n, first, then) = match town.is_granted(0, 3) {
        true => (0, 3, 4),
        false => (1, 4, 3),
    };
    assert_eq!(granted(&town, &[then]), [false]);
    town.release(n, first);
    town.until(|town| granted(town, &[then]) == [true]);
}

#[test]
fn a_reader_s_token_is_between_those_of_the_writers_before_and_after() {
    let mut town = Town::of(1);
    let token = |town: &Town, call| {
        let owned = &town.grant(0, call).owned[0];
        (owned.revision, owned.handover)
    };
    write(&mut town, 0, 1);
    for call in [2, 3] {
        read(&mut town, 0, call, &[]);
    }
    write(&mut town, 0, 4);
    for call in [1, 2, 3] {
        town.release(0, call);
    }
    assert!(town.is_granted(0, 4));
    let tokens = [1, 2, 3, 4].map(|call| token(&town, call));
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
}

/// Go's mutex, or another lock service's key, says nothing of modes.
#[test]
fn a_plain_contender_excludes_all() {
    let mut town = Town::of(2);
    town.contend("locks/s/694d");
    try_to_read(&mut town, 0, 1);
    assert!(matches!(town.refusals()[..], [(1, Refused::Held { .. })]));
    read(&mut town, 0, 2, &[]);
    let permits = Mode::Permits(2.try_into().unwrap());
    town.ask_as(1, 3, permits, &["s"], &[], Wait::Forever);
    town.live(SECOND);
    assert_eq!(granted(&town, &[2, 3]), [false, false]);
    town.store.delete(b"locks/s/694d");
    town.until(|town| town.is_granted(0, 2));
    assert!(!town.is_granted(1, 3));
    // And one that comes later waits for those who have it, and keeps the others from joining.
    town.contend("locks/s/694e");
    town.live(LATER);
    try_to_read(&mut town, 0, 4);
    assert!(matches!(
        town.refusals()[..],
        [_, (4, Refused::Held { .. })]
    ));
}

#[test]
fn a_writer_that_has_gone_keeps_no_try_out() {
    let mut town = read_in_one_of(2);
    write(&mut town, 1, 2);
    town.live(LATER);
    try_to_read(&mut town, 0, 3);
    assert!(matches!(town.refusals()[..], [(3, Refused::Held { .. })]));
    town.cancel(1, 2);
    town.live(LATER);
    try_to_read(&mut town, 0, 4);
    assert!(town.is_granted(0, 4), "{:?}", town.refusals());
}

/// Somebody stands in line already, and has been told of the writer.
#[test]
fn nor_one_that_stands_behind_a_reader_who_waits() {
    let mut town = read_in_one_of(2);
    write(&mut town, 1, 2);
    town.live(LATER);
    read(&mut town, 0, 3, &[]);
    town.live(10 * SECOND);
    try_to_read(&mut town, 0, 4);
    assert!(
        matches!(town.refusals()[..], [(4, Refused::Held { .. })]),
        "told at once"
    );
    town.live(LATER);
    town.cancel(1, 2);
    try_to_read(&mut town, 0, 5);
    assert_eq!(granted(&town, &[3, 5]), [true, true]);
}

#[test]
fn nor_does_it_keep_a_reader_waiting_for_long() {
    let mut town = read_in_one_of(2);
    write(&mut town, 1, 2);
    town.live(LATER);
    read(&mut town, 0, 3, &[]);
    town.live(LATER);
    assert!(!town.is_granted(0, 3));
    town.cancel(1, 2);
    town.live(LATER);
    assert!(town.is_granted(0, 3));
}

/// However long the writer has been there, etcd is not asked all the time.
#[test]
fn while_it_stands_there_it_is_looked_for_a_few_times_a_second() {
    let mut town = read_in_one_of(2);
    write(&mut town, 1, 2);
    town.live(LATER);
    read(&mut town, 0, 3, &[]);
    town.live(3 * SECOND);
    let requests = town.requests;
    town.live(10 * SECOND);
    assert!(
        town.requests - requests < 60,
        "{}",
        town.requests - requests
    );
    town.cancel(1, 2);
    let took = town.until(|town| town.is_granted(0, 3));
    assert!(took <= SECOND / 2, "{took:?}");
}

/// A writer of this process has given up, and its key is going: that keeps no reader out.
#[test]
fn an_own_key_that_is_going_keeps_nobody_out() {
    let mut town = read_in_one_of(1);
    write(&mut town, 0, 2);
    town.live(LATER);
    town.withhold = is_delete;
    town.cancel(0, 2);
    assert_eq!(town.keys("s").len(), 2);
    town.live(LATER);
    read(&mut town, 0, 3, &[]);
    assert!(town.is_granted(0, 3));
    town.withhold = |_| false;
    town.let_through();
    assert_eq!(town.keys("s"), ["locks/s/a1.r"]);
}

fn is_delete(request: &Request) -> bool {
    !super::rig::deletes(request).is_empty()
}

/// Another who holds it was writing meanwhile, and that write says what the one who leaves waited for.
#[test]
fn what_a_reader_leaves_written_is_unwritten() {
    let mut town = read_in_one_of(2);
    read(&mut town, 0, 2, &[]);
    town.take(1, 8, &["x"]);
    town.take(1, 9, &["y"]);
    town.ask(0, 11, &["x"], &[1]);
    town.live(SECOND / 2);
    town.ask(0, 12, &["y"], &[2]);
    town.until(|town| town.says("locks/s/a1.r", "locks/x/a1"));
    // The other's first write finds that, the second is to say both.
    town.withhold = is_publication;
    town.until(|town| town.withheld.len() == 1);
    town.let_through();
    assert_eq!(town.withheld.len(), 1);
    town.cancel(0, 11);
    town.release(0, 1);
    town.withhold = |_| false;
    town.let_through();
    assert!(town.says("locks/s/a1.r", "locks/y/a1"));
    assert!(!town.says("locks/s/a1.r", "locks/x/a1"));
}

/// etcd is not reached: a try that has to look first is told within the time-out of any other.
#[test]
fn in_an_outage_a_try_that_looks_is_told_in_time() {
    let mut town = read_in_one_of(2);
    town.live(LATER);
    town.withhold = |_| true;
    try_to_read(&mut town, 0, 2);
    let begun = town.now;
    while town.refusals().is_empty() {
        town.live(LATER);
        town.lose(false);
        assert!(town.now - begun < 6 * SECOND, "never");
    }
    assert!(town.now - begun > 4 * SECOND);
    let refusals = town.refusals();
    assert!(
        matches!(refusals[..], [(2, Refused::Backend(_))]),
        "{refusals:?}"
    );
    // Those who have it go on, and when etcd is back others join them.
    town.withhold = |_| false;
    town.live(SECOND);
    try_to_read(&mut town, 0, 3);
    assert!(town.is_granted(0, 3));
}

/// etcd refuses at once: whoever would join is asked for again after a pause, not as fast as etcd refuses.
#[test]
fn in_an_outage_looks_and_renewals_keep_their_pauses() {
    for age in [LATER, 4 * SECOND] {
        let mut rig = Rig::warm();
        rig.share(1, "locks/s", Mode::Shared, Wait::Forever);
        rig.serve();
        rig.granted(1);
        rig.live(LATER);
        rig.pass(age); // longer ago than is relied on: a look, or a renewal
        rig.share(2, "locks/s", Mode::Shared, Wait::Forever);
        let mut asked = 0;
        for _ in 0..200 {
            while let Some((id, _)) = rig.sent.pop_front() {
                asked += 1;
                assert!(asked < 60, "and on and on");
                rig.answer(id, Err(unavailable()));
            }
            rig.pass(Duration::from_millis(5));
        }
        assert!(asked > 1, "nothing was asked");
    }
}

#[test]
fn whoever_is_with_others_is_told_that_the_lease_was_lost() {
    let mut rig = Rig::warm();
    for call in [1, 2] {
        rig.share(call, "locks/s", Mode::Shared, Wait::Forever);
        rig.serve();
        rig.granted(call);
    }
    rig.store.revoke(0xa1);
    rig.live(9 * SECOND);
    for call in [1, 2] {
        rig.lost(call);
        rig.release(call);
        let told = rig.told(call);
        assert!(
            matches!(
                told,
                Some(Output::Released {
                    result: Err(Refused::Lost { .. }),
                    ..
                })
            ),
            "{told:?}"
        );
    }
}

/// Somebody had the name when a call of this process waited for it; now others have.
#[test]
fn a_try_is_told_who_has_it_now() {
    let mut town = Town::of(2);
    town.take(1, 1, &["s"]);
    write(&mut town, 0, 2);
    town.live(2 * SECOND);
    town.cancel(0, 2);
    town.release(1, 1);
    read(&mut town, 0, 3, &[]);
    town.ask_for(0, 4, &["s"], &[], Wait::Once);
    let refusals = town.refusals();
    let [(4, Refused::Held { holder, .. })] = &refusals[..] else {
        panic!("{refusals:?}");
    };
    assert_eq!(holder.as_deref(), Some(&b"{\"call\":3}"[..]));
}
