//! Functions that expansions of `#[etcd_locked]` call. Not for use by hand: they change with every version.

use std::future::Future;

use crate::api::locks::Locks;
pub use crate::call::call::{Hold, Lock};
pub use crate::call::detached::Detached;
pub use crate::call::outcome::{
    Fallible, Outcome, Skip, Skipped, finish, map_err, on_error, skip, skip_held,
};
pub use crate::call::site::Site;
use crate::values::name::{LockKey, LockName, Name};
pub use crate::values::wait::Wait;
pub use etcd_locked_macros::lock_names;

/// Fills a template.
#[must_use]
pub fn name(template: &'static str, values: &[&dyn LockKey]) -> Name {
    Name::render(template, values)
}

/// The name a user's expression stands for.
#[must_use]
pub fn name_of(name: &dyn LockName) -> Name {
    name.lock_name()
}

/// A lock on the engine of the scope, thread or process.
pub fn lock(names: &[Name], site: &'static Site) -> Lock {
    Lock::new(None, names, site)
}

/// A lock on an engine of one's own.
pub fn lock_on(locks: &Locks, names: &[Name], site: &'static Site) -> Lock {
    Lock::new(Some(locks.clone()), names, site)
}

/// No lock: `when = false`.
#[must_use]
pub fn unlocked() -> Lock {
    Lock::none()
}

/// Runs the body in a task of its own, on the caller's tokio runtime, under the lock.
pub fn detach<F>(lock: Lock, body: F) -> Detached<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    Detached::new(lock, Box::pin(Some(body)))
}
