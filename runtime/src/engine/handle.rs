//! Handle to an engine, and the engine's thread.
//!
//! The thread has a current-thread tokio runtime for all exchanges with etcd and for the timer, so a handler that blocks its executor
//! cannot delay the renewal of leases. The core itself runs on the thread that submits a command or an event: a caller runs it on its own
//! thread, for some microseconds (`runner.rs`). User futures only wait on channels, so they run on any executor.

use std::io;
use std::process;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::thread;
use std::time::Duration;

use etcd_locked_core::{Acquire, CallId, Key, LeaseId, Mode, NAMES, Release};
use tokio::runtime::{Handle, Runtime};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::driver::{Command, Driver, Message};
use super::ownership::{Answer, Ownership};
use super::registry::{Call, Registry};
use super::runner::Runner;
use crate::clock::{Alarm, Clock, Moment};
use crate::transport::client::Client;
use crate::transport::page::Page;
use crate::values::{Author, Config, Drained, LockError, Name, Wait};

/// Handle to an engine. Clones share it; when the last one is gone, the engine ends.
#[derive(Debug, Clone)]
pub(crate) struct Engine(pub(crate) Arc<Shared>);

/// An engine, while a handle exists.
#[derive(Debug)]
pub(crate) struct Shared {
    driver: Arc<Runner>,
    clock: Arc<dyn Clock>,
    /// The engine's client, while the engine runs.
    client: Weak<Client>,
    config: Config,
    author: Author,
    registry: Registry,
    /// A shutdown was requested.
    draining: AtomicBool,
    #[cfg(feature = "opentelemetry")]
    owners: super::owner::Owners,
    last_call: AtomicU64,
    /// Runtime of the engine's thread, for timers of callers without one.
    runtime: Handle,
    /// Process that has the engine's thread. A process forked from it does not.
    process: u32,
}

impl Shared {
    /// Returns the engine's client; `None` once the engine has ended.
    fn client(&self) -> Option<Arc<Client>> {
        if self.driver.has_ended() { None } else { self.client.upgrade() }
    }
}

/// Origin of a call.
pub(crate) struct Origin {
    pub(crate) call: CallId,
    /// Record for its keys in etcd.
    pub(crate) record: Arc<[u8]>,
    /// Path of the annotated function.
    pub(crate) function: Option<&'static str>,
}

/// Snapshot of an engine.
#[derive(Debug, Default)]
pub(crate) struct View {
    pub(crate) reachable: bool,
    pub(crate) draining: bool,
    pub(crate) leases: Vec<(LeaseId, Duration)>,
    pub(crate) calls: Vec<Arc<Call>>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        if self.process == process::id() {
            let (grace, reply) = (Duration::ZERO, None);
            self.driver.submit(Message::Command(Command::Shutdown { grace, reply }));
        }
    }
}

/// Creates the runtime of an engine's thread: a current-thread runtime, so that no handler delays it.
pub(crate) fn runtime() -> io::Result<Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

/// Starts the thread that awaits exchanges and submits ticks to the driver until the driver has ended.
fn time_keeper(
    alarm: Arc<Alarm>,
    driver: Arc<Runner>,
    runtime: impl FnOnce() -> io::Result<Runtime> + Send + 'static,
) -> io::Result<Handle> {
    let (started, start) = std::sync::mpsc::sync_channel(1);
    thread::Builder::new().name("etcd-locked".into()).spawn(move || {
        // Created where it will be dropped: dropping it on a caller's thread could panic, because that may be inside another runtime.
        let runtime = match runtime() {
            Ok(runtime) => runtime,
            Err(error) => return drop(started.send(Err(error))),
        };
        let _ = started.send(Ok(runtime.handle().clone())); // the caller waits for it
        runtime.block_on(async {
            alarm.rings().await;
            while driver.submit(Message::Time) {
                tokio::task::yield_now().await; // so that exchanges run, which a busy timer would delay
                alarm.rings().await;
            }
        });
    })?;
    start.recv().map_err(io::Error::other)?
}

