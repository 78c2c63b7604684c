//! Deadlocks: of a cycle one call is refused, and none for a cycle that is not there (rule P38).

use std::time::Duration;

use etcd_locked_core::{Mode, Refused, Request, Search, Wait};

use crate::CallId;
use crate::town::{Town, is_abort, is_delete_of_b, is_search};

const SECOND: Duration = Duration::from_secs(1);

/// The call that closes a cycle is refused within this.
const SOON: Duration = Duration::from_secs(5);

fn deadlocked(town: &Town) -> Vec<CallId> {
    let refusals = town.refusals().into_iter();
    let deadlock = |(call, why): (CallId, &Refused)| match why {
        Refused::Deadlock { .. } => call,
        other => panic!("call {call} is refused: {other:?}"),
    };
    refusals.map(deadlock).collect()
}

/// Each process holds its own name, and its task asks for the next one's.
fn ring(processes: u64) -> Town {
    let mut town = Town::of(processes);
    for n in 0..processes {
        town.take(n as usize, n, &[&format!("n{n}")]);
    }
    for n in 0..processes {
        let next = format!("n{}", (n + 1) % processes);
        town.ask(n as usize, 10 + n, &[&next], &[n]);
    }
    town
}

/// The refused task lets go; all others are served, one after the other.
fn unwinds(town: &mut Town, processes: u64) {
    let refused = deadlocked(town);
    assert_eq!(refused.len(), 1, "{refused:?}");
    let mut free = refused[0] - 10;
    town.release(free as usize, free);
    for _ in 1..processes {
        free = (free + processes - 1) % processes;
        town.until(|town| town.is_granted(free as usize, 10 + free));
        town.release(free as usize, 10 + free);
        town.release(free as usize, free);
    }
    town.live(10 * SECOND);
    assert_eq!(deadlocked(town).len(), 1);
    for process in &town.processes {
        assert_eq!(process.core.leftovers(), None);
    }
}

#[test]
fn one_call_of_a_cycle_is_refused_within_five_seconds() {
    for processes in 2..=4 {
        let mut town = ring(processes);
        let took = town.until(|town| !town.refusals().is_empty());
        assert!(took < SOON, "{processes} processes: {took:?}");
        unwinds(&mut town, processes);
    }
}

#[test]
fn youngest_call_is_refused_and_learns_the_whole_cycle() {
    let mut town = ring(3);
    let took = town.until(|town| !town.refusals().is_empty());
    assert!(took < 3 * SECOND, "{took:?}");
    let refusals = town.refusals();
    let (12, Refused::Deadlock { name: 0, cycle }) = refusals[0] else {
        panic!("{refusals:?}");
    };
    let keys: Vec<_> = cycle.iter().map(|blocker| &*blocker.key).collect();
    assert_eq!(keys, ["locks/n0/a1", "locks/n1/a2", "locks/n2/a3"]);
    for (call, blocker) in cycle.iter().enumerate() {
        let record = String::from_utf8_lossy(&blocker.record);
        assert!(record.contains(&format!("\"call\":{call}")), "{record}");
    }
}

#[test]
fn one_of_several_aborts_at_once_succeeds() {
    for processes in 2..=4 {
        let mut town = ring(processes);
        town.withhold = is_abort;
        town.until(|town| town.withheld.len() == processes as usize);
        town.let_through();
        unwinds(&mut town, processes);
    }
}

#[test]
fn cycle_inside_a_process_is_refused_at_once() {
    let mut town = Town::of(1);
    town.take(0, 0, &["a"]);
    town.take(0, 1, &["b"]);
    town.ask(0, 10, &["b"], &[0]);
    assert!(town.refusals().is_empty());
    let requests = town.requests;
    town.ask(0, 11, &["a"], &[1]);
    assert_eq!(town.requests, requests, "no request");
    let refusals = town.refusals();
    let (11, Refused::Deadlock { name: 0, cycle }) = refusals[0] else {
        panic!("{refusals:?}");
    };
    let records: Vec<_> =
        cycle.iter().map(|blocker| String::from_utf8_lossy(&blocker.record)).collect();
    assert_eq!(records, ["{\"call\":0}", "{\"call\":10}", "{\"call\":1}"]);
    town.release(0, 1);
    town.live(SECOND);
    assert!(town.is_granted(0, 10));
}

