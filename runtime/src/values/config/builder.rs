//! Config: where etcd is and how to lock by default.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use crate::values::{Wait, setters, shown};

#[cfg(feature = "tls")]
use super::credentials::Tls;
use super::{Connector, Credentials, Endpoints, Provider, Source, url};

/// How much of an error of the user's closure is shown, in characters.
const MESSAGE: usize = 200;

/// Where etcd is, who asks, and what locks do by default.
///
/// [`from_env`](Self::from_env) has the default of each setting, and its variable. The methods check nothing: [`init`](crate::init) and
/// [`Locks::connect`](crate::Locks::connect) do, and return [`LockError::Config`](crate::LockError::Config) with what to write instead.
#[derive(Clone, Debug)]
#[must_use]
pub struct Config {
    pub(crate) endpoints: Endpoints,
    pub(crate) connector: Option<Connector>,
    pub(crate) prefix: String,
    pub(crate) ttl: Duration,
    pub(crate) wait: Wait,
    pub(crate) service: String,
    pub(crate) source: Source,
    pub(crate) connect_timeout: Duration,
    pub(crate) max_waiters: Option<usize>,
    pub(crate) follow_members: bool,
    pub(crate) show_names: bool,
}

impl Config {
    /// etcd at these endpoints, everything else by default.
    ///
    /// An endpoint is `http://host:port`, `https://host:port` (feature `tls`) or `host:port`, which means `https` if `tls` is set and
    /// `http` otherwise; without a port, 2379. Name all members of the cluster, in any order: when one fails, the next is asked. An
    /// endpoint of another cluster than the others is refused: locks of two clusters do not exclude each other.
    pub fn new(endpoints: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self::at(Endpoints(endpoints.into_iter().map(Into::into).collect()), None)
    }

    /// Feature `etcd-client`: etcd as this closure reaches it, for what an endpoint cannot say: a proxy, a Unix socket, a TLS
    /// library of your own. Everything else by default.
    ///
    /// The closure is called when the first lock is taken, and again whenever the client before has failed. It is given the options of a
    /// client by endpoint. It may take [`connect_timeout`](Self::connect_timeout); its client is tried with one harmless request before it
    /// is used. It runs on the engine's thread, which renews the leases: it must not block, and tasks it spawns run there. (Only for
    /// [`Locks::client`](crate::Locks::client) it runs where that is awaited.)
    ///
    /// ```no_run
    /// # async fn start() -> Result<(), etcd_locked::LockError> {
    /// use etcd_locked::{Config, etcd_client::Client};
    ///
    /// let config = Config::connect_with(|options| Client::connect(["http://10.0.0.1:2379"], Some(options)));
    /// etcd_locked::init(config).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// An error of the closure is a [`LockError::Backend`](crate::LockError::Backend) that names `connect_with`; nothing was sent then.
    #[cfg(feature = "etcd-client")]
    pub fn connect_with<F, C>(connect: F) -> Self
    where
        F: Fn(etcd_client::ConnectOptions) -> C + Send + Sync + 'static,
        C: Future<Output = Result<etcd_client::Client, etcd_client::Error>> + Send + 'static,
    {
        Self::by(Connector::new("connect_with", connect))
    }

    /// A fresh etcd in the process (feature `embedded`), everything else by default: to run and to try out without a server.
    ///
    /// Each call makes one. Clones of the `Config` and all [`Locks`](crate::Locks) connected by them share it: calls of other processes
    /// are not excluded. It is gone with the last of them. [`user`](Self::user) and `tls` mean nothing to it.
    ///
    /// For tests there is the feature `testing`.
    #[cfg(feature = "embedded")]
    pub fn embedded() -> Self {
        Self::embedded_in(&etcd_locked_embedded::Etcd::new())
    }

    /// [`embedded`](Self::embedded) in an etcd of the caller's own (crate `etcd-locked-embedded`, in exactly the version of this one), who may
    /// serve it on TCP too, or read what is in it.
    #[cfg(feature = "embedded")]
    pub fn embedded_in(etcd: &etcd_locked_embedded::Etcd) -> Self {
        let etcd = etcd.clone();
        let mut connector = Connector::new("the embedded etcd", move |_| {
            let etcd = etcd.clone();
            async move { Ok(etcd.client().await) }
        });
        connector.is_at_hand = true;
        Self::by(connector)
    }

    #[cfg(any(feature = "embedded", feature = "etcd-client"))]
    pub(crate) fn by(connector: Connector) -> Self {
        Self::at(Endpoints::default(), Some(connector))
    }

    fn at(endpoints: Endpoints, connector: Option<Connector>) -> Self {
        Self {
            endpoints,
            connector,
            prefix: "locks/".into(),
            ttl: Duration::from_secs(30),
            wait: Wait::For(Duration::from_secs(10)),
            service: executable(),
            source: Source::default(),
            connect_timeout: Duration::from_secs(5),
            max_waiters: None,
            follow_members: false,
            show_names: false,
        }
    }

