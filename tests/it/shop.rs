//! Shop: an etcd with authentication, its user `shop`, who may lock, and an operator, who is root.

use etcd_client::Client;
use etcd_locked::Config;

use crate::etcd::{Etcd, ROOT};

/// Name of the user whose role has the two ranges of the default prefix.
pub(crate) const USER: &str = "shop";

/// etcd of one test, with authentication.
pub(crate) struct Shop {
    pub(crate) etcd: Etcd,
    /// Client with all rights.
    pub(crate) root: Client,
}

impl Shop {
    /// Starts an etcd whose user [`USER`] has this password.
    pub(crate) async fn start(password: &str) -> Shop {
        Self::of(Etcd::start().await, password).await
    }

    /// Enables authentication on this etcd, with this password for [`USER`].
    pub(crate) async fn of(etcd: Etcd, password: &str) -> Shop {
        etcd.enable_auth(USER, password, &["locks/", "locks%s/"]).await;
        let root = etcd.client_as(Some(ROOT)).await;
        Shop { etcd, root }
    }

    /// Returns the configuration of engines that log in with this password.
    pub(crate) fn config(&self, password: &str) -> Config {
        Config::new([self.etcd.endpoint()]).user(USER, password)
    }

    /// Gives the user another password. Restarts etcd, which invalidates all tokens.
    pub(crate) async fn change_password(&mut self, password: &str) {
        let changed = self.root.user_change_password(USER, password).await;
        changed.expect("another password");
        self.etcd.restart().await;
    }
}
