//! Test kit: tests annotated functions without a server, in milliseconds, and simulates what can happen to a lock.
//!
//! [`start`] starts an etcd and an engine inside the process, for one test. Annotated functions on the calling thread use them, and never
//! the process's own engine. So tests run in parallel, without affecting each other.
//!
//! ```
//! use std::time::Duration;
//! use etcd_locked::{LockError, etcd_locked, testing};
//!
//! #[etcd_locked("orders/<id>", wait = "10s")]
//! async fn ship(id: u64) -> Result<&'static str, LockError> {
//!     Ok("shipped")
//! }
//!
//! # /*
//! #[tokio::test]
//! # */
//! async fn a_busy_order_is_not_shipped() -> Result<(), LockError> {
//!     let etcd = testing::start().await?;
//!     assert_eq!(ship(7).await?, "shipped");
//!
//!     let other = etcd.second().await?; // as if another process
//!     let held = other.lock("orders/7").await?;
//!     let (shipped, ()) = tokio::join!(ship(7), etcd.advance(Duration::from_secs(10)));
//!     assert!(matches!(shipped, Err(LockError::Timeout { .. })));
//!
//!     etcd.lose("orders/7").await.expect("the other process holds it");
//!     assert!(!held.is_held());
//!     assert_eq!(ship(7).await?, "shipped");
//!     Ok(())
//! }
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
//! #     .block_on(a_busy_order_is_not_shipped()).unwrap();
//! ```
//!
//! # Time
//!
//! The engine, its timers and the leases in etcd share a test clock. It runs by itself, and [`advance`](Etcd::advance) moves it forward.
//! Code under test uses tokio's clock: `advance` does not move a `tokio::time::sleep` in a body. Do not pause tokio's clock
//! (`start_paused`). tokio would mistake the time in which it waits for the engine's thread for idle time, and skip over every time-out.
//!
//! # Which calls use it
//!
//! Calls on the thread that called [`start`]. Under `#[tokio::test]` these are all calls, including spawned tasks and `tokio::join!`. On
//! a multi-threaded runtime, run the calls in [`etcd.locks().scope(..)`](crate::Locks::scope), in spawned tasks too, or pass
//! [`Etcd::locks`] to them. While any kit is alive in the process, calls outside a kit's scope are refused with [`LockError::Config`] and
//! never reach a real etcd. So put tests of the process's own engine into a separate test target. [`advance`](Etcd::advance),
//! [`held`](Etcd::held) and [`waiting`](Etcd::waiting) wait only for tasks of their own thread.

use std::error::Error;
use std::fmt;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use crate::api::{DefaultGuard, KITS, Locks, Orders};
use crate::clock::Clock;
use crate::engine::{Engine, Names, Shared};
use crate::mutex::lock;
use crate::values::{Config, Connector, LockError, LockName, getters};

mod clock;
mod keys;
mod pulse;

use clock::TestClock;
use pulse::Pulse;

pub use etcd_locked_embedded::{Code, Fault};

/// Starts an etcd and an engine for one test, and makes the engine the default of the calling thread.
///
/// # Errors
/// [`LockError::Config`] if no thread can be started.
///
/// Cancel safe: dropping the future ends both.
pub async fn start() -> Result<Etcd, LockError> {
    start_with(|config| config).await
}

/// Like [`start`], with changes to the default configuration, such as `start_with(|config| config.ttl(Duration::from_secs(5)))`.
///
/// # Errors
/// [`LockError::Config`] if the configuration is wrong, or if no thread can be started. Cancel safe.
pub async fn start_with(configure: impl FnOnce(Config) -> Config) -> Result<Etcd, LockError> {
    let reserved = Arc::clone(&KITS);
    let clock = TestClock::default();
    let etcd = etcd_locked_embedded::Etcd::with_clock(Arc::new(clock.clone()));
    let link = etcd.link();
    // The kit decides where the client comes from, whatever the closure sets.
    let config = configure(Config::by(connector(&link)));
    let engines = Mutex::default();
    let locks = engine(&engines, &clock, &config, &link).await?;
    let (_default, _reserved) = (locks.set_default(), reserved);
    Ok(Etcd { _default, _reserved, locks, etcd, link, clock, config, engines })
}

