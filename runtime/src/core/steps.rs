//! Steps of the core's loops: what the scenarios of the simulator count instead of time. Elsewhere nothing is counted.

#[cfg(simulation)]
use std::cell::Cell;

#[cfg(simulation)]
thread_local! {
    static TAKEN: Cell<u64> = const { Cell::new(0) };
}

/// Counts so many steps.
#[cfg(simulation)]
pub(crate) fn count(many: usize) {
    TAKEN.set(TAKEN.get() + many as u64);
}

/// Counts nothing.
#[cfg(not(simulation))]
pub(crate) fn count(_: usize) {}

/// Steps that cores have taken on this thread.
#[cfg(simulation)]
pub(crate) fn taken() -> u64 {
    TAKEN.get()
}
