//! Locks: handle to an engine, and the default engine of a scope or a thread.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Runtime;

use super::{Listing, Orders, Status};
use crate::clock::{BootClock, Clock};
use crate::engine::{Engine, runtime};
use crate::values::{Config, Drained, LockError, Queue};

tokio::task_local! {
    static SCOPE: Locks;
}

thread_local! {
    /// Engines of the live [`DefaultGuard`]s: the last one applies.
    static DEFAULTS: RefCell<Vec<Rc<Locks>>> = const { RefCell::new(Vec::new()) };
}

/// Handle to an engine: a thread with its own connection to etcd, leases and queues. [`connect`](Self::connect) starts one in addition to
/// the process's engine, which all annotated functions use by default.
///
/// Clones share the engine. When the last clone, `LockGuard` and pending call are gone, the engine releases its locks and ends.
#[derive(Debug, Clone)]
pub struct Locks {
    pub(crate) engine: Engine,
    pub(crate) orders: Arc<Orders>,
}

impl Locks {
    /// Starts an engine and waits until etcd has granted it a lease, so that a wrong endpoint, certificate or password fails at once.
    ///
    /// # Errors
    /// [`LockError::Config`] if the configuration is wrong; [`LockError::Backend`] or [`LockError::PermissionDenied`], within the connect
    /// time-out, if etcd cannot be reached or refuses. Cancel safe: dropping the future ends the engine.
    pub async fn connect(config: Config) -> Result<Self, LockError> {
        Self::connect_lazy(config)?.warmed().await
    }

    /// Starts an engine that connects on its first use. It has no lease before its first lock, so tools that only read, for example with
    /// [`list`](Self::list), leave nothing in etcd.
    ///
    /// # Errors
    /// [`LockError::Config`] if the configuration is wrong.
    pub fn connect_lazy(config: Config) -> Result<Self, LockError> {
        Self::start_on(config, Arc::new(BootClock), runtime)
    }

    /// Lists the names that begin with `below` (all names if it is empty), with their holders and waiters in all processes.
    ///
    /// ```no_run
    /// # async fn example(locks: &etcd_locked::Locks) -> Result<(), etcd_locked::LockError> {
    /// let mut names = locks.list("orders/");
    /// while let Some(queue) = names.next().await? {
    ///     println!("{}: {} waiting", queue.name(), queue.waiters().count());
    /// }
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn list(&self, below: &str) -> Listing {
        Listing::new(self.engine.clone(), below, below)
    }

    /// Reads the holders and waiters of one name; `None` if there are none. Write `name` as in etcd, without the prefix. The errors are
    /// those of [`Listing::next`]. Cancel safe.
    pub async fn queue(&self, name: &str) -> Result<Option<Queue>, LockError> {
        // Names below it are listed first; its own queue is the last.
        let mut names = Listing::new(self.engine.clone(), &[name, "/"].concat(), name);
        let mut found = None;
        while let Some(queue) = names.next().await? {
            found = Some(queue).filter(|queue| queue.name() == name);
        }
        Ok(found)
    }

    /// Returns a snapshot of this engine; see [`Status`]. It is cheap, does not block, and needs no runtime.
    #[must_use]
    pub fn status(&self) -> Status {
        Status::of(&self.engine)
    }

    pub(crate) async fn warmed(self) -> Result<Self, LockError> {
        self.engine.warm().await?;
        Ok(self)
    }

    /// Starts an engine with this clock, on a thread with this runtime.
    pub(crate) fn start_on(
        config: Config,
        clock: Arc<dyn Clock>,
        runtime: impl FnOnce() -> io::Result<Runtime> + Send + 'static,
    ) -> Result<Self, LockError> {
        Ok(Self { engine: Engine::start(config, clock, runtime)?, orders: Arc::default() })
    }

    /// Ends the engine. It refuses new locks with [`LockError::ShuttingDown`], except to tasks that already hold one. It waits up to
    /// `grace` for running bodies, cancels the rest, releases the keys and revokes the leases. Names that `min_hold` keeps stay locked in
    /// etcd. A body that does not end when cancelled keeps its lease, which then expires. Cancel safe: the shutdown continues.
    pub async fn shutdown(&self, grace: Duration) -> Drained {
        self.engine.shutdown(grace).await
    }

    /// Connects an etcd client to the same cluster (feature `etcd-client`), on separate connections: bulk traffic on a shared one would
    /// delay renewals. Call it on a tokio runtime, which drives the connections.
    ///
    /// The client uses one endpoint at a time, and switches to another when that connection is lost. Requests in flight then fail, and
    /// the caller must repeat them. The client stays with a member that is reachable but lacks a leader. (Of several `https` endpoints,
    /// etcd-client chooses one for each request, even one that is down.)
    ///
    /// # Errors
    /// [`LockError::Backend`] if the credentials are refused. Cancel safe.
    #[cfg(feature = "etcd-client")]
    pub async fn client(&self) -> Result<etcd_client::Client, LockError> {
        self.engine.client().await
    }

    /// Runs a future in which annotated functions and [`lock`](crate::lock()) use this engine.
    ///
    /// It takes precedence over the thread's default and the process's engine. Tasks spawned inside do not inherit it. Cancel safe like
    /// `future`.
    pub async fn scope<F: Future>(&self, future: F) -> F::Output {
        SCOPE.scope(self.clone(), future).await
    }

    /// Makes this engine the default of the calling thread until the guard is dropped. Tests of annotated functions on current-thread
    /// runtimes can then run in parallel, each on its own engine.
    #[must_use = "the default lasts as long as the guard"]
    pub fn set_default(&self) -> DefaultGuard {
        let locks = Rc::new(self.clone());
        DEFAULTS.with(|defaults| defaults.borrow_mut().push(locks.clone()));
        DefaultGuard(locks)
    }

    pub(crate) fn within(&self, f: impl FnOnce()) {
        SCOPE.sync_scope(self.clone(), f);
    }

    pub(crate) fn chosen() -> Option<Self> {
        if let Ok(locks) = SCOPE.try_with(Clone::clone) {
            return Some(locks);
        }
        // A thread that is ending may have lost its default.
        let last = DEFAULTS.try_with(|defaults| defaults.borrow().last().cloned());
        last.ok().flatten().map(|locks| Self::clone(&locks))
    }
}

/// Ends a [`Locks::set_default`] when dropped. The thread's default is then that of the newest live guard, whatever the order of drops.
#[derive(Debug)]
pub struct DefaultGuard(Rc<Locks>);

impl Drop for DefaultGuard {
    fn drop(&mut self) {
        // The engine's handle is dropped with the guard, outside the borrow: its drop may run code.
        let _ = DEFAULTS.try_with(|defaults| {
            defaults.borrow_mut().retain(|locks| !Rc::ptr_eq(locks, &self.0));
        });
    }
}
