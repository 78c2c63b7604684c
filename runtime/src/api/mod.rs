//! Public interface: what a user names to take a lock, to hold it and to end it.

pub(crate) mod acquisition;
pub(crate) mod current;
#[cfg(feature = "sqlx")]
pub mod fenced;
pub(crate) mod gate;
pub(crate) mod grant;
pub(crate) mod group;
pub(crate) mod guard;
#[cfg(feature = "opentelemetry")]
mod link;
pub(crate) mod listing;
pub(crate) mod lock;
pub(crate) mod lock_order;
pub(crate) mod locked;
pub(crate) mod locks;
mod names;
pub(crate) mod process;
mod span;
pub(crate) mod status;
