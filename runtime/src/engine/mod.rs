//! What carries the core out: the only code that awaits etcd.
//!
//! Its thread has a current-thread tokio runtime of its own, for all exchanges with etcd and for the timer, so that a handler
//! that blocks its executor cannot starve the renewal of leases. The core itself is run by whoever has something to tell it:
//! a caller on its own thread, for the microseconds that takes (see `combiner`). User futures only wait on channels, so they
//! run on any executor.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use tokio::runtime::{Handle, Runtime};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::clock::{Alarm, Clock, Moment};
use crate::config::Config;
use crate::core::mode::Mode;
use crate::core::request::{Cause, Failure, Key};
use crate::core::{Acquire, CallId, NAMES, Release};
use crate::error::LockError;
use crate::held::LockGuard;
use crate::holder::Author;
use crate::name::Name;
use crate::order::Orders;
use crate::site::Wait;

mod combiner;
mod convert;
mod driver;
mod endpoint;
mod errors;
mod failover;
mod gather;
#[cfg(feature = "testing")]
mod probe;
mod renewals;
mod target;
mod watch;
mod wire;

use combiner::Combiner;
use driver::{Driver, Told};
#[cfg(feature = "testing")]
pub(crate) use probe::{Names, WeakEngine};
use wire::Wire;

/// A handle on an engine. Clones share it; when the last is gone the engine ends.
#[derive(Debug, Clone)]
pub(crate) struct Engine(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    driver: Arc<Combiner<Driver>>,
    clock: Arc<dyn Clock>,
    config: Config,
    author: Author,
    last_call: AtomicU64,
    orders: Orders,
    /// Its thread's, for timers of callers that have none.
    runtime: Handle,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.driver.tell(Told::Orphaned);
    }
}

/// What an engine's thread runs on: a current-thread runtime, so that nothing there is ever behind a handler.
pub(crate) fn runtime() -> io::Result<Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
}

/// Starts the thread on which exchanges are awaited, and which tells the driver the time until that has ended.
fn time_keeper(
    alarm: Arc<Alarm>,
    driver: Arc<Combiner<Driver>>,
    runtime: impl FnOnce() -> io::Result<Runtime> + Send + 'static,
) -> io::Result<Handle> {
    let (started, start) = std::sync::mpsc::sync_channel(1);
    thread::Builder::new()
        .name("etcd-locked".into())
        .spawn(move || {
            // Made where it will be dropped: on a caller's thread, which may be inside another, that would panic.
            let runtime = match runtime() {
                Ok(runtime) => runtime,
                Err(error) => return drop(started.send(Err(error))),
            };
            let _ = started.send(Ok(runtime.handle().clone())); // the caller waits for it
            runtime.block_on(async {
                alarm.rings().await;
                while driver.tell(Told::Time) {
                    alarm.rings().await;
                }
            });
        })?;
    start.recv().map_err(io::Error::other)?
}

impl Engine {
    /// Starts an engine that lives by this clock, with a thread that runs on what `runtime` makes there; it connects when
    /// first used.
    pub(crate) fn start(
        config: Config,
        clock: Arc<dyn Clock>,
        runtime: impl FnOnce() -> io::Result<Runtime> + Send + 'static,
    ) -> Result<Self, LockError> {
        let broken = |message: String| LockError::Config { message };
        config.check().map_err(broken)?;
        let alarm = Arc::new(Alarm::new(clock.clone()));
        let call = Arc::clone(&alarm);
        let driver = Arc::new(Combiner::new(move || call.ring()));
        let wire = Wire::new(&config, clock.clone())
            .map_err(|message| broken(format!("the engine does not start: {message}")))?;
        let runtime = time_keeper(Arc::clone(&alarm), Arc::clone(&driver), runtime)
            .map_err(|error| broken(format!("the engine's thread does not start: {error}")))?;
        let shared = Arc::new(Shared {
            driver: Arc::clone(&driver),
            clock: clock.clone(),
            author: Author::here(
                &rustix::system::uname().nodename().to_string_lossy(),
                &config.service,
            ),
            last_call: AtomicU64::new(0),
            orders: Orders::default(),
            runtime: runtime.clone(),
            config,
        });
        let on = (runtime, alarm);
        let weak = (Arc::downgrade(&driver), Arc::downgrade(&shared));
        driver.begin(Driver::new(&shared.config, clock, wire, on, weak));
        Ok(Self(shared))
    }

    pub(crate) fn config(&self) -> &Config {
        &self.0.config
    }

    pub(crate) fn author(&self) -> &Author {
        &self.0.author
    }

    /// In which order its locks are taken.
    pub(crate) fn orders(&self) -> &Orders {
        &self.0.orders
    }

