//! Real etcds, started and ended as in the tests of the library; and what is in them.

// Freezing a server and much else is not for examples.
#[allow(dead_code)]
#[path = "../../../../tests/it/etcd/ports.rs"]
mod ports;
#[allow(dead_code)]
#[path = "../../../../tests/it/etcd/process.rs"]
mod process;
#[allow(dead_code)]
#[path = "../../../../tests/it/etcd/tools.rs"]
mod tools;

use std::time::Duration;

use etcd_client::{Client, GetOptions, SortOrder, SortTarget};
use tokio::time::sleep;

pub(crate) use self::ports::free_port;
pub(crate) use self::tools::etcdctl;
use crate::limit::within;

/// What ends an etcd with the tests that have started it.
const GUARD: &str = env!("CARGO_BIN_EXE_examples-guard");

/// A key in etcd.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) text: String,
    /// In which revision.
    pub(crate) created: i64,
    pub(crate) lease: i64,
}

/// One etcd, or the members of a cluster; gone when dropped.
#[derive(Debug)]
pub(crate) struct Etcd {
    pub(crate) members: Vec<process::Member>,
}

impl Etcd {
    pub(crate) async fn start() -> Etcd {
        Etcd {
            members: vec![process::Member::start(&[]).await],
        }
    }

    pub(crate) async fn start_cluster(size: usize) -> Etcd {
        Etcd {
            members: process::Member::start_cluster(size).await,
        }
    }

    /// What `ETCD_LOCKED_ENDPOINTS` is to be.
    pub(crate) fn endpoints(&self) -> String {
        let members = self.members.iter().map(process::Member::endpoint);
        members.collect::<Vec<_>>().join(",")
    }

    /// A client of the test's own, past everything under test.
    pub(crate) async fn client(&self) -> Client {
        let members = self.members.iter().map(process::Member::endpoint);
        Client::connect(members.collect::<Vec<_>>(), None)
            .await
            .expect("etcd answers the test's own client")
    }

    /// Every key below this, the oldest first.
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

    /// Waits for so many keys.
    pub(crate) async fn until_below(&self, prefix: &str, count: usize) {
        let found = async {
            while self.below(prefix).await.len() != count {
                sleep(Duration::from_millis(20)).await;
            }
        };
        within(&format!("{count} keys below {prefix}"), found).await;
    }

    /// Neither a key nor a lease is left of what has ended.
    pub(crate) async fn is_empty(&self) -> bool {
        let mut client = self.client().await;
        let all = GetOptions::new().with_all_keys().with_count_only();
        let keys = client.get("", Some(all)).await.expect("etcd's keys");
        let leases = client.leases().await.expect("etcd's leases");
        keys.count() == 0 && leases.leases().is_empty()
    }
}