/// An etcd and an engine inside the process, for one test; created by [`start`].
///
/// Dropping it ends both, and restores the thread's previous default engine. It cannot leave its thread. Its methods take `&self`, so
/// that `tokio::join!` can use it together with the functions under test.
#[derive(Debug)]
#[must_use = "dropping it ends the etcd and its engine"]
pub struct Etcd {
    /// Keeps it on its thread.
    _default: DefaultGuard,
    /// Keeps calls outside a kit's scope away from a real etcd.
    _reserved: Arc<()>,
    locks: Locks,
    etcd: etcd_locked_embedded::Etcd,
    /// Connection of the first engine, with the faults; the other engines have connections without faults.
    link: etcd_locked_embedded::Link,
    clock: TestClock,
    config: Config,
    engines: Mutex<Vec<Running>>,
}

/// An engine that the kit has started. It may have ended.
#[derive(Debug, Clone)]
struct Running {
    pulse: Arc<Pulse>,
    engine: Weak<Shared>,
    orders: Arc<Orders>,
}

/// Error of [`Etcd::lose`]: no call holds the lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotHeld {
    name: String,
    held: Vec<String>,
}

impl fmt::Display for NotHeld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.held.join("`, `") {
            "" => write!(f, "`{}` is not held, and nothing else is", self.name),
            held => write!(f, "`{}` is not held; these are: `{held}`", self.name),
        }
    }
}

impl Error for NotHeld {}

impl Etcd {
    getters! { self:
        /// The engine that annotated functions of this thread use.
        locks: &Locks = &self.locks;
    }

    /// Starts another engine on the same etcd, as if in another process, with its own leases and queues. The faults below apply only to
    /// the first engine's connection.
    ///
    /// # Errors
    /// [`LockError::Config`] if no thread can be started. Cancel safe.
    pub async fn second(&self) -> Result<Locks, LockError> {
        engine(&self.engines, &self.clock, &self.config, &self.etcd.link()).await
    }

    /// Returns a client of the same etcd, without faults, to act as a foreign process or operator. Its leases use the test clock.
    /// Cancel safe.
    #[cfg(feature = "etcd-client")]
    pub async fn client(&self) -> etcd_client::Client {
        self.etcd.client().await
    }

    /// Moves the test clock from timer to timer. On the way, everything happens that is due: renewals, time-outs, losses, and reactions
    /// to them in this thread's tasks. Calls made earlier have begun before the clock moves. `Duration::ZERO` runs only what can run now. Cancel safe:
    /// the clock stays where it is.
    pub async fn advance(&self, by: Duration) {
        self.settle().await;
        let end = self.clock.time() + by;
        while let Some(next) = self.clock.next().filter(|next| *next <= end) {
            self.clock.move_to(next);
            self.settle().await;
        }
        self.clock.move_to(end);
        self.settle().await;
    }

    /// Takes a lock away as an operator would, by deleting its key: the holder loses it, and the next waiter gets it.
    ///
    /// A holder that is cut off ([`partition`](Self::partition)) notices only after [`heal`](Self::heal).
    ///
    /// # Errors
    /// [`NotHeld`], which lists the locks that are held. Cancel safe, but the lock may be lost.
    pub async fn lose(&self, name: impl LockName) -> Result<(), NotHeld> {
        let name = name.lock_name();
        self.settle().await;
        let prefix = &self.config.prefix;
        let lost = name.text().is_some_and(|text| keys::delete_owner(&self.etcd, prefix, text));
        if !lost {
            let held = self.held().await;
            let name = name.text().unwrap_or("an invalid name").to_owned();
            return Err(NotHeld { name, held });
        }
        self.see().await;
        Ok(())
    }

    /// Revokes all leases in etcd, as an operator would. Every lock is lost; calls that wait take it under another lease. Cancel safe,
    /// but the locks may be lost.
    pub async fn revoke_all(&self) {
        self.settle().await;
        keys::revoke_all(&self.etcd);
        self.see().await;
    }

    /// Cuts the first engine off from etcd. Its requests hang, renewals too, and its locks are lost after the TTL.
    pub fn partition(&self) {
        self.link.cut();
    }

    /// Ends a [`partition`](Self::partition): delayed requests arrive, unless they were given up.
    pub fn heal(&self) {
        self.link.heal();
    }

    /// Stops responses to the first engine's renewals, and only these: its locks last until their lease is over.
    pub fn freeze_keepalives(&self) {
        self.link.freeze_keepalives(true);
    }

    /// Ends a [`freeze_keepalives`](Self::freeze_keepalives).
    pub fn thaw_keepalives(&self) {
        self.link.freeze_keepalives(false);
    }

