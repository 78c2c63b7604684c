//! Process's engine, which all annotated functions share: the only static that holds an engine for all threads.

#[cfg(feature = "testing")]
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use once_cell::sync::OnceCell;

use super::locks::Locks;
use super::status::Status;
use crate::values::config::Config;
use crate::values::drained::Drained;
use crate::values::error::LockError;

static PROCESS: Process = Process { engine: OnceCell::new(), ended: AtomicBool::new(false) };

struct Process {
    engine: OnceCell<Global>,
    /// [`shutdown`] was called.
    ended: AtomicBool,
}

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

/// Starts the process's engine with a configuration and waits until etcd can be reached. Answers a handle on it, for what annotated
/// functions do not need: [`Locks::list`], [`Locks::client`], `locks = expr`. It may be dropped.
///
/// Call it once, before the first lock; without it the first lock starts the engine from the environment (see
/// [`Config::from_env`]). After [`shutdown`] it is not started again.
///
/// # Errors
/// [`LockError::AlreadyInitialized`], [`LockError::ShuttingDown`] after [`shutdown`], or those of [`Locks::connect`]; after an error it may be called again. Cancel safe.
pub async fn init(config: Config) -> Result<Locks, LockError> {
    if PROCESS.engine.get().is_some() {
        return Err(refused());
    }
    let locks = Locks::connect(config).await?;
    PROCESS.engine.set(Global::Started(locks.clone())).map_err(|_| refused())?;
    Ok(locks)
}

/// What a further `init` answers.
fn refused() -> LockError {
    match PROCESS.ended.load(Ordering::Acquire) {
        true => LockError::ShuttingDown,
        false => LockError::AlreadyInitialized,
    }
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
pub async fn shutdown(grace: Duration) -> Drained {
    PROCESS.ended.store(true, Ordering::Release);
    match PROCESS.engine.get_or_init(|| Global::Closed) {
        Global::Started(locks) => locks.shutdown(grace).await,
        Global::Closed => Drained::default(),
    }
}

/// Shows what the engine is at the moment that annotated functions use here: that of the scope, else of the thread, else of the
/// process. See [`Status`].
///
/// It starts no engine, so that it cannot come before [`init`]: while the process has none, nothing is reachable, and the status is
/// not [`ready`](Status::ready). A service that asks it for its readiness calls `init`.
///
/// ```
/// let status = etcd_locked::status();
/// assert!(!status.ready() && !status.draining()); // no engine yet
/// ```
#[must_use]
pub fn status() -> Status {
    if let Some(locks) = Locks::chosen() {
        return locks.status();
    }
    match PROCESS.engine.get() {
        Some(Global::Started(locks)) => locks.status(),
        Some(Global::Closed) | None => Status::of_none(PROCESS.ended.load(Ordering::Acquire)),
    }
}

/// The engine to use here: that of the scope, else of the thread, else of the process, which is started from the environment if
/// need be.
pub(crate) fn here() -> Result<Locks, LockError> {
    if let Some(locks) = Locks::chosen() {
        return Ok(locks);
    }
    #[cfg(feature = "testing")]
    Reserved::refuse()?;
    PROCESS
        .engine
        .get_or_try_init(|| Locks::start(Config::from_env()?).map(Global::Started))?
        .locks()
}

/// The process's engine is not used while one of these lives: a test kit's calls are not to end at a real etcd.
#[cfg(feature = "testing")]
#[derive(Debug)]
pub(crate) struct Reserved(());

#[cfg(feature = "testing")]
static RESERVED: AtomicUsize = AtomicUsize::new(0);

#[cfg(feature = "testing")]
impl Reserved {
    pub(crate) fn new() -> Self {
        RESERVED.fetch_add(1, Ordering::AcqRel);
        Self(())
    }

    fn refuse() -> Result<(), LockError> {
        if RESERVED.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        let message = "a test kit lives in this process, and this call is in no scope of one, so it would use the process's own etcd: \
                       run it inside `etcd.locks().scope(..)`, a spawned task too, or take `locks = etcd.locks()`";
        Err(LockError::Config { message: message.to_owned() })
    }
}

#[cfg(feature = "testing")]
impl Drop for Reserved {
    fn drop(&mut self) {
        RESERVED.fetch_sub(1, Ordering::AcqRel);
    }
}
