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

/// How far [`init`] is, as long as there is no engine.
static INIT: Mutex<Init> = Mutex::new(Init::Unasked);

enum Init {
    /// The first lock starts the engine from the environment.
    Unasked,
    /// What is asked for meanwhile waits with it.
    Connecting(Locks),
    /// It has failed, for this reason: only another one starts an engine.
    Over(LockError),
}

static ENDED: AtomicBool = AtomicBool::new(false);

/// Starts the process's engine with a configuration and waits until etcd can be reached. Answers a handle on it, for what annotated
/// functions do not need: [`Locks::list`], [`Locks::client`], `locks = expr`. It may be dropped.
///
/// Call it once, before the first lock; without it the first lock starts the engine from the environment ([`Config::from_env`]). A lock
/// that is asked for while `init` connects waits for it, and fails if `init` fails. After a failed `init`, locks are refused for its reason
/// until another one connects.
///
/// # Errors
/// [`LockError::AlreadyInitialized`], also while another `init` connects; [`LockError::ShuttingDown`] after [`shutdown`]; or those of
/// [`Locks::connect`]: then it may be called again. Cancel safe: dropped once polled, it has failed, and bodies under it are lost.
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

/// An `init` under way; dropped, it is over.
struct Connecting {
    locks: Locks,
    why: LockError,
}

impl Connecting {
    fn with(config: Config) -> Result<Self, LockError> {
        let started = Locks::connect_lazy(config); // before the mutex: it may drop code of users
        let mut init = lock(&INIT);
        if ENGINE.get().is_some() || matches!(*init, Init::Connecting(_)) {
            return Err(refused());
        }
        let locks = started.inspect_err(|why| *init = Init::Over(why.clone()))?;
        *init = Init::Connecting(locks.clone());
        let reason = "`init` was dropped before it had connected: call it again".to_owned();
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
            // Calls that wait with it must not go on with an engine that nobody knows.
            let _ = self.locks.shutdown(Duration::ZERO).now_or_never(); // it goes on
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
        // Locked to the end, so that no `init` begins meanwhile. Nothing here runs code of users.
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

/// The process's engine is unused while there is a second reference to this, as each test kit has one.
#[cfg(feature = "testing")]
pub(crate) static KITS: LazyLock<Arc<()>> = LazyLock::new(Arc::default);
