//! Readers: they hold a name together, writers alone, and all in the order in which they came (rule P37).

use std::time::Duration;

use etcd_locked_core::{Input, LossCause, Mode, Refused, Request, Wait};
use etcd_locked_sim::etcd::unavailable;

use crate::CallId;
use crate::rig::{Rig, TTL, deletes, reads};
use crate::town::Town;

const SECOND: Duration = Duration::from_secs(1);

/// Longer than a read is relied on.
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
fn key_of_readers_goes_with_the_last_of_them() {
    let mut town = read_in_one_of(1);
    let requests = town.requests;
    for call in 2..=9 {
        read(&mut town, 0, call, &[]);
        assert!(town.is_granted(0, call));
    }
    assert_eq!(town.requests, requests, "only the first needs etcd");
    for call in [1, 9, 2, 3, 4, 5, 6, 7] {
        town.release(0, call);
        assert_eq!(town.keys("s"), ["locks/s/a1.r0"]);
    }
    town.release(0, 8);
    assert!(town.keys("s").is_empty());
}

#[test]
fn readers_of_several_processes_hold_together() {
    let mut town = read_in_one_of(3);
    read(&mut town, 1, 2, &[]);
    try_to_read(&mut town, 2, 3);
    assert_eq!(granted(&town, &[2, 3]), [true, true]);
    assert_eq!(town.keys("s"), ["locks/s/a1.r0", "locks/s/a2.r0", "locks/s/a3.r0"]);
}