/// The process was held up: the call comes before the timers are served that are due.
#[test]
fn wait_that_is_over_closes_no_cycle_in_a_process() {
    for (wait, held_up) in [(Wait::For(2 * SECOND), 5 * SECOND), (Wait::Forever, 40 * SECOND)] {
        let mut town = Town::of(1);
        town.take(0, 0, &["a"]);
        town.take(0, 1, &["b"]);
        town.ask_for(0, 10, &["b"], &[0], wait);
        town.now = town.now + held_up;
        town.ask(0, 11, &["a"], &[1]);
        let refusals = town.refusals();
        let deadlock = |(_, why): &(CallId, &Refused)| matches!(why, Refused::Deadlock { .. });
        assert!(!refusals.iter().any(deadlock), "{refusals:?}");
        town.cancel(0, 10);
        town.release(0, 0);
        town.until(|town| town.is_granted(0, 11));
    }
}

/// The group has keys at neither name, so the call passes it once it has a key of its own.
#[test]
fn nested_call_passes_a_group_that_has_no_keys() {
    let mut town = Town::of(1);
    town.take(0, 0, &["a"]);
    town.ask(0, 1, &["b", "a"], &[]);
    town.ask(0, 10, &["b"], &[0]);
    let took = town.until(|town| town.is_granted(0, 10));
    assert!(took < 2 * SECOND, "{took:?}");
    town.release(0, 10);
    town.release(0, 0);
    town.until(|town| town.is_granted(0, 1));
    assert!(town.refusals().is_empty());
}

/// Of a group and a nested call that wait for each other only the latter is refused: the task of the group holds nothing.
#[test]
fn nested_call_behind_a_group_is_refused() {
    for names in [["a", "b"], ["b", "a"]] {
        let mut town = Town::of(2);
        town.take(0, 0, &["a"]);
        town.ask(1, 1, &names, &[]);
        town.ask(0, 10, &["b"], &[0]);
        let took = town.until(|town| !town.refusals().is_empty());
        assert!(took < SOON, "{took:?}");
        assert_eq!(deadlocked(&town), [10]);
        town.release(0, 0);
        town.until(|town| town.is_granted(1, 1));
    }
}

/// One task after the other holds `a` and wants `b`, where the group is ahead.
#[test]
fn group_is_served_beside_steady_nested_traffic() {
    let mut town = Town::of(2);
    town.take(0, 0, &["a"]);
    town.ask(1, 1, &["a", "b"], &[]);
    let mut outer = 0;
    for round in 1..=3 {
        let (next, inner) = (10 + round, 100 + round);
        town.ask(0, inner, &["b"], &[outer]);
        town.ask(0, next, &["a"], &[]);
        town.until(|town| town.refusals().iter().any(|(call, _)| *call == inner));
        town.release(0, outer);
        town.until(|town| town.is_granted(0, next) || town.is_granted(1, 1));
        if town.is_granted(1, 1) {
            return;
        }
        outer = next;
    }
    panic!("the group is not served");
}

/// They put keys in one transaction. Each is ahead of the other's task at one name.
#[test]
fn cycle_of_nested_groups_is_cut_once() {
    let mut town = Town::of(2);
    town.take(0, 0, &["a"]);
    town.take(1, 1, &["b"]);
    town.ask(0, 10, &["b", "c"], &[0]);
    town.ask(1, 11, &["a", "c"], &[1]);
    let took = town.until(|town| !town.refusals().is_empty());
    assert!(took < SOON, "{took:?}");
    assert_eq!(deadlocked(&town), [11]);
    assert_eq!(town.keys("c"), ["locks/c/a1"]);
}

/// The key of one begins as the other name does.
#[test]
fn detects_cycle_through_nested_names() {
    let mut town = Town::of(2);
    town.take(0, 0, &["b"]);
    town.take(1, 1, &["a/c"]);
    town.ask(0, 10, &["a", "a/c"], &[0]);
    town.ask(1, 11, &["a"], &[1]);
    let took = town.until(|town| !town.refusals().is_empty());
    assert!(took < SOON, "{took:?}");
    assert_eq!(deadlocked(&town).len(), 1);
}

