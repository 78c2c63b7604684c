//! The engine all annotated functions of the process share: the only static.

use std::time::Duration;

use once_cell::sync::OnceCell;

use crate::acquire::Acquire;
use crate::config::Config;
use crate::error::LockError;
use crate::locks::Locks;
use crate::name::LockName;

static GLOBAL: OnceCell<Global> = OnceCell::new();

#[derive(Debug)]
enum Global {
    Started(Locks),
    /// Shut down before it was ever started.
    Closed,
}

impl Global {
    fn locks(&self) -> Result<Locks, LockError> {
        match self {
            Self::Started(locks) => Ok(locks.clone()),
            Self::Closed => Err(LockError::ShuttingDown),
        }
    }
}

/// Starts the process's engine with a configuration and waits until etcd can be reached.
///
/// Call it once, before the first lock; without it the first lock starts the engine from the environment (see
/// [`Config::from_env`]). After [`shutdown`] it is not started again.
///
/// # Errors
/// [`LockError::AlreadyInitialized`], [`LockError::ShuttingDown`] after [`shutdown`], or those of [`Locks::connect`]; after an error it may be called again. Cancel safe.
pub async fn init(config: Config) -> Result<(), LockError> {
    if let Some(global) = GLOBAL.get() {
        return global.locks().and(Err(LockError::AlreadyInitialized));
    }
    let locks = Locks::connect(config).await?;
    GLOBAL
        .set(Global::Started(locks))
        .map_err(|_| LockError::AlreadyInitialized)
}

/// Ends the process's engine for good; see [`Locks::shutdown`]. If none was started, none will be. Cancel safe: the shutdown
/// goes on.
///
/// ```no_run
/// # async fn serve() {}
/// # async fn example() {
/// serve().await; // until a signal
/// etcd_locked::shutdown(std::time::Duration::from_secs(10)).await;
/// # }
/// ```
pub async fn shutdown(grace: Duration) {
    if let Global::Started(locks) = GLOBAL.get_or_init(|| Global::Closed) {
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
    Acquire::new(None, vec![name.lock_name()], None)
}

/// The process's engine, started from the environment if need be.
pub(crate) fn locks() -> Result<Locks, LockError> {
    GLOBAL
        .get_or_try_init(|| Locks::start(Config::from_env()?).map(Global::Started))?
        .locks()
}
