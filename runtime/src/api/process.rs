//! Process's engine, which all annotated functions share: the only static that holds an engine for all threads.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
#[cfg(feature = "testing")]
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use futures_util::FutureExt as _;
use once_cell::sync::OnceCell;

use super::{Locks, Status};
use crate::mutex::lock;
use crate::values::{Config, Drained, LockError};

/// The process's engine; `None` if it was shut down before it was ever started.
static ENGINE: OnceCell<Option<Locks>> = OnceCell::new();

/// What [`init`] does while there is no engine.
static INIT: Mutex<Init> = Mutex::new(Init::Unasked);

enum Init {
    /// The first lock starts the engine from the environment.
    Unasked,
    /// What is asked for meanwhile waits with it.
    Connecting(Locks),
    /// It has failed, or was dropped: only another one starts an engine.
    Over,
}

static ENDED: AtomicBool = AtomicBool::new(false);

/// Starts the process's engine with a configuration and waits until etcd can be reached. Answers a handle on it, for what annotated
/// functions do not need: [`Locks::list`], [`Locks::client`], `locks = expr`. It may be dropped.
///
/// Call it once, before the first lock; without it the first lock starts the engine from the environment ([`Config::from_env`]). A lock
/// that is asked for while `init` connects waits for this connection, and fails if it does. From then on until an `init` succeeds, locks
/// are refused.
///
/// # Errors
/// [`LockError::AlreadyInitialized`], also while another `init` connects; [`LockError::ShuttingDown`] after [`shutdown`]; or those of
/// [`Locks::connect`]: then it may be called again. Cancel safe: dropped, it has failed.
pub async fn init(config: Config) -> Result<Locks, LockError> {
    if ENGINE.get().is_some() {
        return Err(refused());
    }
    let connecting = Connecting::with(Locks::connect_lazy(config)?)?;
    let locks = connecting.0.clone().warmed().await?;
    ENGINE.set(Some(locks.clone())).map_err(|_| refused())?;
    Ok(locks)
}

/// An `init` under way; dropped, it is over.
struct Connecting(Locks);

impl Connecting {
    fn with(locks: Locks) -> Result<Self, LockError> {
        let mut init = lock(&INIT);
        if ENGINE.get().is_some() || matches!(*init, Init::Connecting(_)) {
            return Err(refused());
        }
        *init = Init::Connecting(locks.clone());
        Ok(Self(locks))
    }
}

impl Drop for Connecting {
    fn drop(&mut self) {
        let mut init = lock(&INIT);
        *init = Init::Over;
        let has_failed = ENGINE.get().is_none();
        drop(init);
        if has_failed {
            // Calls that wait with it must not go on with an engine that nobody knows.
            let _ = self.0.shutdown(Duration::ZERO).now_or_never(); // it goes on
        }
    }
}

fn refused() -> LockError {
    match ENDED.load(Ordering::Acquire) {
        true => LockError::ShuttingDown,
        false => LockError::AlreadyInitialized,
    }
}

/// Ends the process's engine for good; see [`Locks::shutdown`]. If none was started, none will be. Cancel safe: the shutdown
/// goes on.
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

/// Shows what the engine is at the moment that annotated functions use here: that of the scope, else of the thread, else of the process.
///
/// It starts no engine: without one, nothing is reachable, and the status is not [`ready`](Status::ready). A service whose readiness
/// depends on it calls [`init`].
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

/// The engine to use here: that of the scope, else of the thread, else of the process, which may have to be started.
pub(crate) fn here() -> Result<Locks, LockError> {
    if let Some(locks) = Locks::chosen() {
        return Ok(locks);
    }
    #[cfg(feature = "testing")]
    if Arc::strong_count(&KITS) > 1 {
        return Err(LockError::config(
            "a test kit lives in this process, and this call is in no scope of one, so it would use the process's own etcd: \
             run it inside `etcd.locks().scope(..)`, a spawned task too, or take `locks = etcd.locks()`",
        ));
    }
    if ENGINE.get().is_none() {
        // Locked to the end, so that no `init` begins meanwhile.
        match &*lock(&INIT) {
            Init::Unasked => {
                ENGINE.get_or_try_init(|| Locks::connect_lazy(Config::from_env()?).map(Some))?;
            }
            Init::Connecting(locks) => return Ok(locks.clone()),
            Init::Over if ENGINE.get().is_none() => {
                let reason = "`init` has failed, or was dropped: call it again".to_owned();
                return Err(LockError::NotInitialized { reason });
            }
            Init::Over => {}
        }
    }
    ENGINE.get().cloned().flatten().ok_or(LockError::ShuttingDown)
}

/// The process's engine is unused while there is a second reference to this, as each test kit has one.
#[cfg(feature = "testing")]
pub(crate) static KITS: LazyLock<Arc<()>> = LazyLock::new(Arc::default);