/// The first has what the second asks for behind a third, of its own process, who waits for the first one's process.
#[test]
fn detects_cycle_through_a_wait_queue() {
    let mut town = Town::of(2);
    town.take(0, 0, &["a"]);
    town.take(1, 1, &["b"]);
    town.ask(0, 3, &["b"], &[]);
    town.ask(0, 10, &["b"], &[0]);
    town.ask(1, 11, &["a"], &[1]);
    let took = town.until(|town| !town.refusals().is_empty());
    assert!(took < SOON, "{took:?}");
    assert_eq!(deadlocked(&town).len(), 1);
}

#[test]
fn cycle_that_dissolves_before_its_abort_is_none() {
    for lets_go in [false, true] {
        let mut town = ring(2);
        town.withhold = is_abort;
        town.until(|town| town.withheld.len() == 1);
        assert_eq!(town.withheld[0].from, 1);
        town.cancel(0, 10);
        if lets_go {
            town.release(0, 0);
        }
        town.let_through();
        town.live(SOON);
        assert!(deadlocked(&town).is_empty());
        assert_eq!(town.is_granted(1, 11), lets_go);
        if !lets_go {
            town.release(0, 0);
            town.live(SECOND);
            assert!(town.is_granted(1, 11));
        }
    }
}

/// The call that waits for `b` is cancelled, and its key is there still: what its task held passes to no call that does not wait.
#[test]
fn cancelled_wait_makes_no_cycle() {
    for other in [false, true] {
        let mut town = Town::of(2);
        town.take(0, 0, &["a"]);
        town.take(1, 1, &["b"]);
        town.ask(0, 10, &["b"], &[0]);
        town.ask(0, 3, &[if other { "a" } else { "b" }], &[]);
        town.live(SECOND);
        town.withhold = is_delete_of_b;
        town.cancel(0, 10);
        town.release(0, 0);
        town.ask(1, 11, &["a"], &[1]);
        town.live(SOON);
        assert!(deadlocked(&town).is_empty(), "{:?}", town.refusals());
        assert!(town.is_granted(if other { 0 } else { 1 }, if other { 3 } else { 11 }));
    }
}

#[test]
fn abort_without_an_answer_refuses_no_call() {
    for carried_out in [true, false] {
        let mut town = ring(2);
        town.withhold = is_abort;
        town.until(|town| town.withheld.len() == 1);
        town.lose(carried_out);
        town.withhold = |_| false;
        town.live(SECOND / 2);
        assert!(deadlocked(&town).is_empty());
        let key = town.keys("n0");
        assert_eq!(key.len(), 2, "it waits on, or again: {key:?}");
        // The cycle still stands, or stands again.
        let took = town.until(|town| !town.refusals().is_empty());
        assert!(took < SOON, "{took:?}");
        unwinds(&mut town, 2);
    }
}

/// A barrier has made void what had no answer.
#[test]
fn abort_that_arrives_late_does_nothing() {
    let mut town = ring(2);
    town.withhold = is_abort;
    town.until(|town| town.withheld.len() == 1);
    let late: Vec<Request> = town.withheld.iter().map(|it| it.request.clone()).collect();
    town.lose(false);
    town.withhold = |_| false;
    town.live(SECOND / 2);
    let before = (town.keys("n0"), town.keys("n1"), town.store.revision());
    for request in late {
        town.store.apply(town.now, &request).expect("a value");
    }
    assert_eq!((town.keys("n0"), town.keys("n1"), town.store.revision()), before);
}

#[test]
fn call_cancelled_during_its_abort_gets_no_answer() {
    let mut town = ring(2);
    town.withhold = is_abort;
    town.until(|town| town.withheld.len() == 1);
    town.cancel(1, 11);
    town.let_through();
    town.live(SECOND);
    assert!(deadlocked(&town).is_empty());
    assert_eq!(town.keys("n0").len(), 1);
    town.release(1, 1);
    town.live(SECOND);
    assert!(town.is_granted(0, 10));
}

/// Their tasks hold nothing, or the waits are short.
#[test]
fn calls_in_no_cycle_send_nothing_about_cycles() {
    let mut town = Town::of(2);
    town.take(0, 0, &["a"]);
    town.take(1, 1, &["b"]);
    town.withhold = |request| is_abort(request) || is_search(request);
    town.ask(0, 3, &["b"], &[]);
    town.ask(1, 4, &["a", "c"], &[]);
    town.ask(1, 10, &["c"], &[1]);
    town.live(SECOND * 9 / 10);
    town.release(0, 0);
    town.until(|town| town.is_granted(1, 4));
    town.release(1, 4);
    town.until(|town| town.is_granted(1, 10));
    town.live(SOON);
    assert!(town.withheld.is_empty(), "{:?}", town.withheld);
}