    setters! { self:
        /// What every key begins with: letters, digits, `._~:@=+-` and `/`, with a `/` at the end, at most 256 bytes. Processes exclude each
        /// other only if their prefixes are equal.
        prefix(prefix: impl Into<String>) { self.prefix = prefix.into(); }
        /// The lease's time to live, where the call gives none: see the option [`ttl`](crate::options#ttl).
        ttl(ttl: Duration) { self.ttl = ttl; }
        /// How long to queue for a lock, where the call does not say: see the option [`wait`](crate::options#wait).
        wait(wait: Duration) { self.wait = Wait::For(wait); }
        /// Queue for as long as others hold the lock.
        wait_forever() { self.wait = Wait::Forever; }
        /// Do not queue: a lock that is held answers [`LockError::Held`](crate::LockError::Held).
        try_once() { self.wait = Wait::Once; }
        /// How many calls may wait at a time in this process, on this engine, at least 1: one more is refused at once with
        /// [`LockError::Overloaded`](crate::LockError::Overloaded), so that a name that is held for long does not fill the process with
        /// requests that will all time out.
        ///
        /// A call waits from when it is awaited until it has its lock or is refused, whether for others or for etcd: leave room for those
        /// that begin within one round trip. A single try does not wait. A call of a task that holds a lock counts, but is not refused:
        /// others wait for that task.
        max_waiters(max: usize) { self.max_waiters = Some(max); }
        /// Whether to use the client URLs of the cluster's member list too, so that members may be replaced by others with new addresses
        /// while the process runs. Off by default, because many clusters advertise URLs that their clients cannot reach.
        ///
        /// The list is read every 15 seconds, and after an endpoint has failed. The configured endpoints stay in use. Of the members' URLs
        /// those are used that have the same scheme, and those on `localhost` only if the configuration names one too; learners and members
        /// of another cluster are left out. [`Locks::client`](crate::Locks::client) knows the configured endpoints only. It needs endpoints:
        /// [`connect_with`](Self::connect_with) and `embedded` refuse it.
        follow_members(follow: bool) { self.follow_members = follow; }
        /// Shows names themselves: in [spans](crate::telemetry#spans-and-traces), as `lock.name`, and in errors and log lines where a name has no
        /// template and is shown as `(run-time name)` otherwise. Off by default, because a name may have personal data in it.
        show_names(shown: bool) { self.show_names = shown; }
        /// How long opening a connection may take, TLS and authentication included; several endpoints share it, and each gets at most 2 s. 5 s
        /// by default.
        ///
        /// It is also how long a call waits for an etcd that cannot be reached: after about this time it is refused with
        /// [`LockError::Backend`](crate::LockError::Backend), whatever its wait.
        connect_timeout(timeout: Duration) { self.connect_timeout = timeout; }
        /// The service's name in the holder record, which says who holds a lock.
        service(service: impl Into<String>) { self.service = service.into(); }
        /// The etcd user to authenticate as. For a password that changes while the process runs: [`credentials`](Self::credentials).
        user(name: impl Into<String>, password: impl Into<String>) {
            self.source.files.user = None;
            self.source.configured = self.source.configured.user(name, password);
        }
        /// Certificates for `https` endpoints. For certificates that change while the process runs: [`credentials`](Self::credentials).
        #[cfg(feature = "tls")]
        tls(tls: Tls) {
            (self.source.files.authorities, self.source.files.identity) = (None, None);
            self.source.configured.tls = Some(tls);
        }
    }

    /// User, password and certificates as this closure has them at the time, for those that change while the process runs. What it leaves
    /// out is as [`user`](Self::user) and `tls` say.
    ///
    /// The closure is called for every new connection, and when etcd refuses a login: its credentials are then tried at once. Open
    /// connections go on, so held locks survive a change, if etcd takes the old credentials or the new ones at any time. Where it fails,
    /// returns incomplete certificates, or takes longer than half of [`connect_timeout`](Self::connect_timeout), the last good credentials
    /// stay in use, a warning says so (`credentials.unreadable`), and the next connection asks again. Where the first connection gets
    /// none, the call is refused with a retryable [`LockError::Backend`](crate::LockError::Backend).
    ///
    /// It runs on the engine's thread, which renews the leases: it must not block. It is dropped when it takes too long, and when the
    /// engine ends.
    ///
    /// ```no_run
    /// # async fn start() -> Result<(), etcd_locked::LockError> {
    /// use etcd_locked::{Config, Credentials};
    ///
    /// let config = Config::new(["http://10.0.0.1:2379"]).credentials(|| async {
    ///     let password = tokio::task::spawn_blocking(|| std::fs::read_to_string("/run/secrets/etcd"));
    ///     let password = password.await.map_err(std::io::Error::other)??;
    ///     Ok::<_, std::io::Error>(Credentials::new().user("shop", password.trim_end()))
    /// });
    /// etcd_locked::init(config).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// Endpoints must have their schemes. A client of [`Locks::client`](crate::Locks::client) keeps the credentials it was made with.
    pub fn credentials<F, C, E>(mut self, provide: F) -> Self
    where
        F: Fn() -> C + Send + Sync + 'static,
        C: Future<Output = Result<Credentials, E>> + Send + 'static,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        self.source.provider = Some(Provider(Arc::new(move || {
            let providing = provide();
            Box::pin(async move {
                let provided = providing.await;
                provided.map_err(|error| shown(&error.into().to_string(), MESSAGE))
            })
        })));
        self
    }

    pub(crate) fn urls(&self) -> Vec<String> {
        let scheme = if self.has_tls() { "https" } else { "http" };
        self.endpoints.0.iter().map(|endpoint| url(endpoint, scheme)).collect()
    }

    pub(super) fn has_tls(&self) -> bool {
        #[cfg(feature = "tls")]
        return self.source.configured.tls.is_some();
        #[cfg(not(feature = "tls"))]
        return false;
    }
}

fn executable() -> String {
    std::env::current_exe()
        .ok()
        .and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()))
        .unwrap_or_else(|| "unknown".into())
}