#[test]
fn writer_between_readers_holds_alone() {
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
fn writer_between_readers_of_its_process_holds_alone() {
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
fn reader_behind_a_writer_is_served_after_it() {
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
fn tokens_of_readers_lie_between_those_of_writers() {
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

/// The key of Go's mutex, or of the lock service, says nothing of modes.
#[test]
fn key_of_an_unknown_form_excludes_all() {
    let mut town = Town::of(2);
    town.contend("locks/s/694d");
    try_to_read(&mut town, 0, 1);
    assert!(matches!(town.refusals()[..], [(1, Refused::Held { .. })]));
    read(&mut town, 0, 2, &[]);
    let permits = Mode::Permits(2.try_into().expect("not zero"));
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
    assert!(matches!(town.refusals()[..], [_, (4, Refused::Held { .. })]));
}

#[test]
fn writer_that_has_gone_excludes_no_try() {
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

/// A reader waits already, and knows of the writer.
#[test]
fn try_joins_once_the_writer_ahead_of_a_reader_is_gone() {
    let mut town = read_in_one_of(2);
    write(&mut town, 1, 2);
    town.live(LATER);
    read(&mut town, 0, 3, &[]);
    town.live(10 * SECOND);
    try_to_read(&mut town, 0, 4);
    town.live(SECOND);
    assert!(matches!(town.refusals()[..], [(4, Refused::Held { .. })]));
    town.live(LATER);
    town.cancel(1, 2);
    try_to_read(&mut town, 0, 5);
    assert_eq!(granted(&town, &[3, 5]), [true, true]);
}

#[test]
fn reader_is_served_soon_after_a_writer_has_gone() {
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
fn waiting_reader_reads_a_few_times_a_second_at_most() {
    let mut town = read_in_one_of(2);
    write(&mut town, 1, 2);
    town.live(LATER);
    read(&mut town, 0, 3, &[]);
    town.live(3 * SECOND);
    let requests = town.requests;
    town.live(10 * SECOND);
    assert!(town.requests - requests < 60, "{}", town.requests - requests);
    town.cancel(1, 2);
    let took = town.until(|town| town.is_granted(0, 3));
    assert!(took <= SECOND / 2, "{took:?}");
}

/// A writer of this process has given up, and its key is going: that keeps no reader out.
#[test]
fn own_key_that_is_being_deleted_excludes_no_reader() {
    let mut town = read_in_one_of(1);
    write(&mut town, 0, 2);
    town.live(LATER);
    town.withhold = is_delete;
    town.cancel(0, 2);
    assert_eq!(town.keys("s").len(), 2);
    town.live(LATER);
    read(&mut town, 0, 3, &[]);
    assert!(town.is_granted(0, 3));
    town.let_through();
    assert_eq!(town.keys("s"), ["locks/s/a1.r0"]);
}

fn is_delete(request: &Request) -> bool {
    !crate::rig::deletes(request).is_empty()
}

/// etcd is not reached: a try that needs a read first is refused within the connect time-out.
#[test]
fn try_that_needs_a_read_is_refused_in_time_in_an_outage() {
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
    assert!(matches!(refusals[..], [(2, Refused::Backend(_))]), "{refusals:?}");
    // Those who have it go on, and when etcd is back others join them.
    town.withhold = |_| false;
    town.live(SECOND);
    try_to_read(&mut town, 0, 3);
    assert!(town.is_granted(0, 3));
}

/// Connections are refused at once: a read for a call that would join is sent again after a pause.
#[test]
fn reads_keep_their_pauses_in_an_outage() {
    for age in [LATER, 4 * SECOND] {
        let mut rig = Rig::warm();
        rig.share(1, "locks/s", Mode::Shared, Wait::Forever);
        rig.serve();
        rig.granted(1);
        rig.live(LATER);
        rig.pass(age); // longer ago than is relied on: a read, or a renewal
        rig.share(2, "locks/s", Mode::Shared, Wait::Forever);
        let mut asked = 0;
        for _ in 0..200 {
            while let Some((id, _)) = rig.sent.pop_front() {
                asked += 1;
                assert!(asked < 60, "without pause");
                rig.answer(id, Err(unavailable()));
            }
            rig.pass(Duration::from_millis(5));
        }
        assert!(asked > 1, "nothing was asked");
    }
}

#[test]
fn all_readers_of_a_key_lose_its_lease() {
    let mut rig = Rig::warm();
    for call in [1, 2] {
        rig.share(call, "locks/s", Mode::Shared, Wait::Forever);
        rig.serve();
        rig.granted(call);
    }
    rig.store.revoke(0xa1);
    rig.live(9 * SECOND);
    for call in [1, 2] {
        assert_eq!(rig.lost(call), LossCause::Gone);
        rig.give_back(call);
        assert!(rig.released(call).is_ok());
    }
}

/// Another process held the name when a call of this process waited for it; now a reader of this process does.
#[test]
fn refused_try_names_the_reader_that_holds_now() {
    let mut town = Town::of(2);
    town.take(1, 1, &["s"]);
    write(&mut town, 0, 2);
    town.live(2 * SECOND);
    town.cancel(0, 2);
    town.release(1, 1);
    read(&mut town, 0, 3, &[]);
    town.ask_for(0, 4, &["s"], &[], Wait::Once);
    let refusals = town.refusals();
    let [(4, Refused::Held { owner, .. })] = &refusals[..] else {
        panic!("{refusals:?}");
    };
    let record = owner.as_ref().map(|owner| &*owner.record);
    assert_eq!(record, Some(&b"{\"call\":3}"[..]));
}

/// The calls have their ids in the order of their coming, which may not be that of their grants.
#[test]
fn timeout_names_the_reader_that_was_granted_first() {
    let mut rig = Rig::warm();
    for call in [3, 2, 1] {
        rig.read_for(call, "locks/s", TTL);
    }
    for (writer, first) in [(4, 3), (5, 2)] {
        rig.acquire(writer, "locks/s", Wait::For(SECOND / 10));
        rig.live(SECOND / 5);
        let refused = rig.refused(writer);
        let Refused::Timeout { owner: Some(owner), .. } = refused else { panic!("{refused:?}") };
        assert_eq!(String::from_utf8_lossy(&owner.record), format!("call {first}"));
        rig.give_back(first);
    }
}

/// A read at most 50 ms old has shown no contender behind the readers.
#[test]
fn reader_joins_at_once_while_a_read_is_recent() {
    for (age, asks) in [(50, false), (100, true)] {
        let mut rig = Rig::warm();
        rig.share(1, "locks/s", Mode::Shared, Wait::Forever);
        rig.serve();
        rig.granted(1);
        rig.pass(Duration::from_millis(age));
        rig.share(2, "locks/s", Mode::Shared, Wait::Forever);
        let joined = rig.output(2);
        assert_eq!(joined.is_none(), asks, "{age} ms");
        rig.serve();
        assert_eq!(rig.output(2).is_some(), asks);
        assert!(!rig.has("locks/s/a1.r1"));
    }
}

/// Call 1 has read for a second, and a try asks etcd whether it may join.
fn asking() -> Rig {
    let mut rig = Rig::warm();
    rig.share(1, "locks/s", Mode::Shared, Wait::Forever);
    rig.serve();
    rig.granted(1);
    rig.pass(SECOND);
    rig.share(2, "locks/s", Mode::Shared, Wait::Once);
    rig
}

/// The answer takes longer than it is relied on.
#[test]
fn reader_joins_where_etcd_is_far_away() {
    let mut rig = asking();
    let (id, read) = rig.take_that(reads);
    let answer = rig.store.apply(rig.now, &read);
    rig.pass(SECOND / 10);
    rig.answer(id, answer);
    rig.granted(2);
}

#[test]
fn reader_that_cannot_join_puts_a_second_key() {
    let mut town = read_in_one_of(2);
    write(&mut town, 1, 2);
    town.live(LATER);
    read(&mut town, 0, 3, &[]);
    town.live(LATER);
    let keys = ["locks/s/a1.r0", "locks/s/a2", "locks/s/a1.r1"];
    assert_eq!(town.keys("s"), keys);
    town.release(0, 1);
    town.until(|town| town.is_granted(1, 2));
    town.release(1, 2);
    town.until(|town| town.is_granted(0, 3));
    assert_eq!(town.keys("s"), ["locks/s/a1.r1"]);
}

/// The event comes before the answer to the delete, and the writer's watch tells it all.
#[test]
fn event_of_an_own_readers_key_admits_the_writer_behind() {
    let mut rig = Rig::warm();
    rig.share(1, "locks/s", Mode::Shared, Wait::Forever);
    rig.serve();
    rig.granted(1);
    rig.acquire(2, "locks/s", Wait::Forever);
    rig.live(SECOND);
    rig.release(1);
    let (id, delete) = rig.take_that(|request| !deletes(request).is_empty());
    let deleted = rig.store.apply(rig.now, &delete);
    rig.report();
    rig.answer(id, deleted);
    rig.granted(2);
}

/// A later read has shown a writer before that answer comes.
#[test]
fn answer_that_is_overtaken_lets_no_reader_join() {
    let mut rig = asking();
    let (early, read) = rig.take_that(reads);
    let answer = rig.store.apply(rig.now, &read);
    rig.contend("locks/s/zx");
    rig.submit(Input::Inspect);
    rig.serve();
    assert!(matches!(rig.refused(2), Refused::Held { .. }));
    rig.answer(early, answer);
    rig.share(3, "locks/s", Mode::Shared, Wait::Once);
    rig.serve();
    assert!(matches!(rig.refused(3), Refused::Held { .. }));
}

/// A writer comes while the answer that the gate relies on is on its way.
#[test]
fn writer_is_overtaken_only_while_an_answer_is_relied_on() {
    let mut rig = Rig::warm();
    rig.share(1, "locks/s", Mode::Shared, Wait::Forever);
    rig.serve();
    rig.granted(1);
    rig.pass(Duration::from_secs(1));
    rig.share(2, "locks/s", Mode::Shared, Wait::Forever);
    let (id, read) = rig.take_that(reads);
    let answer = rig.store.apply(rig.now, &read);
    rig.contend("locks/s/zx");
    rig.pass(Duration::from_millis(100));
    rig.answer(id, answer);
    rig.granted(2);
    rig.pass(Duration::from_millis(60));
    rig.share(3, "locks/s", Mode::Shared, Wait::Once);
    rig.serve();
    assert!(matches!(rig.refused(3), Refused::Held { .. }));
}
