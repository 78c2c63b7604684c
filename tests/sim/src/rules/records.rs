//! What the keys of a holder tell of waits: what is so, and nothing else (rule P38).

use std::time::Duration;

use super::town::{Town, is_publication};
use etcd_locked_core::Refused;
use etcd_locked_core::Wait;

const SECOND: Duration = Duration::from_secs(1);

/// It does not wait until a call of that task waits again.
#[test]
fn what_a_call_that_has_gone_left_is_unwritten_at_once() {
    let mut town = Town::of(2);
    town.take(0, 0, &["a"]);
    town.take(1, 1, &["b"]);
    town.ask(0, 3, &["b"], &[]);
    town.ask(0, 10, &["b"], &[0]);
    town.until(|town| town.says("locks/a/a1", "waits"));
    town.cancel(0, 10);
    assert!(!town.says("locks/a/a1", "waits"));
}

#[test]
fn a_wait_that_is_over_is_unwritten_before_it_is_told() {
    let mut town = Town::of(2);
    town.take(0, 0, &["a"]);
    town.take(1, 1, &["b"]);
    town.ask_for(0, 10, &["b"], &[0], Wait::For(3 * SECOND));
    town.live(2 * SECOND);
    assert!(town.says("locks/a/a1", "waits") && town.says("locks/a/a1", "locks/b/a1"));
    town.withhold = is_publication;
    town.until(|town| !town.withheld.is_empty());
    town.live(SECOND / 2);
    assert!(
        town.refusals().is_empty(),
        "not before nobody can follow it"
    );
    town.withhold = |_| false;
    town.let_through();
    assert!(!town.says("locks/a/a1", "waits"));
    assert!(matches!(
        town.refusals()[..],
        [(10, Refused::Timeout { .. })]
    ));
    // Nobody is misled by it: the other asks for what the first still has.
    town.ask(1, 11, &["a"], &[1]);
    town.live(10 * SECOND);
    assert_eq!(town.refusals().len(), 1);
}

#[test]
fn a_wait_that_is_over_is_told_though_etcd_does_not_answer() {
    let mut town = Town::of(2);
    town.take(0, 0, &["a"]);
    town.take(1, 1, &["b"]);
    town.ask_for(0, 10, &["b"], &[0], Wait::For(3 * SECOND));
    town.live(2 * SECOND);
    town.withhold = is_publication;
    let took = town.until(|town| !town.refusals().is_empty());
    assert!(took < 4 * SECOND, "{took:?}");
}

/// Its edges are void, however late it comes.
#[test]
fn a_write_that_arrives_late_does_nothing() {
    let mut town = Town::of(2);
    town.take(0, 0, &["a"]);
    town.take(1, 1, &["b"]);
    town.withhold = is_publication;
    town.ask_for(0, 10, &["b"], &[0], Wait::For(4 * SECOND));
    town.until(|town| !town.withheld.is_empty());
    let late = town.withheld[0].request.clone();
    town.lose(false);
    town.withhold = |_| false;
    town.until(|town| town.says("locks/a/a1", "waits"));
    town.until(|town| !town.refusals().is_empty());
    assert!(!town.says("locks/a/a1", "waits"));
    town.store.apply(town.now, &late).unwrap();
    assert!(!town.says("locks/a/a1", "waits"));
}

/// What they tell is not so of the next holder.
#[test]
fn keys_that_tell_of_waits_are_not_handed_on() {
    for tells in [true, false] {
        let mut town = Town::of(2);
        town.take(0, 0, &["a"]);
        let created = |town: &Town| town.store.kv(b"locks/a/a1").map(|kv| kv.create_revision);
        let first = created(&town);
        town.take(1, 1, &["b"]);
        town.ask(0, 3, &["a"], &[]);
        town.ask(0, 10, &["b"], &[0]);
        town.live(if tells { 2 * SECOND } else { SECOND / 2 });
        assert_eq!(town.says("locks/a/a1", "waits"), tells);
        town.release(1, 1);
        town.release(0, 10);
        town.release(0, 0);
        assert!(town.is_granted(0, 3) && !town.says("locks/a/a1", "waits"));
        // The other is not handed on because it has been ours for long; neither is this one, then.
        assert!(created(&town) > first || !tells);
    }
}

/// A call that is nobody's in the circle goes: what followed its edges is unwritten too.
#[test]
fn when_a_call_between_goes_its_edges_go_first() {
    let mut town = Town::of(2);
    town.take(0, 0, &["a"]);
    town.take(1, 1, &["c"]);
    town.ask_for(0, 3, &["b", "c"], &[], Wait::For(3 * SECOND));
    town.ask(0, 10, &["b"], &[0]);
    town.live(2 * SECOND);
    assert!(town.says("locks/a/a1", "locks/c/a1"));
    town.until(|town| !town.refusals().is_empty());
    assert!(!town.says("locks/a/a1", "locks/c/a1"));
    assert!(town.is_granted(0, 10));
}

/// Repaired, a key tells of no wait; and through such a key nobody sees a circle.
#[test]
fn what_an_operator_has_overwritten_is_written_again() {
    for keys in [vec!["a/a1"], vec!["a/a1", "b/a2"]] {
        let mut town = Town::of(2);
        town.take(0, 0, &["a"]);
        town.take(1, 1, &["b"]);
        town.ask(0, 10, &["b"], &[0]);
        town.ask(1, 11, &["a"], &[1]);
        town.until(|town| town.says("locks/a/a1", "waits") && town.says("locks/b/a2", "waits"));
        for key in keys {
            let key = format!("locks/{key}");
            let lease = town.store.grant(town.now, 60 * SECOND);
            town.store.put(key.as_bytes(), lease);
            assert!(!town.says(&key, "waits"));
            town.serve();
            assert!(town.says(&key, "waits"));
        }
        town.until(|town| !town.refusals().is_empty());
        assert!(matches!(
            town.refusals()[..],
            [(_, Refused::Deadlock { .. })]
        ));
    }
}

/// A stranger puts a key under its own lease: there is nothing to repair, and its process comes upon it in looking for a circle.
#[test]
fn what_was_overwritten_unnoticed_is_written_again() {
    let mut town = Town::of(2);
    town.take(0, 0, &["a"]);
    town.take(1, 1, &["b"]);
    town.ask(0, 10, &["b"], &[0]);
    town.until(|town| town.says("locks/a/a1", "waits"));
    let lease = town.store.kv(b"locks/a/a1").unwrap().lease;
    town.store.put(b"locks/a/a1", lease);
    town.serve();
    assert!(!town.says("locks/a/a1", "waits"));
    town.ask(1, 11, &["a"], &[1]);
    let took = town.until(|town| !town.refusals().is_empty());
    assert!(took < 5 * SECOND, "{took:?}");
    assert!(matches!(
        town.refusals()[..],
        [(_, Refused::Deadlock { .. })]
    ));
}
