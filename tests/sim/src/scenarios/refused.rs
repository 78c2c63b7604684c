//! Refusals that were carried out: etcd at its quota applies the writes that cross it, and refuses them (rule P34).

use std::num::NonZeroU16;
use std::time::Duration;

use super::stage::{Ask, SOON, Stage, plays};
use crate::world::etcd::Space;
use crate::world::violation::must;
use etcd_locked_core::Mode;
use etcd_locked_core::Wait;

/// How long a key may stay that its call does not have: deletes work at the quota.
const GONE: Duration = Duration::from_secs(10);

fn is_cleaned_up(mode: Mode, wait: Wait) {
    let mut stage = Stage::of(2);
    // As long as this lock is held its session is renewed, and with it every key under its lease.
    let held = stage.take(0, "held");
    stage.store.space = Space::Crossing(1);
    let ask = Ask {
        mode,
        wait,
        ..Ask::of("full")
    };
    let call = stage.ask(0, ask);
    let refused = stage.until(SOON, |stage| stage.refusal(call).is_some());
    must!(InTime, refused, "call {call} has no answer at the quota");
    let gone = stage.until(GONE, |stage| stage.keys("full").is_empty());
    let keys = stage.keys("full");
    must!(I4, gone, "{keys:?} stay for a call that was refused");
    must!(
        Truth,
        stage.has(held),
        "the quota has cost a lock that was held"
    );
    stage.store.space = Space::Enough;
    stage.take(1, "full");
}

#[test]
fn put_refused_but_applied_leaves_no_key() {
    plays(|| is_cleaned_up(Mode::Exclusive, Wait::Forever));
}

#[test]
fn try_refused_but_applied_leaves_no_key() {
    plays(|| is_cleaned_up(Mode::Exclusive, Wait::Once));
}

#[test]
fn reader_refused_but_applied_leaves_no_key() {
    plays(|| is_cleaned_up(Mode::Shared, Wait::Forever));
}

#[test]
fn permit_refused_but_applied_leaves_no_key() {
    let two = NonZeroU16::new(2).expect("not zero");
    plays(|| is_cleaned_up(Mode::Permits(two), Wait::Forever));
}

#[test]
fn locks_are_released_at_the_quota() {
    let mut stage = Stage::of(2);
    let held = stage.take(0, "held");
    let waiter = stage.ask(1, Ask::of("held"));
    stage.run(Duration::from_secs(1));
    stage.store.space = Space::Crossing(0);
    stage.run(Duration::from_secs(20));
    assert!(stage.has(held));
    stage.release(held);
    stage.serve(waiter);
}