    /// Delays everything between the first engine and etcd by this time in each direction, on the test clock. Initially zero.
    pub fn delay(&self, each_way: Duration) {
        self.link.delay(each_way);
    }

    /// Makes the first engine's next request fail in this way, whatever it requests. (Renewals and watches are streams and do not count.)
    /// Several faults apply to successive requests, in order.
    pub fn fail_next(&self, fault: Fault) {
        self.link.fail_next(fault);
    }

    /// Compacts etcd's history, as an operator or etcd's own timer would. Cancel safe.
    pub async fn compact(&self) {
        self.settle().await;
        keys::compact(&self.etcd);
        self.settle().await;
    }

    /// Allows functions of this test to take locks in opposite order on the engines started so far, as in production, where that is only
    /// a warning. Otherwise such a call is refused with [`LockError::OrderInversion`] before it can hang.
    pub fn allow_order_inversions(&self) {
        for engine in self.engines() {
            engine.orders.refuse(false);
        }
    }

    /// Returns the names that are held, sorted: by calls of the engines started here, by foreign clients, or by
    /// [`min_hold`](crate::Acquire::min_hold). Cancel safe.
    pub async fn held(&self) -> Vec<String> {
        self.names().await.held
    }

    /// Returns the names that are waited for, sorted, each once for every waiter: calls of the engines started here, also behind another
    /// call of the same process, and foreign clients. Cancel safe.
    pub async fn waiting(&self) -> Vec<String> {
        self.names().await.waiting
    }

    async fn names(&self) -> Names {
        self.settle().await;
        let mut names = keys::foreign(&self.etcd, &self.config.prefix);
        for engine in self.running() {
            let Names { held, waiting } = engine.names().await;
            names.held.extend(held);
            names.waiting.extend(waiting);
        }
        names.held.sort_unstable();
        names.waiting.sort_unstable();
        names
    }

    /// Makes all engines see what an operator did, and runs what follows from it.
    async fn see(&self) {
        self.running().for_each(|engine| engine.read_held());
        self.settle().await;
    }

    /// Runs everything that can run now, in the engines and in the tasks of this thread.
    async fn settle(&self) {
        // One engine or task may give work to another, so all must have been quiet twice in a row. The limit ends a test in which
        // something always happens.
        let mut quiet = 0;
        for _ in 0..ROUNDS {
            let asked = self.clock.asked();
            for engine in self.engines() {
                engine.pulse.idle().await;
            }
            for _ in 0..YIELDS {
                tokio::task::yield_now().await;
            }
            quiet = if self.clock.asked() == asked { quiet + 1 } else { 0 };
            if quiet == 2 {
                return;
            }
        }
    }

    fn running(&self) -> impl Iterator<Item = Engine> {
        self.engines().into_iter().filter_map(|running| running.engine.upgrade().map(Engine))
    }

    fn engines(&self) -> Vec<Running> {
        let mut engines = lock(&self.engines);
        engines.retain(|engine| !engine.pulse.has_ended());
        engines.clone()
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        // The engine releases its locks, and must not wait behind the test's faults.
        self.link.heal();
        self.link.freeze_keepalives(false);
        self.link.delay(Duration::ZERO);
    }
}

/// Maximum number of rounds in which all are checked for quiet.
const ROUNDS: usize = 200;

/// How often the thread's other tasks run in each round: one may wake the next.
const YIELDS: usize = 16;

async fn engine(
    engines: &Mutex<Vec<Running>>,
    clock: &TestClock,
    config: &Config,
    link: &etcd_locked_embedded::Link,
) -> Result<Locks, LockError> {
    let mut config = config.clone();
    config.endpoints.0.clear();
    config.connector = Some(connector(link));
    let pulse = Arc::new(Pulse::default());
    let clock: Arc<dyn Clock> = Arc::new(clock.clone());
    let beat = Arc::clone(&pulse);
    let locks = Locks::start_on(config, clock, move || beat.runtime())?;
    locks.orders.refuse(true);
    let running = Running {
        pulse,
        engine: Arc::downgrade(&locks.engine.0),
        orders: Arc::clone(&locks.orders),
    };
    lock(engines).push(running);
    locks.warmed().await
}

fn connector(link: &etcd_locked_embedded::Link) -> Connector {
    let link = link.clone();
    Connector::new("the test's etcd", move |_| {
        let link = link.clone();
        async move { link.client(None).await }
    })
}
