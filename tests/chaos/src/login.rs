//! Login of the workers: etcd asks every client who it is, and their role gives them what the documentation says that it must.

use std::time::Duration;

use etcd_client::ConnectOptions;

/// The user, whose role has the same name.
pub(crate) const USER: &str = "chaos";
pub(crate) const PASSWORD: &str = "chaos";
/// The password while an operator has changed it.
pub(crate) const CHANGED: &str = "changed";
/// What the role may read and write: the locks, and the session keys next to them.
pub(crate) const PREFIXES: [&str; 2] = ["locks/", "locks%s/"];
/// Hashes of passwords cost processor time on purpose; this is the least.
pub(crate) const CHEAP: &str = "--bcrypt-cost=4";

/// User and password as `ETCD_LOCKED_USER` and `ETCDCTL_USER` want them.
pub(crate) fn text() -> String {
    format!("{USER}:{PASSWORD}")
}

/// Options of etcd-client for a worker that uses it directly.
pub(crate) fn options() -> ConnectOptions {
    ConnectOptions::new()
        .with_user(USER, PASSWORD)
        .with_connect_timeout(Duration::from_secs(5))
        .with_keep_alive(Duration::from_secs(5), Duration::from_secs(2))
}