#[test]
fn waiting_key_of_a_nested_call_lists_what_its_task_holds() {
    let mut town = Town::of(2);
    town.take(0, 0, &["a", "c"]);
    town.take(0, 2, &["d"]);
    town.take(1, 1, &["b"]);
    town.ask(0, 10, &["b"], &[0, 2]);
    let mut held = town.holds("locks/b/a1");
    held.sort();
    assert_eq!(held, ["locks/a/a1", "locks/c/a1", "locks/d/a1"]);
    town.release(1, 1);
    town.until(|town| town.is_granted(0, 10));
    town.live(2 * SECOND);
    assert!(town.holds("locks/b/a1").is_empty(), "it waits no more");
}

/// The second waits behind the first of its process, which has the key in line.
#[test]
fn nested_call_has_a_key_of_its_own_after_a_second() {
    for (mode, key) in [(Mode::Exclusive, "locks/b/a1.n0"), (Mode::Shared, "locks/b/a1.n0.r")] {
        let mut town = Town::of(2);
        town.take(0, 0, &["a"]);
        town.take(1, 1, &["b"]);
        town.ask(0, 3, &["b"], &[]);
        town.ask_as(0, 10, mode, &["b"], &[0], Wait::Forever);
        town.live(SECOND * 9 / 10);
        assert_eq!(town.keys("b").len(), 2);
        town.live(SECOND / 2);
        assert_eq!(town.keys("b")[2], key);
        assert_eq!(town.holds(key), ["locks/a/a1"]);
        town.cancel(0, 10);
        assert_eq!(town.keys("b").len(), 2, "it goes with its call");
    }
}

#[test]
fn nested_call_that_gets_the_lock_by_hand_over_deletes_its_key() {
    let mut town = Town::of(1);
    town.take(0, 0, &["a"]);
    town.take(0, 1, &["b"]);
    town.ask(0, 10, &["b"], &[0]);
    town.live(2 * SECOND);
    assert_eq!(town.keys("b"), ["locks/b/a1", "locks/b/a1.n0"]);
    town.release(0, 1);
    assert!(town.is_granted(0, 10));
    assert_eq!(town.keys("b"), ["locks/b/a1"]);
    town.release(0, 10);
    town.live(SECOND);
    assert!(town.keys("b").is_empty());
}

#[test]
fn waiting_key_is_inherited_neither_from_a_nested_call_nor_by_one() {
    for holds in [&[0][..], &[]] {
        let mut town = Town::of(2);
        town.take(0, 0, &["a"]);
        town.take(1, 1, &["b"]);
        town.ask(0, 10, &["b"], holds);
        let created = |town: &Town| town.store.kv(b"locks/b/a1").map(|kv| kv.create_revision);
        let first = created(&town);
        town.ask(0, 11, &["b"], if holds.is_empty() { &[0] } else { &[] });
        town.cancel(0, 10);
        assert!(created(&town) > first);
    }
}

/// A key that is listed is deleted instead, and put again for the next call.
#[test]
fn listed_key_is_not_handed_over() {
    let mut town = Town::of(2);
    town.take(0, 0, &["a"]);
    town.take(1, 1, &["b"]);
    town.ask(0, 10, &["b"], &[0]);
    town.ask(0, 3, &["a"], &[]);
    let created = |town: &Town| town.store.kv(b"locks/a/a1").map(|kv| kv.create_revision);
    let first = created(&town);
    town.withhold = is_delete_of_b;
    town.cancel(0, 10);
    town.release(0, 0);
    assert!(town.is_granted(0, 3) && created(&town) > first);
}

/// The name has more contenders than a search reads.
#[test]
fn search_that_reaches_a_bound_reports_it_once() {
    let mut town = Town::of(2);
    town.take(0, 0, &["a"]);
    town.take(1, 1, &["b"]);
    for n in 0..Search::CONTENDERS {
        town.contend(&format!("locks/a/other{n}"));
    }
    town.ask(0, 10, &["b"], &[0]);
    town.live(SOON);
    assert_eq!(town.bounded(0), 1);
}
