//! Tests of annotated functions: without a server, in milliseconds, and with whatever can happen to a lock.
//!
//! [`start`] starts an etcd in the process and an engine on it, for one test; annotated functions of the calling thread use
//! it, and the process's own engine is never touched. So tests run in parallel, each alone in the world.
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
//! The engine, its timers and the leases at etcd share a clock of the test's: it goes on by itself, and [`advance`](Etcd::advance)
//! moves it. Time in the functions under test is tokio's: `tokio::time::sleep` in a body is not moved. Do not pause it
//! (`start_paused`): tokio would take the time in which it waits for the engine's thread for idle, and leap over every time-out.
//!
//! # Which calls use it
//!
//! Those of the thread that called [`start`]: under `#[tokio::test]` all of them, spawned tasks and `tokio::join!` included. On a
//! multi-threaded runtime, run them in [`etcd.locks().scope(..)`](crate::Locks::scope), in spawned tasks too, or hand out
//! [`Etcd::locks`]. While any kit of the process lives, a call in no scope of a kit is refused with [`LockError::Config`] and never
//! reaches a real etcd, so tests of the process's own engine are a test target of their own. [`advance`](Etcd::advance),
//! [`held`](Etcd::held) and [`waiting`](Etcd::waiting) wait for tasks of their own thread only.

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
/// Cancel safe: dropped, it ends both.
pub async fn start() -> Result<Etcd, LockError> {
    start_with(|config| config).await
}

/// [`start`] with a configuration made from the default one, such as `start_with(|config| config.ttl(Duration::from_secs(5)))`.
///
/// # Errors
/// [`LockError::Config`] for what can be seen in the configuration, or if no thread can be started. Cancel safe.
pub async fn start_with(configure: impl FnOnce(Config) -> Config) -> Result<Etcd, LockError> {
    let reserved = Arc::clone(&KITS);
    let clock = TestClock::default();
    let etcd = etcd_locked_embedded::Etcd::with_clock(Arc::new(clock.clone()));
    let link = etcd.link();
    // Where the client comes from is the kit's to say, whatever the closure says.
    let config = configure(Config::by(connector(&link)));
    let engines = Mutex::default();
    let locks = engine(&engines, &clock, &config, &link).await?;
    let (_default, _reserved) = (locks.set_default(), reserved);
    Ok(Etcd { _default, _reserved, locks, etcd, link, clock, config, engines })
}

/// An etcd in the process and an engine on it, for one test; made by [`start`].
///
/// Dropped, it ends both, and what was the thread's default engine before is so again. Bound to its thread; its methods take
/// `&self`, so that `tokio::join!` may use it together with the functions under test.
#[derive(Debug)]
#[must_use = "dropped, it ends"]
pub struct Etcd {
    /// Keeps it on its thread.
    _default: DefaultGuard,
    /// Keeps calls that are in no scope of a kit away from a real etcd.
    _reserved: Arc<()>,
    locks: Locks,
    etcd: etcd_locked_embedded::Etcd,
    /// The way of the first engine; the others have ways without faults.
    link: etcd_locked_embedded::Link,
    clock: TestClock,
    config: Config,
    engines: Mutex<Vec<Running>>,
}

/// An engine that the kit has started, and that may have ended.
#[derive(Debug, Clone)]
struct Running {
    pulse: Arc<Pulse>,
    engine: Weak<Shared>,
    orders: Arc<Orders>,
}

/// No call holds the lock that was to be lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotHeld {
    name: String,
    held: Vec<String>,
}

impl fmt::Display for NotHeld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.held.join("`, `") {
            "" => write!(f, "`{}` is not held, and nothing else is", self.name),
            held => write!(f, "`{}` is not held; held is `{held}`", self.name),
        }
    }
}

impl Error for NotHeld {}

impl Etcd {
    getters! { self:
        /// The engine that annotated functions of this thread use.
        locks: &Locks = &self.locks;
    }

    /// Another engine on the same etcd, as if in another process, with leases and queues of its own. The faults below are
    /// those of the first one's connection: they do not reach it.
    ///
    /// # Errors
    /// [`LockError::Config`] if no thread can be started. Cancel safe.
    pub async fn second(&self) -> Result<Locks, LockError> {
        engine(&self.engines, &self.clock, &self.config, &self.etcd.link()).await
    }

