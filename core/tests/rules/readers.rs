//! Readers: they hold a name together, writers alone, and all in the order of their arrival (rule P37).

use crate::*;

/// Longer than a read is valid.
pub(super) const LATER: Duration = millis(100);

/// Makes several processes. Call 1 reads in the first.
pub(super) fn read_in_one_of(processes: u64) -> Town {
    let mut town = Town::of(processes);
    town.read(0, 1).granted(&[1]);
    town
}

/// Call 1 reads in process 0, and call 2 of process 1 waits to write.
fn writer_behind() -> Town {
    let mut town = read_in_one_of(2);
    town.write(1, 2).live(LATER);
    town
}

/// Call 3 of process 0 waits to read after that writer.
fn reader_behind_the_writer() -> Town {
    let mut town = writer_behind();
    town.read(0, 3);
    town
}

#[test]
fn key_of_readers_goes_with_the_last_of_them() {
    let mut town = read_in_one_of(1);
    let requests = town.requests();
    for call in 2..=9 {
        town.read(0, call).granted(&[call]);
    }
    assert_eq!(town.requests(), requests, "only the first needs etcd");
    for call in [1, 9, 2, 3, 4, 5, 6, 7] {
        town.release(call);
        assert_eq!(town.keys("s"), ["locks/s/a1.r0"]);
    }
    town.release(8);
    assert!(town.keys("s").is_empty());
}

#[test]
fn readers_of_several_processes_hold_together() {
    let mut town = read_in_one_of(3);
    town.read(1, 2).try_to_read(2, 3).granted(&[2, 3]);
    assert_eq!(town.keys("s"), ["locks/s/a1.r0", "locks/s/a2.r0", "locks/s/a3.r0"]);
}

#[test]
fn writer_between_readers_holds_alone() {
    for homes in [[1, 2, 3], [0, 0, 0], [0, 1, 0]] {
        let mut town = read_in_one_of(4);
        town.read(homes[0], 2).write(homes[1], 3).live(LATER).read(homes[2], 4);
        town.live(SECOND).granted(&[2]).waits(&[3, 4]);
        town.release(1).waits(&[3, 4]);
        town.release(2).granted(&[3]).waits(&[4]);
        town.live(SECOND).waits(&[4]).release(3).granted(&[4]);
    }
}

#[test]
fn tokens_of_readers_lie_between_those_of_writers() {
    let mut town = Town::of(1);
    town.write(0, 1).read(0, 2).read(0, 3).write(0, 4);
    town.release(1).release(2).release(3);
    let tokens = [1, 2, 3, 4].map(|call| {
        let owned = &town.grant(call).owned[0];
        (owned.revision, owned.handover)
    });
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
}

/// A key of Go's mutex, or of the lock service, contains no mode.
#[test]
fn key_of_an_unknown_form_excludes_all() {
    let mut town = Town::of(2);
    town.contend("locks/s/694d").try_to_read(0, 1).busy(&[1]).read(0, 2);
    town.ask_as(1, 3, permits(2), &["s"], &[], Wait::Forever).live(SECOND).waits(&[2, 3]);
    town.store.delete(b"locks/s/694d");
    town.grants(2).waits(&[3]);
    // A later such key waits for the readers, and keeps others from joining them.
    town.contend("locks/s/694e").live(LATER).try_to_read(0, 4).busy(&[1, 4]);
}

#[test]
fn writer_that_has_gone_excludes_no_try() {
    for a_reader_waits in [true, false] {
        let mut town = if a_reader_waits { reader_behind_the_writer() } else { writer_behind() };
        town.live(10 * SECOND).try_to_read(0, 4).live(SECOND + LATER).busy(&[4]);
        town.cancel(2).try_to_read(0, 5).granted(&[5]);
        assert_eq!(town.is_granted(3), a_reader_waits);
    }
}

#[test]
fn waiting_reader_reads_a_few_times_a_second_at_most() {
    let mut town = reader_behind_the_writer();
    let requests = town.live(3 * SECOND).requests();
    town.live(10 * SECOND);
    assert!(town.requests() - requests < 60, "{}", town.requests() - requests);
}

#[test]
fn reader_is_served_soon_after_a_writer_has_gone() {
    for (waited, soon) in [(LATER, LATER), (13 * SECOND, SECOND / 2)] {
        let mut town = reader_behind_the_writer();
        town.live(waited).waits(&[3]).cancel(2).live(soon).granted(&[3]);
    }
}

/// A writer of this process has given up, and its key is being deleted. That does not exclude readers.
#[test]
fn own_key_that_is_being_deleted_excludes_no_reader() {
    let mut town = read_in_one_of(1);
    town.write(0, 2).live(LATER);
    town.withhold = deletes;
    town.cancel(2);
    assert_eq!(town.keys("s").len(), 2);
    town.live(LATER).read(0, 3).granted(&[3]).let_through();
    assert_eq!(town.keys("s"), ["locks/s/a1.r0"]);
}