impl Engine {
    /// Starts an engine with this clock, on a thread with the runtime that `runtime` creates. It connects on its first use.
    pub(crate) fn start(
        config: Config,
        clock: Arc<dyn Clock>,
        runtime: impl FnOnce() -> io::Result<Runtime> + Send + 'static,
    ) -> Result<Self, LockError> {
        config.check().map_err(LockError::config)?;
        let alarm = Arc::new(Alarm::new(clock.clone()));
        let driver = Arc::new(Runner::new(clock.clone(), Arc::clone(&alarm)));
        let client = Client::new(&config, clock.clone())
            .map_err(|wrong| LockError::config(format!("the engine cannot start: {wrong}")))?;
        let runtime =
            time_keeper(Arc::clone(&alarm), Arc::clone(&driver), runtime).map_err(|error| {
                LockError::config(format!("the engine's thread cannot start: {error}"))
            })?;
        let shared = Arc::new(Shared {
            driver: Arc::clone(&driver),
            clock: clock.clone(),
            client: Arc::downgrade(&client),
            #[cfg(feature = "opentelemetry")]
            owners: super::owner::Owners::new(Arc::downgrade(&client), clock.clone()),
            author: Author::here(&host(), &config.service),
            registry: Registry::default(),
            draining: AtomicBool::new(false),
            last_call: AtomicU64::new(0),
            runtime: runtime.clone(),
            process: process::id(),
            config,
        });
        let on = (runtime, alarm);
        let itself = Arc::downgrade(&driver);
        driver.begin(Driver::new(&shared.config, clock, client, on, itself));
        Ok(Self(shared))
    }

    pub(crate) fn config(&self) -> &Config {
        &self.0.config
    }

    pub(crate) fn author(&self) -> &Author {
        &self.0.author
    }

    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(crate) fn now(&self) -> Moment {
        self.0.clock.now()
    }

    /// Starts a timer on the engine's thread that rings at or after `when`, for any task to await; an error if the engine has ended. The
    /// timer runs until it is aborted.
    pub(crate) fn alarm(&self, when: Moment) -> JoinHandle<()> {
        let clock = self.0.clock.clone();
        let rings = async move {
            while clock.now() < when {
                clock.sleep_until(when).await;
            }
        };
        self.0.runtime.spawn(rings)
    }

    /// Opens a session with the default TTL.
    pub(crate) async fn warm(&self) -> Result<(), LockError> {
        let (reply, answer) = oneshot::channel();
        let (call, ttl_secs) = (self.new_call(), whole_secs(self.0.config.ttl));
        self.submit(Command::Warm { call, ttl_secs, reply })?;
        answer.await.unwrap_or_else(|_| Err(self.ended()))
    }

    /// Queues a call for these locks, as one group (rule P13): each name once, from one to [`NAMES`] names. `holds` lists the calls whose
    /// locks the calling task holds.
    pub(crate) fn acquire(
        &self,
        names: &[(Name, Key)],
        ttl: Duration,
        mode: Mode,
        wait: Wait,
        origin: Origin,
        holds: Vec<CallId>,
    ) -> Result<(Arc<Call>, oneshot::Receiver<Answer>), LockError> {
        if names.len() > NAMES {
            return Err(LockError::config(format!(
                "a call names {} locks: at most {NAMES} are possible, because one transaction takes them",
                names.len()
            )));
        }
        let keys = names.iter().map(|(_, key)| Key::clone(key)).collect();
        let call = Arc::new(Call {
            id: origin.call,
            function: origin.function,
            queued: self.now(),
            mode,
            names: names.iter().map(|(name, _)| name.clone()).collect(),
            held: OnceLock::new(),
        });
        let acquire = Acquire {
            call: call.id,
            names: keys,
            ttl_secs: whole_secs(ttl),
            mode,
            wait,
            record: origin.record,
            holds,
        };
        let (reply, answer) = oneshot::channel();
        self.submit(Command::Acquire { acquire, names: Arc::clone(&call.names), reply })?;
        self.0.registry.enter(Arc::clone(&call));
        Ok((call, answer))
    }

    /// Returns true in the process that started the engine. In a forked process, a thread that is missing may have locked any mutex.
    fn is_here(&self) -> bool {
        self.0.process == process::id()
    }

    /// Records that a call no longer waits, and holds nothing.
    pub(crate) fn note_end(&self, call: CallId) {
        if self.is_here() {
            self.0.registry.leave(call);
        }
    }

    /// Releases locks; the channel receives etcd's confirmation. `None` if no confirmation was requested, or the engine has ended (the
    /// keys left then go with their lease) or belongs to another process.
    pub(crate) fn give_back(
        &self,
        mut ownership: Ownership,
        how: Release,
    ) -> Option<oneshot::Receiver<Result<(), LockError>>> {
        if let Some(call) = ownership.locks.call() {
            self.note_end(call);
        }
        ownership.release(how)
    }

    /// Returns a snapshot. If etcd has not responded for a while, the engine contacts it, for the next snapshot.
    pub(crate) fn view(&self) -> View {
        if !self.is_here() {
            return View::default();
        }
        let shared = &self.0;
        let client = shared.client();
        if let Some(client) = &client
            && client.reach.wants_asking()
        {
            let client = client.clone();
            shared.runtime.spawn(async move { client.inquire().await });
        }
        View {
            reachable: client.as_ref().is_some_and(|client| client.reach.is_reached()),
            draining: shared.draining.load(Ordering::Acquire),
            leases: client.map(|client| client.renewals.live()).unwrap_or_default(),
            calls: shared.registry.calls(),
        }
    }

