//! Public interface: the items with which users take, hold and release locks.

mod acquisition;
mod current;
mod fence;
#[cfg(any(feature = "sqlx", feature = "sqlx-0-8"))]
pub(crate) mod fenced;
mod gate;
mod grant;
mod group;
mod guard;
#[cfg(feature = "opentelemetry")]
mod link;
mod listing;
mod lock;
mod lock_order;
mod locked;
mod locks;
mod names;
mod process;
mod span;
mod status;

pub use current::{Current, current};
pub use fence::{Dialect, Fence, FenceSql};
pub use group::{Append, Group};
pub use guard::LockGuard;
pub use listing::Listing;
pub use lock::{Acquire, Acquiring, lock};
pub use locked::{Exclusive, LockMode, Locked, Permit, Proof, Shared, prove};
pub use locks::{DefaultGuard, Locks};
pub use process::{init, shutdown, status};
pub use status::{LeaseStatus, LockStatus, Status};

pub(crate) use acquisition::{Acquisition, Wanted, mode_of_permits};
pub(crate) use gate::{Body, Gate, OnLost, Slot};
pub(crate) use grant::Grant;
pub(crate) use lock_order::Orders;
#[cfg(feature = "testing")]
pub(crate) use process::KITS;

use current::lock_of;
use fence::fence;
use gate::Stopwatch;
use group::Granted;
use span::WaitSpan;
