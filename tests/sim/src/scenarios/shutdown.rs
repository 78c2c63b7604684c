//! Shutdown with many held locks, and with a session that ends on the way (rule P26).

use std::time::Duration;

use super::stage::{Ask, SOON, Stage, plays};
use super::steps::{is_linear, steps_of};
use crate::world::CallId;
use crate::world::violation::must;

/// Held locks, at first.
const LOCKS: usize = 100;
/// How long bodies may run on.
const GRACE: Duration = Duration::from_secs(5);
/// How long the last exchanges may take.
const FAREWELL: Duration = Duration::from_secs(3);

fn holding(locks: usize) -> (Stage, Vec<CallId>) {
    let mut stage = Stage::of(2);
    let calls: Vec<_> =
        (0..locks).map(|lock| stage.ask(0, Ask::of(&format!("lock-{lock}")))).collect();
    let held = stage.until(SOON, |stage| calls.iter().all(|call| stage.has(*call)));
    must!(Progress, held, "not all locks are held");
    (stage, calls)
}

fn ends(stage: &mut Stage) {
    let finished = stage.until(GRACE + FAREWELL, |stage| stage.is_finished(0));
    must!(Progress, finished, "the process does not end");
    // Bodies that were stopped in the last moment are dropped in the next.
    stage.run(Duration::from_millis(1));
}

#[test]
fn shutdown_costs_the_same_for_each_held_lock() {
    plays(|| {
        is_linear("a shutdown", LOCKS, |locks| {
            let (mut stage, calls) = holding(locks);
            steps_of(&mut stage, |stage| {
                stage.shut_down(0, GRACE);
                for call in calls {
                    stage.run(Duration::from_millis(5));
                    stage.release(call);
                }
                ends(stage);
            })
        });
    });
}

#[test]
fn shutdown_costs_the_same_for_each_body_it_stops() {
    plays(|| {
        is_linear("a shutdown that stops bodies", LOCKS, |locks| {
            let (mut stage, _) = holding(locks);
            steps_of(&mut stage, |stage| {
                stage.shut_down(0, GRACE);
                ends(stage);
            })
        });
    });
}

#[test]
fn session_that_ends_in_a_shutdown_costs_the_same_each() {
    plays(|| {
        is_linear("a session that ends in a shutdown", LOCKS, |locks| {
            let (mut stage, calls) = holding(locks);
            steps_of(&mut stage, |stage| {
                stage.shut_down(0, GRACE);
                stage.run(Duration::from_secs(1));
                for lease in stage.store.leases() {
                    stage.store.revoke(lease);
                }
                ends(stage);
                let kept = calls.iter().find(|call| stage.has(**call));
                must!(Truth, kept.is_none(), "call {kept:?} has a lock after the end");
            })
        });
    });
}

#[test]
fn session_that_ends_in_a_shutdown_frees_its_names() {
    let (mut stage, _) = holding(3);
    stage.shut_down(0, GRACE);
    stage.run(Duration::from_secs(1));
    for lease in stage.store.leases() {
        stage.store.revoke(lease);
    }
    ends(&mut stage);
    for lock in 0..3 {
        stage.take(1, &format!("lock-{lock}"));
    }
}
