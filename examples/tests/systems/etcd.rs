//! Real etcds, started and ended as in the tests of the library, and reads of their keys.

use std::sync::Arc;
use std::time::Duration;

use etcd_client::{Client, GetOptions, SortOrder, SortTarget};
use etcd_locked_devkit::limit::{blocking, within};
use etcd_locked_devkit::{Cluster, Member, Setup};
use tokio::time::sleep;

pub(crate) use etcd_locked_devkit::binary::etcdctl;
pub(crate) use etcd_locked_devkit::port::free as free_port;

/// A key in etcd.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) text: String,
    /// The create revision.
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
        Etcd {
            members: vec![Arc::new(blocking(Member::start).await)],
        }
    }

    /// Starts an etcd that refuses writes when its data take more than this many bytes.
    pub(crate) async fn start_with_quota(bytes: u64) -> Etcd {
        let setup = Setup::default().flags([format!("--quota-backend-bytes={bytes}")]);
        Etcd {
            members: vec![Arc::new(blocking(move || setup.start()).await)],
        }
    }

    pub(crate) async fn start_cluster(size: usize) -> Etcd {
        let start = move || Cluster::start_with(size, Setup::default().direct());
        Etcd {
            members: blocking(start).await.members().to_vec(),
        }
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

    /// Connects a client of the test's own, which uses nothing that is under test.
    pub(crate) async fn client(&self) -> Client {
        Client::connect(self.each(), None)
            .await
            .expect("etcd answers the test's own client")
    }

    /// Reads every key below a prefix, oldest first.
    pub(crate) async fn below(&self, prefix: &str) -> Vec<Key> {
        let options = GetOptions::new()
            .with_prefix()
            .with_sort(SortTarget::Create, SortOrder::Ascend);
        let found = self.client().await.get(prefix, Some(options)).await;
        let found = found.expect("etcd's keys");
        let key = |kv: &etcd_client::KeyValue| Key {
            text: String::from_utf8_lossy(kv.key()).into_owned(),
            created: kv.create_revision(),
            lease: kv.lease(),
        };
        found.kvs().iter().map(key).collect()
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

    /// Returns whether etcd has neither a key nor a lease.
    pub(crate) async fn is_empty(&self) -> bool {
        let mut client = self.client().await;
        let all = GetOptions::new().with_all_keys().with_count_only();
        let keys = client.get("", Some(all)).await.expect("etcd's keys");
        let leases = client.leases().await.expect("etcd's leases");
        keys.count() == 0 && leases.leases().is_empty()
    }
}
