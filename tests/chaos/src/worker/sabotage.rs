//! Sabotage: mistakes that a worker makes on purpose, each of which the checker must find.

use clap::ValueEnum;
use etcd_client::{DeleteOptions, GetOptions, SortOrder, SortTarget};

use crate::login;

/// A worker's mistake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sabotage {
    /// One call in a hundred takes no lock.
    Unlocked,
    /// A body goes on after its loss, and says that the lock is held.
    LyingRenewal,
    /// A call that has lost its lock, or was not given it in time, releases it by name: it deletes the first key,
    /// which another process may have put.
    ReleaseByName,
    /// A body runs in a task of its own, which no guard stops.
    NoGuard,
    /// Nothing stands before the polls of a body: it is dropped only once its task learns of the loss.
    NoGate,
}

/// Deletes the oldest key below a name.
pub(super) async fn release_by_name(name: &str) -> Result<(), etcd_client::Error> {
    let endpoints = std::env::var("ETCD_LOCKED_ENDPOINTS").unwrap_or_default();
    let endpoints: Vec<&str> = endpoints.split(',').collect();
    let mut client = etcd_client::Client::connect(endpoints, Some(login::options())).await?;
    let oldest = GetOptions::new()
        .with_prefix()
        .with_sort(SortTarget::Create, SortOrder::Ascend)
        .with_limit(1);
    let found = client.get(format!("locks/{name}/"), Some(oldest)).await?;
    for key in found.kvs() {
        client.delete(key.key(), Some(DeleteOptions::new())).await?;
    }
    Ok(())
}
