//! Single tries by the thousand for one name that has no room.

use std::num::NonZeroU16;
use std::process::Command;
use std::thread;
use std::time::Duration;

use super::stage::{Ask, SOON, Stage, plays};
use super::steps::{is_linear, steps_of};
use crate::world::CallId;
use crate::world::violation::must;
use etcd_locked_core::Mode;
use etcd_locked_core::Refused;
use etcd_locked_core::Wait;

/// Tries, at first, where their cost is counted; and where their depth is.
const TRIES: usize = 500;
const MANY: usize = 3_000;
/// The stack of an engine's thread that has little.
const STACK: usize = 256 << 10;
/// As few as fit on it in any case, and what is printed then: the stage itself needs no more.
const FEW: usize = 30;
const FEW_FIT: &str = "a few fit";
/// Set for the process of its own that a scenario plays in, as too little stack ends it.
const ALONE: &str = "ETCD_LOCKED_SIM_ALONE";

fn five() -> Mode {
    Mode::Permits(NonZeroU16::new(5).expect("not zero"))
}

fn tries(stage: &mut Stage, mode: Mode, many: usize) -> Vec<CallId> {
    let call = |stage: &mut Stage| {
        let ask = Ask { mode, wait: Wait::Once, ..Ask::of("busy") };
        stage.ask(0, ask)
    };
    (0..many).map(|_| call(stage)).collect()
}

/// So many tries for five permits, all at once.
fn permits(many: usize) -> u64 {
    let mut stage = Stage::of(1);
    stage.take(0, "warm");
    steps_of(&mut stage, |stage| {
        let calls = tries(stage, five(), many);
        answered(stage, &calls);
    })
}

/// So many readers that try once, behind a writer that waits behind a reader.
fn shared(many: usize) -> u64 {
    let mut stage = Stage::of(2);
    let shared = Ask { mode: Mode::Shared, ..Ask::of("busy") };
    let reader = stage.ask(0, shared);
    stage.serve(reader);
    stage.ask(1, Ask::of("busy"));
    // What the process knows of other processes is old by then, and is read anew.
    stage.run(Duration::from_secs(1));
    steps_of(&mut stage, |stage| {
        let calls = tries(stage, Mode::Shared, many);
        answered(stage, &calls);
    })
}

fn answered(stage: &mut Stage, calls: &[CallId]) {
    let all = stage.until(SOON, |stage| {
        let mut calls = calls.iter().map(|call| &stage.calls[call]);
        calls.all(|call| call.granted.is_some() || call.refused.is_some())
    });
    must!(InTime, all, "a single try has no answer");
    let held = |call: &&CallId| {
        let refused = stage.refusal(**call);
        refused.is_some_and(|(_, why)| !matches!(why, Refused::Held { .. }))
    };
    let other = calls.iter().find(held);
    must!(Truth, other.is_none(), "a single try is refused otherwise: {other:?}");
}

/// Plays this on a small stack, in a process of its own: this very test, once more.
fn on_small_stack(test: &str, scenario: fn(usize) -> u64) {
    if std::env::var_os(ALONE).is_some() {
        let play = move || {
            scenario(FEW);
            println!("{FEW_FIT}");
            scenario(MANY);
        };
        let thread = thread::Builder::new().stack_size(STACK).spawn(play);
        return thread.expect("a thread").join().expect("a scenario that holds");
    }
    plays(|| {
        let itself = std::env::current_exe().expect("this program");
        let output = Command::new(itself)
            .args(["--exact", test, "--nocapture"])
            .env(ALONE, "1")
            .output()
            .expect("a process of its own");
        let printed = String::from_utf8_lossy(&output.stdout);
        assert!(printed.contains(FEW_FIT), "{printed}");
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.lines().find(|said| said.contains("overflow")).unwrap_or_default();
        let how = output.status;
        must!(I10, how.success(), "{MANY} tries on a stack of {STACK} bytes: {how}, {said}");
    });
}

#[test]
fn permit_tries_fit_on_a_small_stack() {
    on_small_stack("scenarios::tries::permit_tries_fit_on_a_small_stack", permits);
}

#[test]
fn shared_tries_fit_on_a_small_stack() {
    on_small_stack("scenarios::tries::shared_tries_fit_on_a_small_stack", shared);
}

#[test]
fn permit_tries_cost_the_same_each() {
    plays(|| is_linear("tries for permits", TRIES, permits));
}

#[test]
fn shared_tries_cost_the_same_each() {
    plays(|| is_linear("tries of readers", TRIES, shared));
}
