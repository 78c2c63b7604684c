//! Target of a client: a URL, or the user's closure.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use etcd_client::{Channel, Client, ConnectOptions, Error};
use tonic::codegen::http::Uri;
use tonic::transport::Endpoint;

use super::gather;
use super::keyring::Keyring;
use crate::clock::Clock;
use crate::values::{Config, Connector};

/// Interval of HTTP/2 pings, and time limit of their response. etcd closes connections that ping more often than every 5 s (rule P33).
const PING: (Duration, Duration) = (Duration::from_secs(6), Duration::from_secs(3));

#[derive(Clone, Debug)]
pub(super) enum Target {
    /// Its host may be a name with several addresses, of which this is one.
    Url { text: String, address: Option<SocketAddr> },
    /// Only the closure knows what it reaches.
    Connector(Connector),
}

/// Settings for connecting a client.
#[derive(Clone)]
pub(super) struct Terms {
    /// For etcd-client, and for a user's own clients. Without credentials before [`current`](Self::current).
    pub(super) options: ConnectOptions,
    connect_timeout: Duration,
    #[cfg(feature = "tls")]
    tls: Option<etcd_client::TlsOptions>,
    /// All configured targets.
    pub(super) targets: Vec<Target>,
    pub(super) keyring: Arc<Keyring>,
}

impl Terms {
    pub(super) fn new(config: &Config, connect_timeout: Duration, clock: Arc<dyn Clock>) -> Self {
        let (interval, timeout) = PING;
        let options = ConnectOptions::new()
            .with_keep_alive(interval, timeout)
            .with_keep_alive_while_idle(true)
            .with_require_leader(true)
            .with_auto_token_refresh(true)
            .with_connect_timeout(connect_timeout);
        Self {
            options,
            connect_timeout,
            #[cfg(feature = "tls")]
            tls: None,
            targets: Target::all(config),
            keyring: Arc::new(Keyring::new(config.source.clone(), connect_timeout / 2, clock)),
        }
    }

    /// Returns the settings with the credentials of a new connection. An error if there are none yet.
    pub(super) async fn current(&self) -> Result<Self, String> {
        let credentials = self.keyring.current().await?;
        let mut terms = self.clone();
        if let Some((name, password)) = credentials.user {
            terms.options = terms.options.with_user(name, password);
        }
        #[cfg(feature = "tls")]
        {
            let tls = match credentials.tls {
                None if self.targets.iter().any(Target::is_encrypted) => Some(Default::default()),
                Some(_)
                    if self.targets.iter().all(|it| it.url().is_some() && !it.is_encrypted()) =>
                {
                    return Err(
                        "`credentials` returned certificates, but the endpoints are not encrypted: write `https://`".into(),
                    );
                }
                tls => tls,
            };
            terms.tls = tls.map(|tls| tls.options());
            if let Some(tls) = &terms.tls {
                terms.options = terms.options.with_tls(tls.clone());
            }
        }
        Ok(terms)
    }

    /// Returns the settings for one connection by URL.
    fn endpoint(&self, url: &str) -> Result<Endpoint, Error> {
        let (interval, timeout) = PING;
        let endpoint = Endpoint::from_shared(url.to_owned())?
            .http2_keep_alive_interval(interval)
            .keep_alive_timeout(timeout)
            .keep_alive_while_idle(true);
        #[cfg(feature = "tls")]
        if let Some(tls) = self.tls.as_ref().filter(|_| url.starts_with("https://")) {
            return Ok(endpoint.tls_config(tls.clone())?);
        }
        Ok(endpoint)
    }

