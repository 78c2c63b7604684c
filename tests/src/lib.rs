//! Shared code of the test targets and the worker process: clock, commands, log lines, the subscriber of a thread, fenced
//! transactions, and the witness of exclusion.

use std::error::Error;
use std::iter::successors;

#[cfg(doctest)]
mod book;
mod clock;
mod commands;
pub mod elsewhere;
pub mod fenced;
mod lines;
mod subscriber;
mod witness;

pub use clock::monotonic_ns;
pub use commands::commands;
pub use lines::Lines;
pub use subscriber::{Subscription, subscribe};
pub use witness::Witness;

/// Returns the text of an error and its sources.
#[must_use]
pub fn chain(error: &dyn Error) -> String {
    let all = successors(Some(error), |&error| error.source()).map(ToString::to_string);
    all.collect::<Vec<_>>().join(": ")
}

/// Writes an annotated `async unsafe fn` of this name, and a function that calls it.
///
/// In a crate that forbids `unsafe`, only another crate's macro can write one.
#[macro_export]
macro_rules! unsafe_function {
    ($name:ident, $call:ident, $answer:expr) => {
        #[::etcd_locked::etcd_locked("unsafe/<id>")]
        async unsafe fn $name(id: u64) -> Result<String, ::etcd_locked::LockError> {
            Ok($answer)
        }

        async fn $call(id: u64) -> Result<String, ::etcd_locked::LockError> {
            unsafe { $name(id) }.await
        }
    };
}
