//! Steps: a count of the work of the core on this thread, for tests that compare the cost of inputs (invariant I12).
//!
//! Counted only with the feature `simulation`.

#[cfg(feature = "simulation")]
thread_local! {
    static STEPS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Counts one step: an element that a loop visits, or an item of the work list.
pub fn step() {
    #[cfg(feature = "simulation")]
    STEPS.set(STEPS.get() + 1);
}

/// Returns the steps of all cores on this thread.
#[cfg(feature = "simulation")]
pub fn taken() -> u64 {
    STEPS.get()
}