    pub(crate) fn cancel(&self, call: CallId) {
        let _ = self.submit(Command::Cancel(call)); // an engine that has ended has nothing to cancel
    }

    /// Keeps the names of a granted call locked until then, even if it is released earlier (rule P39).
    pub(crate) fn keep(&self, call: CallId, until: Moment) {
        let _ = self.submit(Command::Keep { call, until }); // an engine that has ended has nothing to keep
    }

    /// Ends the engine at once, without a report.
    pub(crate) fn end(&self) {
        self.0.draining.store(true, Ordering::Release);
        let (grace, reply) = (Duration::ZERO, None);
        let _ = self.submit(Command::Shutdown { grace, reply }); // it may have ended already
    }

    pub(crate) async fn shutdown(&self, grace: Duration) -> Drained {
        self.0.draining.store(true, Ordering::Release);
        let (reply, answer) = oneshot::channel();
        // An engine that has already ended has nothing left to end.
        match self.submit(Command::Shutdown { grace, reply: Some(reply) }) {
            Ok(()) => answer.await.unwrap_or_default(),
            Err(_) => Drained::default(),
        }
    }

    /// Creates an etcd client with its own connections, driven by the caller's runtime.
    #[cfg(feature = "etcd-client")]
    pub(crate) async fn client(&self) -> Result<etcd_client::Client, LockError> {
        let client =
            Client::new(&self.0.config, self.0.clock.clone()).map_err(LockError::config)?;
        client.for_user().await.map_err(|failure| LockError::Backend { source: failure.cause() })
    }

    /// Reads one page of the keys from `from` to `end`, on the engine's connections.
    pub(crate) async fn page(
        &self,
        from: &[u8],
        end: &[u8],
        at: Option<i64>,
    ) -> Result<Page, LockError> {
        self.must_be_here()?;
        let client = self.0.client().ok_or_else(|| self.ended())?;
        let (from, end) = (from.to_vec(), end.to_vec());
        // Connections are opened on the runtime that is to drive them.
        let read = async move { client.page(&from, &end, at).await };
        match self.0.runtime.spawn(read).await {
            Ok(page) => page.map_err(|failure| LockError::Backend { source: failure.cause() }),
            Err(_) => Err(self.ended()),
        }
    }

    /// Tells a waiter within about a second who owns a name (given with its prefix), if the waiter still exists.
    #[cfg(feature = "opentelemetry")]
    pub(crate) fn show_owner(&self, name: &Key, waiter: std::sync::Weak<dyn super::owner::Waiter>) {
        self.0.owners.show(&self.0.runtime, name, waiter);
    }

    pub(crate) fn new_call(&self) -> CallId {
        CallId(self.0.last_call.fetch_add(1, Ordering::Relaxed))
    }

    /// Submits a command. Fails if the engine has ended or runs in another process, where nothing would ever reply.
    pub(super) fn submit(&self, command: Command) -> Result<(), LockError> {
        self.must_be_here()?;
        let accepted = self.0.driver.submit(Message::Command(command));
        accepted.then_some(()).ok_or_else(|| self.ended())
    }

    /// Returns the reason why the engine does not reply.
    pub(crate) fn ended(&self) -> LockError {
        match self.must_be_here() {
            Err(elsewhere) => elsewhere,
            Ok(()) if self.0.draining.load(Ordering::Acquire) => LockError::ShuttingDown,
            Ok(()) => LockError::RuntimeEnded { what: ENDED },
        }
    }

    fn must_be_here(&self) -> Result<(), LockError> {
        if self.is_here() {
            return Ok(());
        }
        let starter = self.0.process;
        let reason = format!(
            "this process was forked from process {starter}, whose connection to etcd it cannot use: fork before the first lock, or \
             let the new process `exec` a program"
        );
        Err(LockError::NotInitialized { reason })
    }
}

const ENDED: &str =
    "the engine has ended by a panic, which is a bug: report it with the log lines before this";

/// Returns the machine's name, for holder records.
#[cfg(unix)]
fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Returns the machine's name, which Windows sets in each process's environment.
#[cfg(not(unix))]
fn host() -> String {
    std::env::var("COMPUTERNAME").unwrap_or_default()
}

/// Rounds up to whole seconds, the unit of TTLs in etcd.
pub(super) fn whole_secs(ttl: Duration) -> i64 {
    i64::try_from(ttl.as_millis().div_ceil(1000)).unwrap_or(i64::MAX)
}
