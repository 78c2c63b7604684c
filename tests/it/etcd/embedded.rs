//! Embedded etcd of the tests: engines of this process reach it in memory, all other clients over TCP.

use std::net::TcpListener;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use etcd_locked::Config;
use etcd_locked_devkit::{Direction, Proxy};
use etcd_locked_embedded::store::Store;
use etcd_locked_embedded::{Clock, Etcd, Link, Monotonic};
use tokio::runtime::Builder;
use tokio::sync::oneshot;

/// One etcd: a link for engines and a port for all other clients. A fault kills or freezes both.
#[derive(Debug)]
pub(crate) struct Member {
    clock: Monotonic,
    etcd: Etcd,
    link: Link,
    port: Proxy,
    /// Data on disk while it is dead.
    kept: Mutex<Option<Store>>,
    /// True if no test kills or freezes it. Then engines reach it as with `Config::embedded`.
    unharmed: bool,
    /// Ends the server when dropped.
    _server: oneshot::Sender<()>,
}

impl Member {
    pub(crate) fn start() -> Box<Member> {
        let clock = Monotonic::new();
        let etcd = Etcd::with_clock(Arc::new(clock));
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = Proxy::start(listener.local_addr().expect("an address").to_string());
        let (server, ended) = oneshot::channel();
        let served = etcd.clone();
        // A separate thread, because the shared etcd outlives the test that started it.
        thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                listener.set_nonblocking(true).expect("a socket");
                let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
                tokio::select! {
                    served = served.serve(listener) => panic!("an embedded etcd ended: {served:?}"),
                    _ = ended => {}
                }
            });
        });
        Box::new(Member {
            clock,
            link: etcd.link(),
            etcd,
            port: port.expect("a proxy"),
            kept: Mutex::default(),
            unharmed: false,
            _server: server,
        })
    }

    /// Marks the member as one that no test kills or freezes.
    pub(crate) fn unharmed(mut self: Box<Self>) -> Box<Self> {
        self.unharmed = true;
        self
    }

    pub(crate) fn address(&self) -> String {
        self.port.address().to_string()
    }

    /// Returns a configuration that reaches it in memory.
    pub(crate) fn config(&self) -> Config {
        if self.unharmed {
            return Config::embedded_in(&self.etcd);
        }
        let link = self.link.clone();
        Config::connect_with(move |options| {
            let link = link.clone();
            async move { link.client(Some(options)).await }
        })
    }

    pub(crate) fn kill(&self) {
        self.link.down();
        self.port.refuse();
        self.port.reset_all();
        let kept = self.etcd.with_store(|store| store.clone());
        self.keep(Some(kept));
    }

    /// Starts it with its data. All leases have their full time again, as under a new leader.
    pub(crate) fn start_again(&self) {
        if let Some(mut kept) = self.keep(None) {
            kept.promote(self.clock.now());
            self.etcd.with_store(|store| *store = kept);
        }
        self.port.accept_again().expect("the port of an embedded etcd");
        self.link.up();
    }

    /// Deletes the data of a dead one. Lease ids differ from those before.
    pub(crate) fn wipe(&self) {
        self.keep(Some(Etcd::new().with_store(|store| store.clone())));
    }

    /// Replaces the data on disk; returns the old data.
    fn keep(&self, kept: Option<Store>) -> Option<Store> {
        std::mem::replace(&mut self.kept.lock().unwrap_or_else(PoisonError::into_inner), kept)
    }

    pub(crate) fn stop(&self) {
        self.link.cut();
        self.port.freeze(Direction::Requests);
        self.port.freeze(Direction::Answers);
    }

    pub(crate) fn cont(&self) {
        self.port.thaw();
        self.link.heal();
    }
}