    /// A client of the same etcd, without faults, to play a foreign process or an operator. Its leases go by the test's clock. Cancel safe.
    #[cfg(feature = "etcd-client")]
    pub async fn client(&self) -> etcd_client::Client {
        self.etcd.client().await
    }

    /// Moves the test's clock, from timer to timer, and lets everything happen on the way that would: renewals, time-outs, losses, and
    /// what the tasks of this thread make of them. Calls made before are under way when it begins. `Duration::ZERO` only lets happen
    /// what can happen now. Cancel safe: the clock stays where it is.
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

    /// Takes a lock away as an operator would, by deleting its key: its holder loses it, the next waiter has it.
    ///
    /// While its holder is cut off ([`partition`](Self::partition)) it learns nothing, and finds out once healed.
    ///
    /// # Errors
    /// [`NotHeld`], which lists what is held. Cancel safe, but the lock may be lost.
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

    /// Revokes all leases at etcd, as an operator would: every lock is lost, and taken anew under another lease by the calls that
    /// wait. Cancel safe, but they may be lost.
    pub async fn revoke_all(&self) {
        self.settle().await;
        keys::revoke_all(&self.etcd);
        self.see().await;
    }

    /// From now on nothing gets from the first engine to etcd or back: requests hang, renewals too, and after the TTL its
    /// locks are lost.
    pub fn partition(&self) {
        self.link.cut();
    }

    /// Ends a [`partition`](Self::partition): what was under way gets through, unless it has been given up.
    pub fn heal(&self) {
        self.link.heal();
    }

    /// From now on the first engine's renewals get no answer, though everything else does: its locks last until their lease
    /// is over.
    pub fn freeze_keepalives(&self) {
        self.link.freeze_keepalives(true);
    }

    /// Ends a [`freeze_keepalives`](Self::freeze_keepalives).
    pub fn thaw_keepalives(&self) {
        self.link.freeze_keepalives(false);
    }

    /// How long everything between the first engine and etcd takes from now on, each way, on the test's clock. Zero at first.
    pub fn delay(&self, each_way: Duration) {
        self.link.delay(each_way);
    }

    /// What happens to the first engine's next request, whatever it is about (renewals and watches are streams, and not
    /// counted). Several are used up in their order.
    pub fn fail_next(&self, fault: Fault) {
        self.link.fail_next(fault);
    }

    /// Compacts etcd's history up to now, as an operator or a timer of etcd's would. Cancel safe.
    pub async fn compact(&self) {
        self.settle().await;
        keys::compact(&self.etcd);
        self.settle().await;
    }

    /// Lets functions of this test take locks in opposite order on the engines there are now, as in production, where that is only a
    /// warning. Otherwise such a call is refused with [`LockError::OrderInversion`], before it ever hangs.
    pub fn allow_order_inversions(&self) {
        for engine in self.engines() {
            engine.orders.refuse(false);
        }
    }

    /// The names that are held, sorted: by calls of the engines started here, as they see it, and by foreign clients; and those that
    /// [`min_hold`](crate::Acquire::min_hold) keeps. Cancel safe.
    pub async fn held(&self) -> Vec<String> {
        self.names().await.held
    }

    /// The names that are waited for, sorted, each as often as it is: by calls of the engines started here, also behind
    /// another call of the same process, and by foreign clients. Cancel safe.
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

    /// Has all engines see what an operator did, and what comes of it happen.
    async fn see(&self) {
        self.running().for_each(|engine| engine.read_held());
        self.settle().await;
    }

    /// Lets everything happen that can happen now, in the engines and in the tasks of this thread.
    async fn settle(&self) {
        // What one does may give another something to do: all must have been quiet, twice in a row. A test in which
        // something always happens must end, too.
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
        // The engine gives back what it has; it need not wait for what the test has cut off.
        self.link.heal();
        self.link.freeze_keepalives(false);
        self.link.delay(Duration::ZERO);
    }
}

/// How often all are asked whether they are quiet.
const ROUNDS: usize = 200;

/// How often the thread's other tasks run each time: one may wake the next.
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
