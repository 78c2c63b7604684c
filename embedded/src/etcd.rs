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

/// etcd in the process: one member, in memory. Clones are handles on the same etcd.
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

    /// Makes an in-memory client that no fault affects, as an operator would use. Only its watches and keep-alives need a
    /// tokio runtime.
    pub async fn client(&self) -> Client {
        loop {
            let service = self.router().map_err(tower::BoxError::from);
            let channel = Channel::Custom(BoxCloneSyncService::new(service));
            // Only a login could fail, and without options the client does not log in.
            if let Ok(client) = Client::from_channel(channel, None).await {
                return client;
            }
            tokio::task::yield_now().await;
        }
    }

    /// Makes a network path to this etcd, for clients under test. Each path has its own faults.
    #[must_use]
    pub fn link(&self) -> Link {
        Link::new(self.router(), Arc::clone(&self.shared.clock))
    }

    /// Reads the store, or changes it as an operator would. Expired leases are removed first.
    ///
    /// Watches receive the changes. If the store's revision is lower afterwards, it counts as another store, and all watch
    /// streams end. All calls to this etcd wait meanwhile; a call to it from `act` deadlocks.
    pub fn with_store<T>(&self, act: impl FnOnce(&mut Store) -> T) -> T {
        self.shared.with(|state, _| act(&mut state.store))
    }

    pub(crate) fn router(&self) -> Router {
        Router::new(&self.shared)
    }
}
