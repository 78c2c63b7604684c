//! Engine of the process, which all annotated functions share. No other static holds an engine for all threads.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
#[cfg(feature = "testing")]
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use once_cell::sync::OnceCell;

use super::{Locks, Status};
use crate::mutex::lock;
use crate::values::{Config, Drained, LockError};

/// The process's engine; `None` if it was shut down before it started.
static ENGINE: OnceCell<Option<Locks>> = OnceCell::new();

/// State of [`init`] while there is no engine.
static INIT: Mutex<Init> = Mutex::new(Init::Unasked);

enum Init {
    /// Not called: the first lock starts the engine from the environment.
    Unasked,
    /// In progress: locks that are requested meanwhile wait for it.
    Connecting(Locks),
    /// Failed, for this reason: only another `init` starts an engine.
    Over(LockError),
}

static ENDED: AtomicBool = AtomicBool::new(false);

/// Starts the process's engine with a configuration and waits until etcd can be reached. Annotated functions do not need the returned
/// handle, so you may drop it. It is for [`Locks::list`], [`Locks::client`] and `locks = expr`.
///
/// Call it once, before the first lock. Without it, the first lock starts the engine from the environment ([`Config::from_env`]). Locks
/// that are requested while `init` connects wait for it, and fail if it fails. After a failed `init`, locks fail with its error until
/// another `init` succeeds.
///
/// # Errors
/// [`LockError::AlreadyInitialized`], also while another `init` connects; [`LockError::ShuttingDown`] after [`shutdown`]. After the
/// errors of [`Locks::connect`], `init` may be called again. Cancel safe: once polled and then dropped, `init` has failed, and bodies
/// that run by then lose their locks.
pub async fn init(config: Config) -> Result<Locks, LockError> {
    if ENGINE.get().is_some() {
        return Err(refused());
    }
    let mut connecting = Connecting::with(config)?;
    let warmed = connecting.locks.clone().warmed().await;
    let locks = warmed.inspect_err(|why| connecting.why = why.clone())?;
    ENGINE.set(Some(locks.clone())).map_err(|_| refused())?;
    Ok(locks)
}

/// An `init` in progress. Dropping it ends the attempt.
struct Connecting {
    locks: Locks,
    why: LockError,
}

impl Connecting {
    fn with(config: Config) -> Result<Self, LockError> {
        let started = Locks::connect_lazy(config); // before the mutex is locked, because it may drop user code
        let mut init = lock(&INIT);
        if ENGINE.get().is_some() || matches!(*init, Init::Connecting(_)) {
            return Err(refused());
        }
        let locks = started.inspect_err(|why| *init = Init::Over(why.clone()))?;
        *init = Init::Connecting(locks.clone());
        let reason = "`init` was dropped before it connected: call it again".to_owned();
        Ok(Self { locks, why: LockError::NotInitialized { reason } })
    }
}

impl Drop for Connecting {
    fn drop(&mut self) {
        let mut init = lock(&INIT);
        *init = Init::Over(self.why.clone());
        let has_failed = ENGINE.get().is_none();
        drop(init);
        if has_failed {
            // Calls that wait for this `init` must not continue on an abandoned engine.
            self.locks.engine.end();
        }
    }
}

fn refused() -> LockError {
    match ENDED.load(Ordering::Acquire) {
        true => LockError::ShuttingDown,
        false => LockError::AlreadyInitialized,
    }
}

/// Ends the process's engine for good; see [`Locks::shutdown`]. If there was none, none will start. Cancel safe: the shutdown continues.
pub async fn shutdown(grace: Duration) -> Drained {
    ENDED.store(true, Ordering::Release);
    let engine = match (&*lock(&INIT), ENGINE.get_or_init(|| None)) {
        (Init::Connecting(locks), None) => Some(locks.clone()),
        (_, engine) => engine.clone(),
    };
    match engine {
        Some(locks) => locks.shutdown(grace).await,
        None => Drained::default(),
    }
}

/// Returns a snapshot of the engine that annotated functions use here: that of the scope, else of the thread, else of the process.
///
/// It never starts an engine. Without one, the status is not [`ready`](Status::ready), so a service that reports it must call [`init`].
#[must_use]
pub fn status() -> Status {
    if let Some(locks) = Locks::chosen() {
        return locks.status();
    }
    match ENGINE.get() {
        Some(Some(locks)) => locks.status(),
        Some(None) | None => Status::of_none(ENDED.load(Ordering::Acquire)),
    }
}

/// Returns the engine to use here: that of the scope, else of the thread, else of the process, which is started if necessary.
pub(crate) fn here() -> Result<Locks, LockError> {
    if let Some(locks) = Locks::chosen() {
        return Ok(locks);
    }
    #[cfg(feature = "testing")]
    if Arc::strong_count(&KITS) > 1 {
        return Err(LockError::config(
            "a test kit is alive in this process, but this call is in no kit's scope and would use the process's own etcd: \
             run it inside `etcd.locks().scope(..)`, also in a spawned task, or set `locks = etcd.locks()`",
        ));
    }
    if ENGINE.get().is_none() {
        // The mutex stays locked, so that no `init` begins meanwhile. Nothing here runs user code.
        match &*lock(&INIT) {
            Init::Unasked => {
                ENGINE.get_or_try_init(|| Locks::connect_lazy(Config::from_env()?).map(Some))?;
            }
            Init::Connecting(locks) => return Ok(locks.clone()),
            Init::Over(why) if ENGINE.get().is_none() => return Err(why.clone()),
            Init::Over(_) => {}
        }
    }
    ENGINE.get().cloned().flatten().ok_or(LockError::ShuttingDown)
}

/// Counts test kits, each of which has a reference. While there is one, the process's engine is not used.
#[cfg(feature = "testing")]
pub(crate) static KITS: LazyLock<Arc<()>> = LazyLock::new(Arc::default);
