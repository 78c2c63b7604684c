//! The engine all annotated functions of the process share: the only static.

use std::time::Duration;

use once_cell::sync::OnceCell;

use crate::config::Config;
use crate::error::LockError;
use crate::locks::{Acquire, Locks};
use crate::name::LockName;

static GLOBAL: OnceCell<Locks> = OnceCell::new();

/// Starts the process's engine with a configuration and waits until etcd can be reached.
///
/// Call it once, before the first lock; without it the first lock starts the engine from the environment (see
/// [`Config::from_env`]). After [`shutdown`] it is not started again.
///
/// # Errors
/// [`LockError::AlreadyInitialized`], or those of [`Locks::connect`]; after an error it may be called again. Cancel safe.
pub async fn init(config: Config) -> Result<(), LockError> {
    if GLOBAL.get().is_some() {
        return Err(LockError::AlreadyInitialized);
    }
    let locks = Locks::connect(config).await?;
    GLOBAL.set(locks).map_err(|_| LockError::AlreadyInitialized)
}

/// Ends the process's engine; see [`Locks::shutdown`]. Without an engine it does nothing. Cancel safe: the shutdown goes on.
///
/// ```no_run
/// # async fn serve() {}
/// # async fn example() {
/// serve().await; // until a signal
/// etcd_locked::shutdown(std::time::Duration::from_secs(10)).await;
/// # }
/// ```
pub async fn shutdown(grace: Duration) {
    if let Some(locks) = GLOBAL.get() {
        locks.shutdown(grace).await;
    }
}

/// A call for a lock: what the attribute does, by hand.
///
/// ```no_run
/// # use std::time::Duration;
/// # async fn example(id: u64) -> Result<(), etcd_locked::LockError> {
/// let held = etcd_locked::lock(format!("orders/{id}")).wait(Duration::from_secs(5)).await?;
/// # drop(held); Ok(()) }
/// ```
pub fn lock(name: impl LockName) -> Acquire {
    Acquire::new(None, name.lock_name(), None)
}

/// The process's engine, started from the environment if need be.
pub(crate) fn locks() -> Result<Locks, LockError> {
    GLOBAL
        .get_or_try_init(|| Locks::start(Config::from_env()?))
        .cloned()
}