    /// Connects a client to the first of these targets that accepts. With `once`, it never connects again, but a closure's client may.
    pub(super) async fn connect(&self, targets: &[Target], once: bool) -> Result<Client, Error> {
        let options = self.options.clone();
        let first = match targets.first() {
            Some(Target::Url { text, .. }) => self.endpoint(text)?,
            Some(Target::Connector(connector)) => return (connector.make)(options).await,
            None => return Client::connect([""; 0], Some(options)).await, // fails with this reason
        };
        let mut uris: Vec<_> = targets.iter().map(Target::reached).collect();
        // A client that connects again can use addresses that a name got later.
        uris.extend(targets.iter().filter(|_| !once).filter_map(Target::url).map(str::to_owned));
        let uris = uris.iter().map(|it| Ok(self.endpoint(it)?.uri().clone()));
        let uris = uris.collect::<Result<Arc<[Uri]>, Error>>()?;
        let channel = gather::connect(first, uris, self.connect_timeout, once);
        Client::from_channel(Channel::Tonic(channel), Some(options)).await
    }

    /// Connects a client on the runtime on which this is awaited. It tries the first target first; etcd-client chooses among `https`
    /// hosts.
    #[cfg(feature = "etcd-client")]
    pub(super) async fn connect_to_any(&self, targets: &[Target]) -> Result<Client, Error> {
        // A connection that may go to either of two hosts cannot check the names in both certificates.
        let urls: BTreeSet<_> = targets.iter().filter_map(Target::url).collect();
        match urls.len() > 1 && targets.iter().any(Target::is_encrypted) {
            true => Client::connect(Vec::from_iter(urls), Some(self.options.clone())).await,
            false => self.connect(targets, false).await,
        }
    }
}

impl Target {
    /// Returns all targets as configured. Each gets its own client (rule P32).
    pub(super) fn all(config: &Config) -> Vec<Self> {
        match &config.connector {
            Some(connector) => vec![Self::Connector(connector.clone())],
            None => config.urls().iter().map(|url| Self::of(url)).collect(),
        }
    }

    pub(super) fn of(url: &str) -> Self {
        Self::Url { text: url.to_owned(), address: None }
    }

    /// Returns the URL, whichever of its addresses this is.
    pub(super) fn url(&self) -> Option<&str> {
        match self {
            Self::Url { text, .. } => Some(text),
            Self::Connector(_) => None,
        }
    }

    /// Returns the name for errors.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Url { text, address: Some(address) } => format!("{text} ({})", address.ip()),
            Self::Url { text, .. } => text.clone(),
            Self::Connector(connector) => connector.name.to_owned(),
        }
    }

    /// Returns the URL to connect to.
    pub(super) fn reached(&self) -> String {
        match (self, self.url().and_then(|url| url.split_once("://"))) {
            (Self::Url { address: Some(address), .. }, Some((scheme, _))) => {
                format!("{scheme}://{address}")
            }
            _ => self.name(),
        }
    }

    /// Returns host and port if the host is a name, whose addresses may change. `localhost` counts as one machine.
    pub(super) fn host(&self) -> Option<(&str, u16)> {
        let (host, port) = self.url()?.split_once("://")?.1.rsplit_once(':')?;
        let is_one = host == "localhost" || host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
        (!is_one).then_some((host, port.parse().ok()?))
    }

    /// Returns this target, or one for each address if its host is a name with several; `None` if they are unknown now.
    pub(super) async fn resolved(&self) -> Option<Vec<Self>> {
        let (Some(url), Some(host)) = (self.url(), self.host()) else {
            return Some(vec![self.clone()]);
        };
        let found: BTreeSet<_> = tokio::net::lookup_host(host).await.ok()?.collect();
        let several = found.len() > 1;
        let one = |it| Self::Url { text: url.to_owned(), address: Some(it).filter(|_| several) };
        (!found.is_empty()).then(|| found.into_iter().map(one).collect())
    }

    /// Returns true if a URL says that it speaks TLS; for a closure, this is unknown.
    #[cfg(any(feature = "etcd-client", feature = "tls"))]
    fn is_encrypted(&self) -> bool {
        self.url().is_some_and(|url| url.starts_with("https://"))
    }
}
