//! Permits: so many calls have a name at a time, over all processes, in the order in which they came (rule P37).

use std::time::Duration;

use etcd_locked_core::{Mode, Refused, Wait};

use crate::CallId;
use crate::town::Town;

const SECOND: Duration = Duration::from_secs(1);

fn permits(of: u16) -> Mode {
    Mode::Permits(of.try_into().expect("not zero"))
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
fn five_of_sixty_four_calls_hold_at_a_time() {
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
fn permits_are_granted_in_order_across_processes() {
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
fn try_takes_a_free_permit_and_does_not_wait() {
    let mut town = Town::of(2);
    take(&mut town, 0, 1, 2);
    try_to_get(&mut town, 1, 2, 2);
    assert!(town.is_granted(1, 2));
    for (n, call) in [(0, 3), (1, 4)] {
        try_to_get(&mut town, n, call, 2);
    }
    let refusals = town.refusals();
    assert!(
        matches!(refusals[..], [(3, Refused::Held { .. }), (4, Refused::Held { .. })]),
        "{refusals:?}"
    );
    assert_eq!(town.keys("p").len(), 2, "and leaves nothing");
}

#[test]
fn permit_is_handed_over_inside_the_process() {
    let mut town = Town::of(1);
    for call in [1, 2] {
        take(&mut town, 0, call, 2);
    }
    ask(&mut town, 0, 3, 2);
    let requests = town.requests;
    town.release(0, 2);
    let owned = &town.grant(0, 3).owned[0];
    assert_eq!((&*owned.key, owned.handover), ("locks/p/a1.p1", 1));
    assert_eq!(town.requests, requests, "no request");
}

#[test]
fn writers_and_readers_exclude_permits() {
    let mut town = Town::of(3);
    take(&mut town, 0, 1, 2);
    town.ask(1, 2, &["p"], &[]);
    town.ask_as(2, 3, Mode::Shared, &["p"], &[], Wait::Forever);
    town.live(SECOND);
    try_to_get(&mut town, 0, 4, 2);
    assert!(matches!(town.refusals()[..], [(4, Refused::Held { .. })]), "they came first");
    assert!(!town.is_granted(1, 2) && !town.is_granted(2, 3));
    town.release(0, 1);
    town.until(|town| town.is_granted(1, 2));
    ask(&mut town, 0, 5, 2);
    assert!(!town.is_granted(2, 3));
    town.release(1, 2);
    town.until(|town| town.is_granted(2, 3));
    assert!(!town.is_granted(0, 5));
    town.release(2, 3);
    town.until(|town| town.is_granted(0, 5));
}

#[test]
fn numbers_of_permits_are_used_again_the_smallest_first() {
    let mut town = Town::of(1);
    for call in 0..4 {
        take(&mut town, 0, call, 8);
    }
    town.release(0, 3);
    town.release(0, 1);
    for (call, number) in [(4, 1), (5, 3), (6, 4)] {
        take(&mut town, 0, call, 8);
        let key = format!("locks/p/a1.p{number}");
        assert_eq!(*town.grant(0, call).owned[0].key, *key);
    }
}

/// `….p1` is watched, and `….p10` begins like it.
#[test]
fn permit_is_not_mistaken_for_one_that_begins_like_it() {
    let mut town = Town::of(1);
    for call in 0..10 {
        take(&mut town, 0, call, 16);
    }
    town.live(2 * SECOND); // from the first second on they are watched
    for call in 10..16 {
        take(&mut town, 0, call, 16);
    }
    ask(&mut town, 0, 16, 16);
    town.release(0, 1);
    let handover = town.grant(0, 16).owned[0].handover;
    assert_eq!(handover, 1, "no other process waits");
}

#[test]
fn calls_of_one_name_may_differ_in_their_number_of_permits() {
    let mut town = Town::of(2);
    for call in [1, 2] {
        take(&mut town, 0, call, 3);
    }
    ask(&mut town, 1, 3, 2);
    try_to_get(&mut town, 0, 4, 2);
    assert!(!town.is_granted(1, 3), "two are there");
    assert!(matches!(town.refusals()[..], [(4, Refused::Held { .. })]));
    town.release(0, 1);
    assert!(town.is_granted(1, 3));
    take(&mut town, 0, 5, 3);
    try_to_get(&mut town, 1, 6, 4);
    assert!(town.is_granted(1, 6));
}
