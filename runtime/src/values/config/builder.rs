//! Config: where etcd is, and the defaults for locks.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use crate::values::{Wait, setters, shown};

#[cfg(feature = "tls")]
use super::credentials::Tls;
use super::{Connector, Credentials, Endpoints, Provider, Source, url};

/// Length to which an error of the user's closure is cut, in characters.
const MESSAGE: usize = 200;

/// Where etcd is, how to log in, and the defaults for locks.
///
/// [`from_env`](Self::from_env) lists the default of each setting, and its variable. The methods check nothing. [`init`](crate::init) and
/// [`Locks::connect`](crate::Locks::connect) do, and return a [`LockError::Config`](crate::LockError::Config) that says what to write
/// instead.
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
    /// Creates a configuration for an etcd at these endpoints, with defaults for everything else.
    ///
    /// An endpoint is `http://host:port`, `https://host:port` (feature `tls`) or `host:port`, which means `https` if `tls` is set and
    /// `http` otherwise. The default port is 2379. Name all members of the cluster, in any order: when one fails, the engine uses the
    /// next. An endpoint of another cluster is refused, because locks of two clusters do not exclude each other.
    pub fn new(endpoints: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self::at(Endpoints(endpoints.into_iter().map(Into::into).collect()), None)
    }

    /// Creates a configuration for an etcd that this closure connects to, with defaults for everything else (feature `etcd-client`). It
    /// is for what an endpoint cannot express: a proxy, a Unix socket, another TLS library.
    ///
    /// The closure is called for the first lock, and again whenever the last client has failed. It receives the options that clients by
    /// endpoint get, and may take up to [`connect_timeout`](Self::connect_timeout). Its client is tried with one harmless request before
    /// it is used. The closure runs on the engine's thread, which renews the leases: it must not block, and tasks that it spawns run
    /// there. (Only for [`Locks::client`](crate::Locks::client) it runs where that is awaited.)
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
    /// If the closure fails, nothing is sent, and a [`LockError::Backend`](crate::LockError::Backend) names `connect_with`.
    #[cfg(feature = "etcd-client")]
    pub fn connect_with<F, C>(connect: F) -> Self
    where
        F: Fn(etcd_client::ConnectOptions) -> C + Send + Sync + 'static,
        C: Future<Output = Result<etcd_client::Client, etcd_client::Error>> + Send + 'static,
    {
        Self::by(Connector::new("connect_with", connect))
    }

    /// Creates a configuration for a new etcd inside this process, with defaults for everything else (feature `embedded`), to run without
    /// a server.
    ///
    /// Each call creates a separate etcd. Clones of the `Config`, and all [`Locks`](crate::Locks) connected with them, share it; calls of
    /// other processes are not excluded. It ends with the last of them. [`user`](Self::user) and `tls` have no effect on it. For tests,
    /// use the feature `testing`.
    #[cfg(feature = "embedded")]
    pub fn embedded() -> Self {
        Self::embedded_in(&etcd_locked_embedded::Etcd::new())
    }

    /// Like [`embedded`](Self::embedded), in an etcd that the caller created (crate `etcd-locked-embedded`, in exactly the version of
    /// this one). The caller may also serve it on TCP, or read its contents.
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
        /// Sets the beginning of every key: letters, digits, `._~:@=+-` and `/`, with a `/` at the end, at most 256 bytes. Processes
        /// exclude each other only if their prefixes are equal.
        prefix(prefix: impl Into<String>) { self.prefix = prefix.into(); }
        /// Sets the lease's time to live for calls that do not set it: see the option [`ttl`](crate::options#ttl).
        ttl(ttl: Duration) { self.ttl = ttl; }
        /// Sets how long calls queue that do not set it: see the option [`wait`](crate::options#wait).
        wait(wait: Duration) { self.wait = Wait::For(wait); }
        /// Makes calls queue for as long as others hold the lock.
        wait_forever() { self.wait = Wait::Forever; }
        /// Makes calls try only once: if the lock is held, they return [`LockError::Held`](crate::LockError::Held).
        try_once() { self.wait = Wait::Once; }
        /// Sets how many calls may wait at a time on this engine, at least 1. One more call is refused at once with
        /// [`LockError::Overloaded`](crate::LockError::Overloaded), so that a lock that is held for long does not fill the process with
        /// requests that will all time out.
        ///
        /// A call waits from when it is awaited until it is granted or refused, whether for other holders or for etcd. So leave room for
        /// calls that begin within one round trip. A single try does not wait. Calls of a task that holds a lock count, but are never
        /// refused, because others wait for that task.
        max_waiters(max: usize) { self.max_waiters = Some(max); }
        /// Sets whether the client URLs of the cluster's member list are used too, so that members can be replaced by new addresses while
        /// the process runs. Off by default, because many clusters advertise URLs that their clients cannot reach.
        ///
        /// The list is read every 15 seconds, and after an endpoint has failed. The configured endpoints stay in use. Only member URLs
        /// with the same scheme are used, and those on `localhost` only if the configuration names one too. Learners and members of
        /// another cluster are skipped. [`Locks::client`](crate::Locks::client) uses only the configured endpoints.
        /// [`connect_with`](Self::connect_with) and `embedded` reject this setting.
        follow_members(follow: bool) { self.follow_members = follow; }
        /// Sets whether names are shown: as `lock.name` in [spans](crate::telemetry#spans-and-traces), and instead of `(run-time name)` in
        /// errors and log lines of names without a template. Off by default, because a name may contain personal data.
        show_names(shown: bool) { self.show_names = shown; }
        /// Limits how long opening a connection may take, TLS and authentication included. 5 s by default. Several endpoints share this
        /// time, and each gets at most 2 s.
        ///
        /// It also limits how long a call waits for an etcd that is out of reach: after about this time it is refused with
        /// [`LockError::Backend`](crate::LockError::Backend), whatever its wait.
        connect_timeout(timeout: Duration) { self.connect_timeout = timeout; }
        /// Sets the service's name in the holder record, which shows who holds a lock.
        service(service: impl Into<String>) { self.service = service.into(); }
        /// Sets the etcd user and password. For a password that changes while the process runs: [`credentials`](Self::credentials).
        user(name: impl Into<String>, password: impl Into<String>) {
            self.source.files.user = None;
            self.source.configured = self.source.configured.user(name, password);
        }
        /// Sets certificates for `https` endpoints. For certificates that change while the process runs:
        /// [`credentials`](Self::credentials).
        #[cfg(feature = "tls")]
        tls(tls: Tls) {
            (self.source.files.authorities, self.source.files.identity) = (None, None);
            self.source.configured.tls = Some(tls);
        }
    }

    /// Sets a closure that provides user, password and certificates, if these change while the process runs. [`user`](Self::user) and
    /// `tls` apply to whatever it leaves out.
    ///
    /// The closure is called for each new connection, and when etcd refuses a login: the new credentials are then tried at once. Open
    /// connections continue, so held locks survive a change, provided that etcd accepts the old or the new credentials at any time. The
    /// closure may fail, return incomplete certificates, or take longer than half of [`connect_timeout`](Self::connect_timeout). Then the
    /// last good credentials stay in use, a warning is logged (`credentials.unreadable`), and the next connection calls it again. If the
    /// first connection has no credentials yet, the call is refused with a retryable [`LockError::Backend`](crate::LockError::Backend).
    ///
    /// The closure runs on the engine's thread, which renews the leases: it must not block. Its future is dropped if it takes too long,
    /// and when the engine ends.
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
    /// Endpoints must include their schemes. A client from [`Locks::client`](crate::Locks::client) keeps the credentials with which it
    /// was created.
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
