//! Steps: what work costs, counted in the core and never in time.

use super::stage::Stage;
use crate::world::view;
use crate::world::violation::must;

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
