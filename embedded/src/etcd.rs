//! Embedded etcd of one member, and the clients and links that reach it.

use std::sync::Arc;

use etcd_client::{Channel, Client};
use tower::ServiceExt;
use tower::util::BoxCloneSyncService;

use crate::clock::{Clock, Monotonic};
use crate::link::Link;
use crate::router::Router;
use crate::shared::Shared;
use crate::store::Store;

/// An etcd in the process: one member, in memory. Clones are handles on the same one.
#[derive(Debug, Clone)]
pub struct Etcd {
    pub(crate) shared: Arc<Shared>,
}

impl Default for Etcd {
    fn default() -> Self {
        Self::new()
    }
}

impl Etcd {
    /// Makes an empty etcd on the machine's monotonic clock.
    #[must_use]
    pub fn new() -> Self {
        Self::with_clock(Arc::new(Monotonic::new()))
    }

    /// Makes an empty etcd on the caller's clock.
    #[must_use]
    pub fn with_clock(clock: Arc<dyn Clock>) -> Self {
        Self { shared: Arc::new(Shared::new(clock)) }
    }

    /// Makes a client in memory that no fault affects: an operator's. It needs a tokio runtime for watches and keep-alives
    /// only.
    pub async fn client(&self) -> Client {
        loop {
            let service = self.router().map_err(tower::BoxError::from);
            let channel = Channel::Custom(BoxCloneSyncService::new(service));
            // Only a sign-in could fail, and without options the client does not sign in.
            if let Ok(client) = Client::from_channel(channel, None).await {
                return client;
            }
            tokio::task::yield_now().await;
        }
    }

    /// Makes a network path to this etcd with faults of its own, for clients under test.
    #[must_use]
    pub fn link(&self) -> Link {
        Link::new(self.router(), Arc::clone(&self.shared.clock))
    }

    /// Reads the store, or acts on it as an operator would; leases that have run out are removed before.
    ///
    /// Watches receive the changes. If the store's revision is lower afterwards, it counts as another store, and all watch
    /// streams end. All calls to this etcd wait meanwhile; calling back into it from `act` is a deadlock.
    pub fn with_store<T>(&self, act: impl FnOnce(&mut Store) -> T) -> T {
        self.shared.with(|state, _| act(&mut state.store))
    }

    pub(crate) fn router(&self) -> Router {
        Router::new(&self.shared)
    }
}
