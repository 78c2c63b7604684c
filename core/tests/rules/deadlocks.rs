//! Deadlocks: of a cycle one call is refused, and none for a cycle that is not there (rule P38).

use std::time::Duration;

use etcd_locked_core::{Refused, Request, Wait};

use crate::CallId;
use crate::town::{Town, is_abort, is_publication, is_search};

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

#[test]
fn group_steps_back_inside_a_process() {
    let mut town = Town::of(1);
    town.take(0, 0, &["a"]);
    town.ask(0, 1, &["b", "a"], &[]);
    town.ask(0, 2, &["a"], &[]);
    town.ask(0, 10, &["b"], &[0]);
    assert!(town.is_granted(0, 10), "the group is behind it now");
    town.release(0, 10);
    town.release(0, 0);
    town.live(SECOND);
    assert!(town.is_granted(0, 2) && !town.is_granted(0, 1), "at the end of all its queues");
    town.release(0, 2);
    town.live(SECOND);
    assert!(town.is_granted(0, 1));
    assert!(town.refusals().is_empty());
}

/// Its keys have been put, as another process has the other name.
#[test]
fn group_that_has_keys_takes_them_back() {
    let mut town = Town::of(2);
    town.take(1, 9, &["c"]);
    town.take(0, 0, &["a"]);
    town.ask(0, 3, &["d", "c"], &[]);
    town.ask(0, 1, &["b", "a"], &[]);
    assert_eq!(town.keys("d").len(), 1);
    town.ask(0, 10, &["d", "b"], &[0]);
    // The one group is no hindrance but for its turn, the other waits for what the task holds.
    assert!(town.refusals().is_empty() && town.keys("b").is_empty());
    town.release(1, 9);
    town.until(|town| town.is_granted(0, 3));
    town.release(0, 3);
    town.until(|town| town.is_granted(0, 10));
    town.release(0, 10);
    town.release(0, 0);
    town.until(|town| town.is_granted(0, 1));
    assert!(town.refusals().is_empty());
}

#[test]
fn group_steps_back_for_another_process() {
    for names in [["a", "b"], ["b", "a"]] {
        let mut town = Town::of(2);
        town.take(0, 0, &["a"]);
        town.ask(1, 1, &names, &[]);
        town.ask(0, 10, &["b"], &[0]);
        assert!(!town.is_granted(0, 10), "the group is before it");
        let took = town.until(|town| town.is_granted(0, 10));
        assert!(took < SOON, "{took:?}");
        town.release(0, 10);
        town.release(0, 0);
        town.until(|town| town.is_granted(1, 1));
        assert!(town.refusals().is_empty());
    }
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

/// All keys are as they were, only that the one's task does not wait any more: its place is another call's.
#[test]
fn cycle_is_none_if_the_waiting_key_serves_another_call() {
    let mut town = Town::of(2);
    town.take(0, 0, &["a"]);
    town.take(1, 1, &["b"]);
    town.ask(0, 3, &["b"], &[]);
    town.ask(0, 10, &["b"], &[0]);
    town.ask(1, 11, &["a"], &[1]);
    town.withhold = is_abort;
    town.until(|town| town.withheld.iter().any(|it| it.from == 1));
    town.withheld.retain(|it| it.from == 1);
    let keys = town.keys("b");
    town.cancel(0, 10);
    assert_eq!(town.keys("b"), keys);
    town.let_through();
    town.live(SOON);
    assert!(deadlocked(&town).is_empty());
}

#[test]
fn abort_without_an_answer_refuses_no_call() {
    for carried_out in [true, false] {
        let mut town = ring(2);
        town.withhold = is_abort;
        town.until(|town| town.withheld.len() == 1);
        town.lose(carried_out);
        town.withhold = |_| false;
        town.serve();
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
    town.withhold = |request| is_abort(request) || is_publication(request) || is_search(request);
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
