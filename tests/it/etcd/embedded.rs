//! Embedded etcd of the tests: engines of this process reach it in memory, all other clients over TCP.

use std::net::TcpListener;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use etcd_locked::Config;
use etcd_locked_devkit::until;
use etcd_locked_embedded::store::Store;
use etcd_locked_embedded::{Clock, Etcd, Link, Monotonic};
use tokio::runtime::Builder;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::free_port;

/// One member, reached in memory and by a port; while it is dead, both are closed.
#[derive(Debug)]
pub(crate) struct Member {
    cluster: Arc<Mutex<Cluster>>,
    port: u16,
    /// The link of the last start, from which clients are made.
    link: Arc<Mutex<Link>>,
    /// `None`: it is dead.
    server: Option<Server>,
    /// True if no test kills or freezes it, so that engines reach it as by `Config::embedded`.
    unharmed: bool,
}

/// The state that members share: one store behind several ports. Clients of a cluster that agrees see no more than that, and
/// no test here is about how members agree.
#[derive(Debug)]
struct Cluster {
    clock: Monotonic,
    etcd: Etcd,
    /// The ports of the living members; the first leads.
    alive: Vec<u16>,
    /// The data on disk while no member lives.
    kept: Store,
}

impl Cluster {
    fn new() -> Arc<Mutex<Self>> {
        let clock = Monotonic::new();
        Arc::new(Mutex::new(Self {
            clock,
            etcd: Etcd::with_clock(Arc::new(clock)),
            alive: Vec::new(),
            kept: Store::new(),
        }))
    }

    fn join(&mut self, port: u16) {
        if self.alive.is_empty() {
            // Another process than before, with its data.
            self.etcd = Etcd::with_clock(Arc::new(self.clock));
            let kept = self.kept.clone();
            self.etcd.with_store(|store| *store = kept);
            self.lead();
        }
        self.alive.push(port);
    }

    fn leave(&mut self, port: u16) {
        let led = self.alive.first() == Some(&port);
        self.alive.retain(|other| *other != port);
        if self.alive.is_empty() {
            self.kept = self.etcd.with_store(|store| store.clone());
        } else if led {
            self.lead();
        }
    }

    /// Elects a new leader, which gives all leases their full time again.
    fn lead(&self) {
        let now = self.clock.now();
        self.etcd.with_store(|store| store.promote(now));
    }
}

impl Member {
    /// Starts a member that is its own cluster.
    pub(crate) fn start() -> Member {
        Self::of(&Cluster::new())
    }

    /// Starts a cluster of this many members.
    pub(crate) fn start_cluster(size: usize) -> Vec<Member> {
        let cluster = Cluster::new();
        (0..size).map(|_| Self::of(&cluster)).collect()
    }

    fn of(cluster: &Arc<Mutex<Cluster>>) -> Member {
        let link = lock(cluster).etcd.link();
        let mut member = Member {
            cluster: Arc::clone(cluster),
            port: 0,
            link: Arc::new(Mutex::new(link)),
            server: None,
            unharmed: false,
        };
        for _ in 0..5 {
            member.port = free_port();
            if member.begin() {
                return member;
            }
        }
        panic!("there is no free port for an embedded etcd");
    }

    /// Starts the server; false if the port is taken.
    fn begin(&mut self) -> bool {
        let Ok(listener) = TcpListener::bind(("127.0.0.1", self.port)) else {
            return false;
        };
        let mut cluster = lock(&self.cluster);
        cluster.join(self.port);
        *lock(&self.link) = cluster.etcd.link();
        self.server = Some(Server::start(cluster.etcd.clone(), listener));
        true
    }

    /// Marks the member as one that no test kills or freezes.
    pub(crate) fn unharmed(mut self) -> Member {
        self.unharmed = true;
        self
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Returns a configuration in memory; a new client reaches the etcd that runs now, as it would by a port.
    pub(crate) fn config(&self) -> Config {
        if self.unharmed {
            return Config::embedded_in(&lock(&self.cluster).etcd);
        }
        let link = Arc::clone(&self.link);
        Config::connect_with(move |options| {
            let link = lock(&link).clone();
            async move { link.client(Some(options)).await }
        })
    }

    pub(crate) fn leads(&self) -> bool {
        lock(&self.cluster).alive.first() == Some(&self.port)
    }

    pub(crate) fn kill(&mut self) {
        if let Some(server) = self.server.take() {
            lock(&self.link).down();
            drop(server);
            lock(&self.cluster).leave(self.port);
        }
    }

    pub(crate) fn start_again(&mut self) {
        self.kill();
        // A child that another thread forks while it listened has the listener too, until its exec.
        let bound = until("the port", Duration::from_secs(5), || self.begin());
        bound.expect("the port of an embedded etcd");
    }

    pub(crate) fn wipe(&mut self) {
        assert!(self.server.is_none(), "a running etcd cannot be wiped");
        // A new etcd, so that lease ids differ from those before the wipe.
        lock(&self.cluster).kept = Etcd::new().with_store(|store| store.clone());
    }

    pub(crate) fn stop(&self) {
        lock(&self.link).cut();
        self.server.as_ref().expect("it runs").freeze();
    }

    pub(crate) fn cont(&self) {
        self.server.as_ref().expect("it runs").thaw();
        lock(&self.link).heal();
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Server of an etcd on TCP until dropped. It has a thread of its own, because it outlives the test that started it.
#[derive(Debug)]
struct Server {
    /// `None` once the server is to end.
    freezes: Option<UnboundedSender<Freeze>>,
    thread: Option<JoinHandle<()>>,
    /// `Some` while the server is frozen; dropping it thaws the server.
    thaw: Mutex<Option<mpsc::Sender<()>>>,
}

/// Request to block the server's thread, and so the whole server, until the other end of `thaw` is dropped.
struct Freeze {
    frozen: mpsc::Sender<()>,
    thaw: mpsc::Receiver<()>,
}

impl Server {
    fn start(etcd: Etcd, listener: TcpListener) -> Self {
        let (freezes, mut wanted) = unbounded_channel::<Freeze>();
        let serve = async move {
            listener.set_nonblocking(true).expect("a socket");
            let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
            let freezing = async {
                while let Some(freeze) = wanted.recv().await {
                    let _ = freeze.frozen.send(());
                    let _ = freeze.thaw.recv();
                }
            };
            tokio::select! {
                served = etcd.serve(listener) => panic!("an embedded etcd ended: {served:?}"),
                () = freezing => {}
            }
        };
        let thread = thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(serve);
        });
        Self { freezes: Some(freezes), thread: Some(thread), thaw: Mutex::default() }
    }

    fn freeze(&self) {
        let ((frozen, done), (hold, thaw)) = (mpsc::channel(), mpsc::channel());
        let freezes = self.freezes.as_ref().expect("it runs");
        let sent = freezes.send(Freeze { frozen, thaw });
        sent.ok().and_then(|()| done.recv().ok()).expect("it listens");
        *lock(&self.thaw) = Some(hold);
    }

    fn thaw(&self) {
        lock(&self.thaw).take();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.thaw();
        self.freezes.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
