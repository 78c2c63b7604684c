//! Steps: how much work the core has done on this thread, counted for tests that ask what an input costs (invariant I12).
//!
//! Counted with the feature `simulation` only.

#[cfg(feature = "simulation")]
thread_local! {
    static STEPS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Counts one step: one element that a loop visits, or one item of the work list.
pub fn step() {
    #[cfg(feature = "simulation")]
    STEPS.set(STEPS.get() + 1);
}

/// How many steps the cores of this thread have taken.
#[cfg(feature = "simulation")]
pub fn taken() -> u64 {
    STEPS.get()
}
