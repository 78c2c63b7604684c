//! Nodes of a lock: its queue, as etcd stores it.

use std::time::Duration;

use etcd_locked::etcd_client::{Client, GetOptions, KeyValue, SortOrder, SortTarget};

use crate::Result;

/// Reads the nodes of a lock in the order of admission; the first owns it.
pub(crate) async fn nodes(etcd: &mut Client, lock: &str) -> Result<Vec<KeyValue>> {
    let options = GetOptions::new().with_prefix().with_sort(SortTarget::Create, SortOrder::Ascend);
    let mut found = etcd.get(format!("locks/{lock}/"), Some(options)).await?;
    Ok(found.take_kvs())
}

/// Waits until a lock has this many nodes.
pub(crate) async fn until(etcd: &mut Client, lock: &str, many: usize) -> Result<()> {
    while nodes(etcd, lock).await?.len() != many {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

/// Returns the session of a node, which is the last part of its key.
pub(crate) fn session(node: &KeyValue) -> String {
    let key = String::from_utf8_lossy(node.key());
    key.rsplit('/').next().unwrap_or_default().to_owned()
}
