//! Permits: a limited number of calls hold a name at a time, across processes, in the order of their arrival (rule P37).

use crate::*;

#[track_caller]
fn take(town: &mut Town, calls: impl IntoIterator<Item = CallId>, of: u16) {
    for call in calls {
        town.permit(0, call, of).granted(&[call]);
    }
}

#[test]
fn five_of_sixty_four_calls_hold_at_a_time() {
    let mut town = Town::of(4);
    for call in 0..64 {
        town.permit((call % 4) as usize, call, 5);
    }
    let mut waiting: Vec<CallId> = (0..64).collect();
    while !waiting.is_empty() {
        let have: Vec<CallId> =
            waiting.iter().copied().filter(|call| town.is_granted(*call)).collect();
        assert_eq!(have.len(), waiting.len().min(5), "{have:?}");
        town.release(have[0]).live(SECOND / 10);
        waiting.retain(|call| *call != have[0]);
    }
    assert!(town.keys("p").is_empty() && town.refusals().is_empty());
}

#[test]
fn permits_are_granted_in_order_across_processes() {
    let mut town = Town::of(3);
    take(&mut town, [0, 1], 2);
    // Each process has one waiting key.
    town.permit(1, 2, 2).permit(2, 3, 2).release(1).granted(&[2]).waits(&[3]);
    town.release(0).granted(&[3]);
}

#[test]
fn permit_is_handed_over_inside_the_process() {
    let mut town = Town::of(1);
    take(&mut town, [1, 2], 2);
    let requests = town.permit(0, 3, 2).requests();
    let owned = &town.release(2).grant(3).owned[0];
    assert_eq!((&*owned.key, owned.handover), ("locks/p/a1.p1", 1));
    assert_eq!(town.requests(), requests, "no request");
}

#[test]
fn writers_and_readers_exclude_permits() {
    let mut town = Town::of(3);
    take(&mut town, [1], 2);
    town.ask(1, 2, &["p"], &[]).ask_as(2, 3, Mode::Shared, &["p"], &[], Wait::Forever).live(SECOND);
    town.try_permit(0, 4, 2).busy(&[4]).waits(&[2, 3]); // they were first
    town.release(1).grants(2).permit(0, 5, 2).waits(&[3]);
    town.release(2).grants(3).permit(2, 6, 2).waits(&[5]);
    assert_eq!(town.keys("p").len(), 3, "all queue at etcd");
    town.release(3).grants(5);
}

#[test]
fn numbers_of_permits_are_used_again_the_smallest_first() {
    let mut town = Town::of(1);
    take(&mut town, 0..4, 8);
    town.release(3).release(1);
    for (call, number) in [(4, 1), (5, 3), (6, 4)] {
        take(&mut town, [call], 8);
        assert_eq!(*town.grant(call).owned[0].key, *format!("locks/p/a1.p{number}"));
    }
}

/// `….p1` is watched, and `….p10` starts with it.
#[test]
fn permit_is_not_mistaken_for_one_that_begins_like_it() {
    let mut town = Town::of(1);
    take(&mut town, 0..10, 16);
    town.live(2 * SECOND); // from the first second onwards they are watched
    take(&mut town, 10..16, 16);
    town.permit(0, 16, 16).release(1);
    assert_eq!(town.grant(16).owned[0].handover, 1, "no other process waits");
}

#[test]
fn calls_of_one_name_may_differ_in_their_number_of_permits() {
    let mut town = Town::of(2);
    take(&mut town, [1, 2], 3);
    town.permit(1, 3, 2).waits(&[3]).try_permit(0, 4, 2).busy(&[4]);
    town.release(1).granted(&[3]);
    take(&mut town, [5], 3);
    town.try_permit(1, 6, 4).granted(&[6]);
}

#[test]
fn try_behind_a_permit_of_its_process_sends_no_request() {
    Rig::warm().share(1, A, permits(2), Wait::Forever).serves(1).attempt(2, A).busy(2);
}

/// Single readers may join single readers, and single permits other ones. Call 2 has left the queue, so it does not count.
#[test]
fn try_is_refused_at_once_behind_a_call_of_another_kind() {
    let (one, two) = (&[A][..], &[A, B][..]);
    for mode in [Mode::Shared, permits(2)] {
        let others = [(mode, two, one), (mode, one, two), (Mode::Exclusive, one, one)];
        for (ahead, names, tried) in others.into_iter().chain([(mode, one, one)]) {
            let mut rig = Rig::warm();
            rig.submit(Input::Acquire(Acquire { mode: ahead, ..ask(1, names) }));
            rig.share(2, A, mode, Wait::Forever).cancel(2);
            rig.submit(Input::Acquire(Acquire { mode, wait: Wait::Once, ..ask(3, tried) }));
            assert_eq!(rig.refusals() == 1, others.contains(&(ahead, names, tried)));
        }
    }
}
