//! Findings of review that the core under test still has: the gate that keeps their scenarios green until it has not.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::stage::Stage;
use crate::world::view;
use crate::world::violation::{Promise, Violation, must};

/// A finding, by its number in the design of the core.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Finding {
    F1,
    F2,
    F3,
    F4,
    F5,
    F6,
    F8,
    F12,
    F13,
    F14,
}

/// The findings that this core has. A scenario of one must fail; a core without it takes it off the list.
const KNOWN: &[Finding] = &[
    Finding::F1,
    Finding::F2,
    Finding::F3,
    Finding::F4,
    Finding::F5,
    Finding::F6,
    Finding::F8,
    Finding::F12,
    Finding::F13,
    Finding::F14,
];

impl Finding {
    /// Plays a scenario, which keeps its promise unless this core is known to break it.
    pub(super) fn plays(self, promise: Promise, scenario: impl FnOnce()) {
        let violation = match catch_unwind(AssertUnwindSafe(scenario)) {
            Ok(()) => None,
            Err(payload) => Some(Violation::caught(payload)),
        };
        match (KNOWN.contains(&self), violation) {
            (false, None) => {}
            (false, Some(violation)) => panic!("{self:?}: {violation}"),
            (true, Some(violation)) => {
                println!("{self:?} is known: {violation}");
                assert_eq!(violation.promise, promise, "{violation}");
            }
            (true, None) => panic!("{self:?} is not seen: take it off the list of known findings"),
        }
    }
}

/// Work on twice as much may take five halves of the steps: twice, and a rest that does not grow.
const MOST: (u64, u64) = (5, 2);

/// Checks that work on twice as much takes twice the steps.
pub(super) fn is_linear(what: &str, n: usize, work: impl Fn(usize) -> u64) {
    let (once, twice) = (work(n), work(2 * n));
    println!("{what}: {once} steps for {n}, {twice} for {}", 2 * n);
    must!(
        Cost,
        twice * MOST.1 <= once * MOST.0,
        "{what} takes {once} steps for {n}, and {twice} for {}",
        2 * n
    );
}

/// The steps that cores take while this happens.
pub(super) fn steps_of(stage: &mut Stage, act: impl FnOnce(&mut Stage)) -> u64 {
    let before = view::steps_taken();
    act(stage);
    view::steps_taken() - before
}
