//! So many have a name at a time, over all processes, and whoever comes first has it first (rule P37).

use std::time::Duration;

use super::rig::deletes;
use super::town::Town;
use etcd_locked_core::Mode;
use etcd_locked_core::queue::Slot;
use etcd_locked_core::{CallId, Refused};
use etcd_locked_core::Wait;

const SECOND: Duration = Duration::from_secs(1);

fn permits(of: u16) -> Mode {
    Mode::Permits(of.try_into().unwrap())
}

fn ask(town: &mut Town, n: usize, call: CallId, of: u16) {
    town.ask_as(n, call, permits(of), &["p"], &[], Wait::Forever);
}

fn try_to_get(town: &mut Town, n: usize, call: CallId, of: u16) {
    town.ask_as(n, call, permits(of), &["p"], &[], Wait::Once);
}

fn take(town: &mut Town, n: usize, call: CallId, of: u16) {
    ask(town, n, call, of);
    assert!(town.is_granted(n, call));
}

#[test]
fn five_of_sixty_four_have_one_and_never_six() {
    let mut town = Town::of(4);
    let process = |call: CallId| (call % 4) as usize;
    for call in 0..64 {
        ask(&mut town, process(call), call, 5);
    }
    let mut over = Vec::new();
    loop {
        let has = |call: &CallId| town.is_granted(process(*call), *call) && !over.contains(call);
        let have: Vec<CallId> = (0..64).filter(has).collect();
        assert!(have.len() <= 5, "{have:?}");
        assert!(have.len() == (64 - over.len()).min(5), "{have:?}");
        let Some(first) = have.first().copied() else {
            break;
        };
        town.release(process(first), first);
        town.live(SECOND / 10);
        over.push(first);
    }
    assert_eq!(over.len(), 64);
    assert!(town.keys("p").is_empty() && town.refusals().is_empty());
}

#[test]
fn whoever_comes_first_has_one_first() {
    let mut town = Town::of(3);
    for call in [0, 1] {
        take(&mut town, 0, call, 2);
    }
    // Each process has one key that waits.
    ask(&mut town, 1, 2, 2);
    ask(&mut town, 2, 3, 2);
    town.release(0, 1);
    assert!(town.is_granted(1, 2) && !town.is_granted(2, 3));
    town.release(0, 0);
    assert!(town.is_granted(2, 3));
}

#[test]
fn a_try_gets_what_is_free_and_does_not_wait() {
    let mut town = Town::of(2);
    take(&mut town, 0, 1, 2);
    try_to_get(&mut town, 1, 2, 2);
    assert!(town.is_granted(1, 2));
    for (n, call) in [(0, 3), (1, 4)] {
        try_to_get(&mut town, n, call, 2);
    }
    let refusals = town.refusals();
    assert!(
        matches!(
            refusals[..],
            [(3, Refused::Held { .. }), (4, Refused::Held { .. })]
        ),
        "{refusals:?}"
    );
    assert_eq!(town.keys("p").len(), 2, "and leaves nothing");
}

#[test]
fn one_is_handed_on_inside_the_process() {
    let mut town = Town::of(1);
    for call in [1, 2] {
        take(&mut town, 0, call, 2);
    }
    ask(&mut town, 0, 3, 2);
    let requests = town.requests;
    town.release(0, 2);
    let owned = &town.grant(0, 3).owned[0];
    assert_eq!((&*owned.key, owned.handover), ("locks/p/a1.p2.1", 1));
    assert_eq!(town.requests, requests, "etcd hears nothing");
}

#[test]
fn whoever_asks_for_another_number_is_told_which_and_by_whom() {
    let mut town = Town::of(2);
    take(&mut town, 0, 1, 3);
    ask(&mut town, 1, 2, 2);
    ask(&mut town, 0, 3, 2);
    for (call, why) in town.refusals() {
        let Refused::Mismatch { theirs, holder, .. } = why else {
            panic!("call {call}: {why:?}");
        };
        assert_eq!(theirs.get(), 3);
        assert_eq!(holder.as_deref(), Some(&b"{\"call\":1}"[..]));
    }
    assert_eq!(town.refusals().len(), 2);
    assert_eq!(town.keys("p").len(), 1);
    // Once nobody has the others it is a number like any.
    town.release(0, 1);
    take(&mut town, 1, 4, 2);
}

/// The one of this process is going: whoever agrees with nobody any more is not told so.
#[test]
fn an_own_permit_of_another_number_that_is_going_is_waited_for() {
    for tries in [true, false] {
        let mut town = Town::of(1);
        take(&mut town, 0, 1, 3);
        town.withhold = |request| !deletes(request).is_empty();
        town.release(0, 1);
        match tries {
            true => try_to_get(&mut town, 0, 2, 2),
            false => ask(&mut town, 0, 2, 2),
        }
        town.live(SECOND);
        let refusals = town.refusals();
        match tries {
            true => assert!(
                matches!(refusals[..], [(2, Refused::Held { .. })]),
                "{refusals:?}"
            ),
            false => assert!(refusals.is_empty(), "{refusals:?}"),
        }
        town.withhold = |_| false;
        town.let_through();
        assert_eq!(town.is_granted(0, 2), !tries);
    }
}

/// And so is one that waited in vain.
#[test]
fn and_one_that_waited_and_is_going() {
    let mut town = Town::of(1);
    town.contend("locks/p/694d");
    ask(&mut town, 0, 1, 3);
    ask(&mut town, 0, 2, 2);
    town.live(SECOND);
    town.withhold = |request| !deletes(request).is_empty();
    town.cancel(0, 1);
    town.live(SECOND);
    assert!(town.refusals().is_empty(), "{:?}", town.refusals());
    town.withhold = |_| false;
    town.let_through();
    town.store.delete(b"locks/p/694d");
    town.until(|town| town.is_granted(0, 2));
}

#[test]
fn a_writer_and_a_reader_are_beside_no_permit() {
    let mut town = Town::of(3);
    take(&mut town, 0, 1, 2);
    town.ask(1, 2, &["p"], &[]);
    town.ask_as(2, 3, Mode::Shared, &["p"], &[], Wait::Forever);
    town.live(SECOND);
    ask(&mut town, 0, 4, 2);
    assert!(!town.is_granted(0, 4), "they came first");
    assert!(!town.is_granted(1, 2) && !town.is_granted(2, 3));
    town.release(0, 1);
    assert!(town.is_granted(1, 2) && !town.is_granted(2, 3));
    town.release(1, 2);
    town.until(|town| town.is_granted(2, 3));
    town.release(2, 3);
    town.until(|town| town.is_granted(0, 4));
}

/// `….p16.1` is watched, and `….p16.10` begins like it.
#[test]
fn a_permit_is_not_mistaken_for_another_that_begins_like_it() {
    let mut town = Town::of(1);
    for call in 0..10 {
        take(&mut town, 0, call, 16);
    }
    town.live(2 * SECOND); // from the first second on they are watched
    take(&mut town, 0, 10, 16);
    let contended = |(_, queue): (_, &etcd_locked_core::queue::Queue)| matches!(&queue.slot, Slot::Held { run, .. } if run.is_contended());
    let mut queues = town.processes[0].core.queues.iter();
    assert!(!queues.any(contended));
}
