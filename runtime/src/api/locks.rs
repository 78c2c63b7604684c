//! Locks: an engine of one's own, and the engine of a scope or a thread.

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
    /// The engines of the live [`DefaultGuard`]s: the last one counts.
    static DEFAULTS: RefCell<Vec<Rc<Locks>>> = const { RefCell::new(Vec::new()) };
}

/// An engine of one's own, next to the one all annotated functions of the process share: its own connection, leases and
/// queues on a thread of its own.
///
/// Clones share the engine. When the last clone, `LockGuard` and pending call are gone it releases what it has and ends.
#[derive(Debug, Clone)]
pub struct Locks {
    pub(crate) engine: Engine,
    pub(crate) orders: Arc<Orders>,
}

impl Locks {
    /// Starts an engine and waits until etcd has granted it a lease, so that a bad endpoint, certificate or password is found now.
    ///
    /// # Errors
    /// [`LockError::Config`] for what can be seen in the configuration; [`LockError::Backend`] or [`LockError::PermissionDenied`] within
    /// the connect time-out for what etcd says. Cancel safe: dropped, it ends the engine.
    pub async fn connect(config: Config) -> Result<Self, LockError> {
        Self::connect_lazy(config)?.warmed().await
    }

    /// Starts an engine that connects when it is first used. Until its first lock it has no lease, and leaves nothing in etcd: for
    /// tools that only read, such as [`list`](Self::list).
    ///
    /// # Errors
    /// [`LockError::Config`] for what can be seen in the configuration.
    pub fn connect_lazy(config: Config) -> Result<Self, LockError> {
        Self::start_on(config, Arc::new(BootClock), runtime)
    }

    /// Lists the names that begin with `below` (all, if that is empty), with their holders and waiters in all processes.
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

    /// Reads who holds one name and who waits for it; `None` if no process does. `name`: as it stands in etcd, without the prefix.
    /// Errors are those of [`Listing::next`]. Cancel safe.
    pub async fn queue(&self, name: &str) -> Result<Option<Queue>, LockError> {
        // What is below the name comes with it: its own queue is the last.
        let mut names = Listing::new(self.engine.clone(), &[name, "/"].concat(), name);
        let mut found = None;
        while let Some(queue) = names.next().await? {
            found = Some(queue).filter(|queue| queue.name() == name);
        }
        Ok(found)
    }

    /// Shows what this engine is at the moment; see [`Status`]. Cheap, blocks no one, and needs no runtime.
    #[must_use]
    pub fn status(&self) -> Status {
        Status::of(&self.engine)
    }

    pub(crate) async fn warmed(self) -> Result<Self, LockError> {
        self.engine.warm().await?;
        Ok(self)
    }

    /// Starts an engine that goes by this clock, on a thread with this runtime.
    pub(crate) fn start_on(
        config: Config,
        clock: Arc<dyn Clock>,
        runtime: impl FnOnce() -> io::Result<Runtime> + Send + 'static,
    ) -> Result<Self, LockError> {
        Ok(Self { engine: Engine::start(config, clock, runtime)?, orders: Arc::default() })
    }

    /// Ends the engine: refuses new locks with [`LockError::ShuttingDown`] (but admits those of tasks that hold one), waits up to `grace`
    /// for the bodies that run, cancels the rest, releases the keys, revokes the leases. etcd takes over what `min_hold` keeps. A body
    /// that does not end when cancelled leaves its lease to run out. Cancel safe: the shutdown goes on.
    pub async fn shutdown(&self, grace: Duration) -> Drained {
        self.engine.shutdown(grace).await
    }

    /// Feature `etcd-client`: an etcd client to the same cluster, on connections of its own: bulk traffic on a shared one would
    /// delay renewals. Call it on a tokio runtime, which carries the connections.
    ///
    /// It talks to one endpoint at a time, and to another one when that connection is gone: calls that are under way then fail, and are
    /// the caller's to repeat. It stays with a member that can be reached and has no leader. (Of several `https` endpoints etcd-client
    /// chooses one for each call, also one that is down.)
    ///
    /// # Errors
    /// [`LockError::Backend`] if the credentials are refused. Cancel safe.
    #[cfg(feature = "etcd-client")]
    pub async fn client(&self) -> Result<etcd_client::Client, LockError> {
        self.engine.client().await
    }

    /// Runs a future in which annotated functions and [`lock`](crate::lock()) use this engine.
    ///
    /// It goes before the thread's default and the process's engine. Tasks spawned inside do not inherit it. Cancel safe as far
    /// as `future` is.
    pub async fn scope<F: Future>(&self, future: F) -> F::Output {
        SCOPE.scope(self.clone(), future).await
    }

    /// Makes this engine the default of the calling thread until the guard is dropped: tests of annotated functions, each
    /// on a current-thread runtime, run in parallel, each on its own engine.
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
        // The thread may be ending: then it has no default any more.
        let last = DEFAULTS.try_with(|defaults| defaults.borrow().last().cloned());
        last.ok().flatten().map(|locks| Self::clone(&locks))
    }
}

/// Ends a [`Locks::set_default`] when dropped; then the thread's default is that of the last such guard that still lives, in
/// whatever order they go.
#[derive(Debug)]
pub struct DefaultGuard(Rc<Locks>);

impl Drop for DefaultGuard {
    fn drop(&mut self) {
        // The engine's handle goes with the guard, outside the borrow: its drop may run code.
        let _ = DEFAULTS.try_with(|defaults| {
            defaults.borrow_mut().retain(|locks| !Rc::ptr_eq(locks, &self.0));
        });
    }
}
