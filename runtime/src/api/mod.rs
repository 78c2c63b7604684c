//! Public interface: what a user names to take a lock, to hold it and to end it.

pub(crate) mod current;
pub(crate) mod gate;
pub(crate) mod guard;
pub(crate) mod limit;
#[cfg(feature = "opentelemetry")]
mod link;
pub(crate) mod listing;
pub(crate) mod lock;
pub(crate) mod lock_order;
pub(crate) mod locks;
mod names;
pub(crate) mod process;
mod span;
pub(crate) mod status;
