//! What the test target and the worker process share: one clock, and the witness of exclusion.

mod clock;
mod witness;

pub use clock::monotonic_ns;
pub use witness::Witness;

/// The README's example, compiled.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
