//! etcd processes, started and ended as in the tests of the library, and reads of their keys.

use std::sync::Arc;
use std::time::Duration;

use etcd_client::Client;
use etcd_locked_devkit::limit::{blocking, within};
use etcd_locked_devkit::{Cluster, KeyValue, Member, Setup};
use tokio::time::sleep;

pub(crate) use etcd_locked_devkit::binary::etcdctl;

/// Key in etcd.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) text: String,
    /// Create revision.
    pub(crate) created: i64,
    pub(crate) lease: i64,
}

/// One etcd, or the members of a cluster; ended when dropped.
#[derive(Debug)]
pub(crate) struct Etcd {
    pub(crate) members: Vec<Arc<Member>>,
}

impl Etcd {
    pub(crate) async fn start() -> Etcd {
        Etcd { members: vec![Arc::new(blocking(Member::start).await)] }
    }

    pub(crate) async fn start_cluster(size: usize) -> Etcd {
        let start = move || Cluster::start_with(size, Setup::default().direct());
        Etcd { members: blocking(start).await.members().to_vec() }
    }

    /// Starts the first member again.
    pub(crate) async fn restart(&self) {
        let member = Arc::clone(&self.members[0]);
        blocking(move || member.restart()).await;
    }

    fn each(&self) -> Vec<String> {
        let members = self.members.iter();
        members.map(|member| member.endpoint()).collect()
    }

    /// Returns the value for `ETCD_LOCKED_ENDPOINTS`.
    pub(crate) fn endpoints(&self) -> String {
        self.each().join(",")
    }

    /// Connects a client for the test, which does not use anything under test.
    pub(crate) async fn client(&self) -> Client {
        Client::connect(self.each(), None).await.expect("etcd answers the test's own client")
    }

    /// Reads every key below a prefix, oldest first.
    pub(crate) async fn below(&self, prefix: &str) -> Vec<Key> {
        let (gateway, prefix) = (self.members[0].gateway(), prefix.to_owned());
        let mut found = blocking(move || gateway.below(&prefix)).await;
        found.sort_by_key(|kv| kv.created);
        let key = |kv: KeyValue| Key { text: kv.key, created: kv.created, lease: kv.lease };
        found.into_iter().map(key).collect()
    }

    /// Awaits this many keys below a prefix.
    pub(crate) async fn until_below(&self, prefix: &str, count: usize) {
        let found = async {
            while self.below(prefix).await.len() != count {
                sleep(Duration::from_millis(20)).await;
            }
        };
        within(&format!("{count} keys below {prefix}"), found).await;
    }

    /// Returns true if etcd has neither keys nor leases.
    pub(crate) async fn is_empty(&self) -> bool {
        let gateway = self.members[0].gateway();
        let (keys, leases) = blocking(move || Ok((gateway.keys("")?, gateway.leases()?))).await;
        keys.is_empty() && leases.is_empty()
    }
}
