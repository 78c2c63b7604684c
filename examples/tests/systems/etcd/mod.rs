//! Real etcds, started and ended as in the tests of the library, and reads of their keys.

// The examples use only a part of these modules.
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

/// The guard program, which ends an etcd together with the tests that started it.
const GUARD: &str = env!("CARGO_BIN_EXE_examples-guard");

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
            members: process::Member::start_cluster(size, &[]).await,
        }
    }

    /// Returns the value for `ETCD_LOCKED_ENDPOINTS`.
    pub(crate) fn endpoints(&self) -> String {
        let members = self.members.iter().map(process::Member::endpoint);
        members.collect::<Vec<_>>().join(",")
    }

    /// Connects a client of the test's own, which uses nothing that is under test.
    pub(crate) async fn client(&self) -> Client {
        let members = self.members.iter().map(process::Member::endpoint);
        Client::connect(members.collect::<Vec<_>>(), None)
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
