//! Edges: keys that tell other processes what the task of a holder waits for, and nothing else (rule P38).

use std::time::Duration;

use etcd_locked_core::{Mode, Refused, Wait};

use crate::town::{Town, is_publication, is_withdrawal};

const SECOND: Duration = Duration::from_secs(1);

/// From the key of call 0 to the key by which its task waits for `b`.
const EDGE: &str = "locks/a/a1%/locks/b/a1";

/// Call 0 holds `a` in one process, call 1 holds `b` in another; call 10 of the first task waits for `b`.
fn nested(wait: Wait) -> Town {
    let mut town = Town::of(2);
    town.take(0, 0, &["a"]);
    town.take(1, 1, &["b"]);
    town.ask_for(0, 10, &["b"], &[0], wait);
    town
}

/// The same once the edge is there.
fn published(wait: Wait) -> Town {
    let mut town = nested(wait);
    town.until(|town| town.edges() == [EDGE]);
    town
}

#[test]
fn edge_is_put_once_the_wait_has_stalled() {
    let mut town = nested(Wait::Forever);
    town.live(SECOND * 9 / 10);
    assert!(town.edges().is_empty());
    town.live(SECOND);
    assert_eq!(town.edges(), [EDGE]);
    let edge = town.store.kvs().find(|kv| kv.key.starts_with(b"locks%s/w/"));
    let held = town.store.kv(b"locks/a/a1");
    assert_eq!(edge.map(|kv| kv.lease), held.map(|kv| kv.lease));
}

#[test]
fn wait_behind_a_contender_that_moves_on_puts_no_edge() {
    let mut town = nested(Wait::Forever);
    town.withhold = is_publication;
    for call in 2..8 {
        town.ask(1, call, &["b"], &[]);
        town.live(SECOND / 2);
        town.release(1, call - 1);
        town.until(|town| town.is_granted(1, call) || town.is_granted(0, 10));
        if town.is_granted(0, 10) {
            break;
        }
    }
    assert!(town.is_granted(0, 10) && town.withheld.is_empty());
}

#[test]
fn edge_of_a_cancelled_call_is_deleted_at_once() {
    let mut town = published(Wait::Forever);
    town.cancel(0, 10);
    assert!(town.edges().is_empty());
}

#[test]
fn edge_is_void_once_its_wait_is_granted() {
    let mut town = published(Wait::Forever);
    town.release(1, 1);
    town.until(|town| town.is_granted(0, 10));
    // The other task asks for what the first still has: there is no cycle, whether the edge is still there or not.
    town.take(1, 2, &["c"]);
    town.ask(1, 12, &["a"], &[2]);
    town.live(10 * SECOND);
    assert!(town.refusals().is_empty() && town.edges().len() <= 1);
    town.release(0, 10);
    town.release(0, 0);
    town.until(|town| town.is_granted(1, 12));
    assert!(town.edges().is_empty());
}

#[test]
fn edge_is_deleted_before_its_call_learns_of_the_timeout() {
    let mut town = published(Wait::For(3 * SECOND));
    town.withhold = is_withdrawal;
    town.until(|town| !town.withheld.is_empty());
    town.live(SECOND / 2);
    assert!(town.refusals().is_empty() && town.edges() == [EDGE]);
    town.let_through();
    assert!(town.edges().is_empty());
    assert!(matches!(town.refusals()[..], [(10, Refused::Timeout { .. })]));
    // The edge misleads no process: the other task asks for what the first still has.
    town.ask(1, 11, &["a"], &[1]);
    town.live(10 * SECOND);
    assert_eq!(town.refusals().len(), 1);
}

/// It was withdrawn because the call ahead leaves, and etcd has not answered that yet.
#[test]
fn edge_that_is_being_deleted_goes_before_its_call_times_out() {
    let mut town = Town::of(2);
    town.take(0, 0, &["a"]);
    town.take(0, 1, &["c"]);
    town.take(1, 2, &["b"]);
    town.ask_for(0, 10, &["b"], &[0], Wait::For(3 * SECOND));
    town.ask_for(0, 11, &["b"], &[1], Wait::For(9 * SECOND / 2));
    town.until(|town| town.edges().len() == 2);
    town.withhold = is_withdrawal;
    town.until(|town| town.withheld.len() == 2);
    town.live(3 * SECOND / 2);
    let refused: Vec<_> = town.refusals().iter().map(|(call, _)| *call).collect();
    assert!(!refused.contains(&11), "{refused:?}");
    town.let_through();
    assert!(town.edges().is_empty() && town.refusals().len() == 2);
}

