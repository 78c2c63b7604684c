//! Target of a client: URLs, or what a closure of the user's reaches.

use std::sync::Arc;
use std::time::Duration;

use etcd_client::{Channel, Client, ConnectOptions, Error};
use tonic::transport::Endpoint;

use super::gather;
use super::keyring::Keyring;
use crate::clock::Clock;
use crate::values::{Config, Connector};

/// HTTP/2 pings, and how long their answer may take: etcd closes connections that ping more often than every 5 s (rule P33).
const PING: (Duration, Duration) = (Duration::from_secs(6), Duration::from_secs(3));

#[derive(Clone, Debug)]
pub(super) enum Target {
    Urls(Vec<String>),
    /// What it reaches only the closure knows.
    Connector(Connector),
}

/// How a client is connected.
#[derive(Clone)]
pub(super) struct Terms {
    /// As etcd-client takes them: what a user's own clients are made with. Without credentials until [`current`](Self::current).
    pub(super) options: ConnectOptions,
    connect_timeout: Duration,
    #[cfg(feature = "tls")]
    tls: Option<etcd_client::TlsOptions>,
    pub(super) target: Target,
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
            target: Target::of(config),
            keyring: Arc::new(Keyring::new(config.source.clone(), connect_timeout / 2, clock)),
        }
    }

    /// The same with the credentials of a new connection. An error if there are none yet.
    pub(super) async fn current(&self) -> Result<Self, String> {
        let credentials = self.keyring.current().await?;
        let mut terms = self.clone();
        if let Some((name, password)) = credentials.user {
            terms.options = terms.options.with_user(name, password);
        }
        #[cfg(feature = "tls")]
        {
            let tls = match credentials.tls {
                None if self.target.is_encrypted() => Some(Default::default()),
                Some(_) if self.target.is_by_url() && !self.target.is_encrypted() => {
                    return Err(
                        "`credentials` has certificates, but the endpoints are not encrypted: write `https://`".into(),
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

    /// The same for one connection by URL.
    fn endpoint(&self, url: &str) -> Result<Endpoint, Error> {
        let (interval, timeout) = PING;
        let endpoint = Endpoint::from_shared(url.to_owned())?
            .connect_timeout(self.connect_timeout)
            .http2_keep_alive_interval(interval)
            .keep_alive_timeout(timeout)
            .keep_alive_while_idle(true);
        #[cfg(feature = "tls")]
        if let Some(tls) = self.tls.as_ref().filter(|_| url.starts_with("https://")) {
            return Ok(endpoint.tls_config(tls.clone())?);
        }
        Ok(endpoint)
    }

    /// A client that uses one of these URLs, the first that accepts; with `once` it never connects again.
    async fn connect(&self, urls: &[String], once: bool) -> Result<Client, Error> {
        let endpoints = urls.iter().map(|url| self.endpoint(url));
        let endpoints: Vec<_> = endpoints.collect::<Result<_, _>>()?;
        let options = Some(self.options.clone());
        match gather::connect(&endpoints, once) {
            Some(channel) => Client::from_channel(Channel::Tonic(channel), options).await,
            None => Client::connect([""; 0], options).await, // says so
        }
    }
}

impl Target {
    /// All of etcd, as configured.
    pub(super) fn of(config: &Config) -> Self {
        match &config.connector {
            Some(connector) => Self::Connector(connector.clone()),
            None => Self::Urls(config.urls()),
        }
    }

    /// What gets a client of its own (rule P32).
    pub(super) fn endpoints(&self) -> Vec<Self> {
        match self {
            Self::Urls(urls) => urls.iter().map(|url| Self::Urls(vec![url.clone()])).collect(),
            connector => vec![connector.clone()],
        }
    }

    /// What errors call it.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Urls(urls) => urls.join(","),
            Self::Connector(connector) => connector.name.to_owned(),
        }
    }

    /// Whether it is given by URLs. Its connection is made when first used, but with a user the login happens at once; a closure may
    /// do what it likes.
    pub(super) fn is_by_url(&self) -> bool {
        matches!(self, Self::Urls(_))
    }

    /// Whether it is in the process, and nothing is between.
    pub(super) fn answers_at_once(&self) -> bool {
        matches!(self, Self::Connector(connector) if connector.is_at_hand)
    }

    /// Whether a URL says that it speaks TLS; what a closure reaches only the closure knows.
    fn is_encrypted(&self) -> bool {
        matches!(self, Self::Urls(urls) if urls.iter().any(|url| url.starts_with("https://")))
    }

    /// A client, on the runtime that this is awaited on. It tries this URL first; among several `https` URLs etcd-client chooses.
    pub(super) async fn connect(&self, terms: &Terms, first: &str) -> Result<Client, Error> {
        let mut urls = match self {
            Self::Urls(urls) => urls.clone(),
            Self::Connector(connector) => return connector.connect(terms.options.clone()).await,
        };
        // A connection that may go to either of two hosts cannot check the name in both's certificates.
        if urls.len() > 1 && self.is_encrypted() {
            return Client::connect(urls, Some(terms.options.clone())).await;
        }
        let first = urls.iter().position(|url| url == first);
        urls.rotate_left(first.unwrap_or(0));
        terms.connect(&urls, false).await
    }

    /// The engine's own client of one endpoint, for one connection. A closure's client may make others.
    pub(super) async fn open(&self, terms: &Terms) -> Result<Client, Error> {
        match self {
            Self::Urls(urls) => terms.connect(urls, true).await,
            Self::Connector(connector) => connector.connect(terms.options.clone()).await,
        }
    }
}
