//! Login of the workers: authentication is enabled in etcd, and their role has exactly the rights that the documentation requires.

use std::time::Duration;

use etcd_client::{Client, ConnectOptions, Error};

pub(crate) const USER: &str = "chaos";
pub(crate) const PASSWORD: &str = "chaos";
/// Password while an operator has changed it.
pub(crate) const CHANGED: &str = "changed";
/// Prefixes that the role may read and write: the locks, and the session keys next to them.
pub(crate) const PREFIXES: [&str; 2] = ["locks/", "locks%s/"];
/// Flag for the cheapest password hashes, which cost processor time on purpose.
pub(crate) const CHEAP: &str = "--bcrypt-cost=4";

/// Returns user and password in the form of `ETCD_LOCKED_USER` and `ETCDCTL_USER`.
pub(crate) fn text() -> String {
    format!("{USER}:{PASSWORD}")
}

pub(crate) async fn connect() -> Result<Client, Error> {
    let endpoints = std::env::var("ETCD_LOCKED_ENDPOINTS").unwrap_or_default();
    let options = ConnectOptions::new()
        .with_user(USER, PASSWORD)
        .with_connect_timeout(Duration::from_secs(5))
        .with_keep_alive(Duration::from_secs(5), Duration::from_secs(2))
        .with_auto_token_refresh(true);
    Client::connect(Vec::from_iter(endpoints.split(',')), Some(options)).await
}