#[test]
fn timeout_comes_though_the_delete_of_the_edge_has_no_answer() {
    let mut town = published(Wait::For(3 * SECOND));
    town.withhold = is_withdrawal;
    let took = town.until(|town| !town.refusals().is_empty());
    assert!(took < 5 * SECOND, "{took:?}");
}

#[test]
fn edge_that_arrives_late_leads_nowhere() {
    let mut town = nested(Wait::For(4 * SECOND));
    town.withhold = is_publication;
    town.until(|town| !town.withheld.is_empty());
    let late = town.withheld[0].request.clone();
    town.lose(false);
    town.withhold = |_| false;
    town.until(|town| town.edges() == [EDGE]);
    town.until(|town| !town.refusals().is_empty());
    assert!(town.edges().is_empty());
    town.store.apply(town.now, &late).expect("a value");
    assert!(town.edges().is_empty());
}

#[test]
fn edge_goes_with_its_held_key() {
    let mut town = published(Wait::Forever);
    town.withhold = is_withdrawal;
    town.release(0, 0);
    assert!(town.keys("a").is_empty() && town.edges().is_empty());
}

#[test]
fn key_with_edges_is_not_handed_over() {
    for stalls in [true, false] {
        let mut town = nested(Wait::Forever);
        let created = |town: &Town| town.store.kv(b"locks/a/a1").map(|kv| kv.create_revision);
        let first = created(&town);
        town.ask(0, 3, &["a"], &[]);
        town.live(if stalls { 2 * SECOND } else { SECOND / 2 });
        assert_eq!(town.edges().is_empty(), !stalls);
        town.withhold = is_withdrawal;
        town.release(0, 0);
        town.let_through();
        town.until(|town| town.is_granted(0, 3));
        assert_eq!(created(&town) == first, !stalls);
        assert!(town.edges().is_empty());
    }
}

/// The wait queue of the process lies between: the edge leads to the contender of the call that is ahead.
#[test]
fn edge_leads_to_the_key_of_the_call_ahead() {
    let mut town = Town::of(2);
    town.take(0, 0, &["a"]);
    town.take(1, 1, &["c"]);
    town.ask_for(0, 3, &["b", "c"], &[], Wait::For(3 * SECOND));
    town.ask(0, 10, &["b"], &[0]);
    town.until(|town| {
        town.edges().iter().any(|edge| edge.ends_with("locks/c/a1") || edge.ends_with("locks/b/a1"))
    });
    town.until(|town| !town.refusals().is_empty());
    assert!(town.edges().is_empty());
    assert!(town.is_granted(0, 10));
}

/// Two groups that want the same wait behind the one that leaves, and behind them the nested call whose edge leads to its key.
#[test]
fn edge_behind_two_groups_goes_before_a_third_times_out() {
    let mut town = Town::of(2);
    town.take(0, 0, &["a"]);
    town.take(1, 1, &["c"]);
    town.ask_for(0, 3, &["q", "c"], &[], Wait::For(4 * SECOND));
    for group in [4, 5] {
        town.ask(0, group, &["q", "b"], &[]);
    }
    town.ask(0, 10, &["b"], &[0]);
    town.until(|town| !town.edges().is_empty());
    town.withhold = is_withdrawal;
    town.until(|town| !town.withheld.is_empty());
    town.live(SECOND / 2);
    assert!(town.refusals().is_empty() && !town.edges().is_empty());
    town.let_through();
    assert!(town.edges().is_empty());
    assert!(matches!(town.refusals()[..], [(3, Refused::Timeout { .. })]));
}

/// A reader waits for `b` of another process, and behind it a nested writer, whose edge leads to the reader's key.
fn relying(wait: Wait) -> Town {
    let mut town = Town::of(2);
    town.take(0, 0, &["a"]);
    town.take(1, 1, &["b"]);
    town.ask_as(0, 3, Mode::Shared, &["b"], &[], wait);
    town.ask(0, 10, &["b"], &[0]);
    town.until(|town| !town.edges().is_empty());
    town
}

#[test]
fn edge_to_a_readers_key_goes_before_the_reader_times_out() {
    let mut town = relying(Wait::For(4 * SECOND));
    town.withhold = is_withdrawal;
    town.until(|town| !town.withheld.is_empty());
    town.live(SECOND / 2);
    assert!(town.refusals().is_empty() && !town.edges().is_empty());
    town.let_through();
    assert!(matches!(town.refusals()[..], [(3, Refused::Timeout { .. })]));
    // The writer waits on, and says so anew.
    town.until(|town| town.edges() == [EDGE]);
}
