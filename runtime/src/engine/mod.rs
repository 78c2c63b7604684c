//! Engine: runs the core for whichever thread has a command or an event, then carries out what the core wants.

mod driver;
mod effects;
mod handle;
mod kept;
mod losses;
#[cfg(feature = "opentelemetry")]
mod owner;
mod ownership;
#[cfg(feature = "testing")]
mod probe;
mod registry;
mod runner;

#[cfg(feature = "testing")]
pub(crate) use handle::Shared;
pub(crate) use handle::{Engine, Origin, View, runtime};
#[cfg(feature = "opentelemetry")]
pub(crate) use owner::Waiter;
pub(crate) use ownership::{Answer, OwnedLock, OwnedLocks, Ownership, Wakeup};
#[cfg(feature = "testing")]
pub(crate) use probe::Names;
pub(crate) use registry::Call;

// What the rooms above name of the core.
pub(crate) use etcd_locked_core::{Key, LeaseId, Mode, Release};