    /// Whether both handles are of one engine.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(crate) fn now(&self) -> Moment {
        self.0.clock.now()
    }

    /// A timer on the engine's thread, which rings at or after `when`, to be awaited anywhere; an error, if the engine has
    /// ended. It runs until it is aborted.
    pub(crate) fn alarm(&self, when: Moment) -> JoinHandle<()> {
        let clock = self.0.clock.clone();
        let rings = async move {
            while clock.now() < when {
                clock.sleep_until(when).await;
            }
        };
        self.0.runtime.spawn(rings)
    }

    /// Opens the default lease.
    pub(crate) async fn warm(&self) -> Result<(), LockError> {
        let (reply, answer) = oneshot::channel();
        self.send(Told::Warm {
            call: self.new_call(),
            ttl_secs: whole_secs(self.0.config.ttl),
            reply,
        })?;
        answer.await.unwrap_or(Err(LockError::ShuttingDown))
    }

    /// Queues a call for these locks, as one group (rule P13): each name once, at least one, at most [`NAMES`]. `holds`: the
    /// calls whose locks the calling task holds.
    pub(crate) fn acquire(
        &self,
        names: Vec<(Name, Key)>,
        ttl: Duration,
        mode: Mode,
        wait: Wait,
        record: Arc<[u8]>,
        holds: Vec<CallId>,
    ) -> Result<(CallId, oneshot::Receiver<Result<LockGuard, LockError>>), LockError> {
        if names.len() > NAMES {
            let message = format!(
                "{} names in one call: {NAMES} at most, because they are taken in one transaction",
                names.len()
            );
            return Err(LockError::Config { message });
        }
        let call = self.new_call();
        // Exactly as long as they are: a hundred thousand calls may wait.
        let keys = names.iter().map(|(_, key)| key.clone()).collect();
        let names = names.into_iter().map(|(name, _)| name).collect();
        let acquire = Acquire {
            call,
            names: keys,
            ttl_secs: whole_secs(ttl),
            mode,
            wait,
            record,
            holds,
        };
        let (reply, answer) = oneshot::channel();
        self.send(Told::Acquire {
            acquire,
            names,
            reply,
        })?;
        Ok((call, answer))
    }

    /// The call has gone away.
    pub(crate) fn cancel(&self, call: CallId) {
        let _ = self.send(Told::Cancel { call }); // an engine that has ended has nothing to cancel
    }

    /// The names of a call that has its lock stay locked until then, whenever it is released (rule P39).
    pub(crate) fn keep(&self, call: CallId, until: Moment) {
        let _ = self.send(Told::Keep { call, until }); // an engine that has ended has nothing to keep
    }

    /// The body of the call has been dropped; `fenced`: what its keys say may be relied on elsewhere (rule P22).
    pub(crate) fn release(
        &self,
        call: CallId,
        how: Release,
        fenced: bool,
    ) -> Option<oneshot::Receiver<Result<(), LockError>>> {
        let confirm = how == Release::Confirmed;
        let (reply, answer) = confirm.then(oneshot::channel).unzip();
        self.send(Told::Release {
            call,
            how,
            fenced,
            reply,
        })
        .ok()?;
        answer
    }

    pub(crate) async fn shutdown(&self, grace: Duration) {
        let (reply, answer) = oneshot::channel();
        if self.send(Told::Shutdown { grace, reply }).is_ok() {
            let _ = answer.await; // or the engine has ended, which is what was wanted
        }
    }

    /// A client on connections of its own, carried by the caller's runtime.
    pub(crate) async fn client(&self) -> Result<etcd_client::Client, LockError> {
        let wire = Wire::new(&self.0.config, self.0.clock.clone())
            .map_err(|message| LockError::Config { message })?;
        wire.client().await.map_err(|failure| LockError::Backend {
            source: cause(failure),
        })
    }

    fn new_call(&self) -> CallId {
        self.0.last_call.fetch_add(1, Ordering::Relaxed)
    }

    fn send(&self, told: Told) -> Result<(), LockError> {
        let heard = self.0.driver.tell(told);
        heard.then_some(()).ok_or(LockError::ShuttingDown)
    }
}

/// etcd counts TTLs in seconds; a part of one is rounded up.
fn whole_secs(ttl: Duration) -> i64 {
    i64::try_from(ttl.as_millis().div_ceil(1000)).unwrap_or(i64::MAX)
}

fn cause(failure: Failure) -> Cause {
    match failure {
        Failure::Unavailable(cause) | Failure::Refused { cause, .. } | Failure::Unknown(cause) => {
            cause
        }
    }
}
