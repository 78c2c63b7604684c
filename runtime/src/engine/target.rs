//! What a client is connected to: URLs, or whatever a closure of the user's reaches.

use etcd_client::{Client, ConnectOptions, Error};

use crate::config::{Config, Connector};

#[derive(Clone, Debug)]
pub(super) enum Target {
    Urls(Vec<String>),
    /// Only the closure knows.
    Connector(Connector),
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
            Self::Urls(urls) => urls
                .iter()
                .map(|url| Self::Urls(vec![url.clone()]))
                .collect(),
            connector => vec![connector.clone()],
        }
    }

    /// What errors call it.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Urls(urls) => urls.join(","),
            Self::Connector(connector) => connector.name().to_owned(),
        }
    }

    /// Whether etcd-client makes the client. It connects when first used, but authenticates at once; a closure may do what
    /// it likes.
    pub(super) fn is_by_url(&self) -> bool {
        matches!(self, Self::Urls(_))
    }

    /// Whether it is in the process, and nothing is between.
    pub(super) fn answers_at_once(&self) -> bool {
        matches!(self, Self::Connector(connector) if connector.is_at_hand())
    }

    /// Whether it may speak TLS.
    #[cfg(feature = "tls")]
    pub(super) fn may_use_tls(&self, config: &Config) -> bool {
        match self {
            Self::Urls(urls) => urls.iter().any(|url| url.starts_with("https://")),
            Self::Connector(_) => config.tls.is_some(),
        }
    }

    pub(super) async fn connect(&self, options: ConnectOptions) -> Result<Client, Error> {
        match self {
            Self::Urls(urls) => Client::connect(urls, Some(options)).await,
            Self::Connector(connector) => connector.connect(options).await,
        }
    }
}
