//! Steps: what work costs, counted in the core and never in time.

use super::stage::Stage;
use crate::world::view;
use crate::world::violation::must;

/// Work on twice as much may take five halves of the steps: twice, and a rest that does not grow.
const LINEAR: (u64, u64) = (5, 2);
/// The same where each depends on all others: four times, and a rest.
const QUADRATIC: (u64, u64) = (9, 2);

/// Checks that work on twice as much takes twice the steps.
pub(super) fn is_linear(what: &str, n: usize, work: impl Fn(usize) -> u64) {
    grows(what, n, LINEAR, work);
}

/// Checks that work on twice as much takes four times the steps.
pub(super) fn is_quadratic(what: &str, n: usize, work: impl Fn(usize) -> u64) {
    grows(what, n, QUADRATIC, work);
}

fn grows(what: &str, n: usize, most: (u64, u64), work: impl Fn(usize) -> u64) {
    let (once, twice) = (work(n), work(2 * n));
    println!("{what}: {once} steps for {n}, {twice} for {}", 2 * n);
    must!(
        Cost,
        twice * most.1 <= once * most.0,
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
