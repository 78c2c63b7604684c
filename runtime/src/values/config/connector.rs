//! Connector: creates etcd clients by the user's code, or in memory.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use etcd_client::{Client, ConnectOptions, Error};

type Connecting = Pin<Box<dyn Future<Output = Result<Client, Error>> + Send>>;

/// A way to create a client. Clones create clients of the same etcd.
#[derive(Clone)]
pub(crate) struct Connector {
    pub(crate) name: &'static str,
    /// True if its etcd runs in this process, and responds at once.
    pub(crate) is_at_hand: bool,
    /// Creates a client, with the options of a client by URL.
    pub(crate) make: Arc<dyn Fn(ConnectOptions) -> Connecting + Send + Sync>,
}

impl Connector {
    #[cfg(any(feature = "embedded", feature = "etcd-client"))]
    pub(crate) fn new<F, C>(name: &'static str, make: F) -> Self
    where
        F: Fn(ConnectOptions) -> C + Send + Sync + 'static,
        C: Future<Output = Result<Client, Error>> + Send + 'static,
    {
        Self { name, is_at_hand: false, make: Arc::new(move |options| Box::pin(make(options))) }
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}
