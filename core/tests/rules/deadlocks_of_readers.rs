//! Deadlocks through readers: a cycle exists while a writer waits behind readers, and later readers wait for it (rules P37, P38).

use std::collections::BTreeSet;

use crate::readers::{LATER, read_in_one_of};
use crate::*;

/// Call 1 reads in process 0, call 5 of that process holds `x`, and a writer of process 1 waits.
fn writer_behind_a_reader(processes: u64) -> Town {
    let mut town = read_in_one_of(processes);
    town.take(0, 5, &["x"]).write(1, 2).live(LATER);
    town
}

/// A read has shown the writer behind the readers' key. Once the writer is gone, no call of its process waits for the readers.
/// The cycle may close long after that read.
#[test]
fn cycle_in_a_process_lasts_as_long_as_the_writer() {
    for (has_gone, is_late) in [(true, false), (false, false), (false, true)] {
        let mut town = writer_behind_a_reader(2);
        town.try_to_read(0, 3).busy(&[3]);
        if has_gone {
            town.cancel(2);
        }
        town.live(LATER);
        if is_late {
            town.read_inside(0, 15, 5).live(3 * SECOND).ask(0, 11, &["x"], &[1]);
        } else {
            town.ask(0, 11, &["x"], &[1]).read_inside(0, 15, 5);
        }
        let deadlocks = town.live(5 * SECOND).refusals();
        let deadlocks = deadlocks.iter().filter(|(_, why)| matches!(why, Refused::Deadlock { .. }));
        assert_eq!(deadlocks.count(), usize::from(!has_gone));
        assert_eq!(town.is_granted(15), has_gone);
    }
}

/// The readers' task waits for another process, and that process waits for the name.
fn cycle_across_processes() -> Town {
    let mut town = writer_behind_a_reader(3);
    town.take(2, 6, &["y"]).read_inside(0, 15, 5).ask(0, 11, &["y"], &[1]).ask(2, 16, &["x"], &[6]);
    town
}

#[test]
fn cycle_across_processes_is_detected() {
    cycle_across_processes().deadlocks_within(6 * SECOND);
}

/// A reader of several names waits for the readers of one name while it cannot get the other, and later calls wait behind it.
/// Calls whose task is among those readers may pass it. The only cycle is through writer 27, which is first at one name and waits
/// for the other.
#[test]
fn readers_of_several_names_block_no_call_forever() {
    for others_go_first in [true, false] {
        let mut town = Town::of(2);
        let read = |town: &mut Town, call, names: &[&str], holds: &[CallId]| {
            town.ask_as(0, call, Mode::Shared, names, holds, Wait::Forever);
        };
        read(&mut town, 20, &["a"], &[]);
        read(&mut town, 3, &["b"], &[]);
        town.granted(&[20, 3]).ask(1, 27, &["a", "b"], &[]).live(LATER);
        read(&mut town, 15, &["a", "b"], &[]);
        read(&mut town, 16, &["b", "a"], &[]);
        town.live(LATER);
        if others_go_first {
            town.release(20);
        }
        read(&mut town, 4, &["a"], &[3]);
        if !others_go_first {
            town.live(3 * SECOND).release(20);
        }
        // One call of the cycle is refused, or the writer gives up.
        let refused = |town: &Town| matches!(town.refusals()[..], [(4, Refused::Deadlock { .. })]);
        town.until(|town| refused(town) || town.is_granted(4));
        if town.is_granted(4) {
            town.release(4);
        }
        town.release(3);
        let mut waiting = vec![27, 15, 16];
        while !waiting.is_empty() {
            town.until(|town| waiting.iter().any(|call| town.is_granted(*call)));
            let granted: Vec<_> = waiting.extract_if(.., |call| town.is_granted(*call)).collect();
            granted.into_iter().for_each(|call| _ = town.release(call));
        }
    }
}

#[test]
fn no_call_is_refused_if_the_writer_goes_during_the_abort() {
    let mut town = cycle_across_processes();
    town.withholds(is_abort).cancel(2).let_through().grants(15);
    assert!(town.refusals().is_empty(), "{:?}", town.refusals());
}

/// Behind a nested writer of their process they are not read. Once it gives up, one round trip shows what is ahead of each.
#[test]
fn nested_readers_that_come_to_the_front_are_read_together() {
    let mut rig = Rig::new();
    rig.contend("locks/a/zz");
    for call in 1..=7 {
        let mode = if call == 1 { Mode::Exclusive } else { Mode::Shared };
        rig.hold(10 + call, &format!("locks/{call}"));
        let holds = vec![Id(10 + call)];
        rig.submit(Input::Acquire(Acquire { mode, holds, ..ask(call, &[A]) })).serve();
    }
    rig.live(3 * SECOND).cancel(1).serve_all(deletes);
    let asked: Vec<_> = rig.sent.iter().flat_map(|(_, request)| operations(request)).collect();
    let bounds = asked.iter().filter_map(|op| match op {
        Op::Range { prefix, up_to, .. } if &**prefix == "locks/a/" => Some(up_to),
        _ => None,
    });
    assert_eq!(bounds.collect::<BTreeSet<_>>().len(), 6, "{asked:?}");
}

/// The group waits for the task of the nested call, but its key of `s` excludes no reader.
#[test]
fn nested_reader_passes_a_waiting_group_of_readers() {
    let mut town = Town::of(1);
    town.take(0, 5, &["x"]).ask_as(0, 2, Mode::Shared, &["s", "x"], &[], Wait::Forever);
    town.read_inside(0, 3, 5).live(2 * SECOND).granted(&[3]);
}
