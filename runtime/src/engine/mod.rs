//! Engine: runs the core on the thread that has a command or an event, then performs the core's effects.

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

// Items of the core that rooms above use.
pub(crate) use etcd_locked_core::{Key, LeaseId, Mode, Release};