#[test]
fn try_that_needs_a_read_is_refused_in_time_in_an_outage() {
    let mut rig = asking();
    let begun = rig.now;
    while rig.outputs.is_empty() {
        rig.pass(LATER).fail_all(unknown);
        assert!(rig.now - begun < 6 * SECOND, "never");
    }
    assert!(rig.now - begun > 4 * SECOND);
    assert!(matches!(rig.refused(2), Refused::Backend(_)));
    rig.live(SECOND).share(3, A, Mode::Shared, Wait::Once).serves(3);
}

/// Connections are refused at once. A read for a call that wants to join is sent again after a pause.
#[test]
fn reads_keep_their_pauses_in_an_outage() {
    for age in [LATER, 4 * SECOND] {
        let mut rig = Rig::reading();
        rig.live(LATER).pass(age); // longer than a read is valid, or than a renewal waits
        rig.share(2, A, Mode::Shared, Wait::Forever);
        let mut asked = 0;
        for _ in 0..200 {
            asked += rig.sent.len();
            rig.fail_all(unavailable).pass(millis(5));
        }
        assert!((2..60).contains(&asked), "{asked} in a second");
    }
}

#[test]
fn all_readers_of_a_key_lose_its_lease() {
    let mut rig = Rig::reading();
    rig.read(2, A);
    rig.store.revoke(0xa1);
    rig.live(9 * SECOND).lost(1, LossCause::Gone).lost(2, LossCause::Gone);
}

/// Another process held the name while a call of this process waited for it. Now a reader of this process holds it.
#[test]
fn refused_try_names_the_reader_that_holds_now() {
    let mut rig = Rig::waiting();
    rig.live(2 * SECOND).cancel(1).serve();
    rig.delete("locks/a/zz").read(3, A).attempt(4, A);
    assert_eq!(rig.busy(4).1, record(3));
}

/// Calls are numbered in the order of their arrival, which may differ from the order of their grants.
#[test]
fn timeout_names_the_reader_that_was_granted_first() {
    let mut rig = Rig::warm();
    rig.read(3, A).read(2, A).read(1, A);
    for (writer, first) in [(4, 3), (5, 2)] {
        rig.acquire_within(writer, A, SECOND / 10).live(SECOND / 5);
        assert_eq!(rig.timed_out(writer).1, record(first));
        rig.give_back(first);
    }
}

/// A read in the last 50 ms has shown no contender behind the readers.
#[test]
fn reader_joins_at_once_while_a_read_is_recent() {
    for (age, asks) in [(50, false), (100, true)] {
        let mut rig = Rig::reading();
        rig.pass(millis(age)).share(2, A, Mode::Shared, Wait::Forever);
        if asks {
            rig.nothing_about(2).serve();
        }
        rig.granted(2).serve().lacks(&["locks/a/a1.r1"]);
    }
}

/// Call 1 has read for a second, and a try sends a read that shows whether it may join.
fn asking() -> Rig {
    let mut rig = Rig::reading();
    rig.pass(SECOND).share(2, A, Mode::Shared, Wait::Once);
    rig
}

#[test]
fn reader_that_cannot_join_puts_a_second_key() {
    let mut town = reader_behind_the_writer();
    town.live(LATER);
    assert_eq!(town.keys("s"), ["locks/s/a1.r0", "locks/s/a2", "locks/s/a1.r1"]);
}

/// The event arrives before the response to the delete, and suffices for the writer.
#[test]
fn event_of_an_own_readers_key_admits_the_writer_behind() {
    let mut rig = Rig::reading();
    let delete = rig.acquire(2, A).live(SECOND).release(1).applied(deletes);
    rig.report().deliver(delete).granted(2);
}

/// A later read has shown a writer before that response arrives.
#[test]
fn overtaken_response_lets_no_reader_join() {
    let mut rig = asking();
    let early = rig.applied(reads);
    rig.contend("locks/a/zx").submit(Input::Inspect).serve().busy(2);
    rig.deliver(early).share(3, A, Mode::Shared, Wait::Once).serve().busy(3);
}

/// A writer arrives while the response is on its way, for longer than a read is valid.
#[test]
fn writer_is_overtaken_only_while_a_read_is_valid() {
    let mut rig = asking();
    let read = rig.applied(reads);
    rig.contend("locks/a/zx").pass(LATER).deliver(read).granted(2);
    rig.pass(millis(60)).share(3, A, Mode::Shared, Wait::Once).serve().busy(3);
}

#[test]
fn reader_joins_no_key_that_is_gone() {
    let mut rig = Rig::reading();
    rig.submit(Input::Inspect).delete("locks/a/a1.r0").lost(1, LossCause::Gone).read(2, A);
    assert!(rig.owned(2).created > rig.owned(1).created);
}
