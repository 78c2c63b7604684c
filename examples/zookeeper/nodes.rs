//! The queue of a lock as it is in etcd: its nodes.

use std::time::Duration;

use etcd_locked::etcd_client::{Client, GetOptions, KeyValue, SortOrder, SortTarget};

use crate::Result;

/// Those of a lock, in the order in which they will have it: the first has it.
pub(crate) async fn nodes(etcd: &mut Client, lock: &str) -> Result<Vec<KeyValue>> {
    let options = GetOptions::new()
        .with_prefix()
        .with_sort(SortTarget::Create, SortOrder::Ascend);
    let mut found = etcd.get(format!("locks/{lock}/"), Some(options)).await?;
    Ok(found.take_kvs())
}

/// Waits until there are so many.
pub(crate) async fn until(etcd: &mut Client, lock: &str, many: usize) -> Result<()> {
    while nodes(etcd, lock).await?.len() != many {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

/// The session it is attached to, which is the last part of its name.
pub(crate) fn session(node: &KeyValue) -> String {
    let key = String::from_utf8_lossy(node.key());
    key.rsplit('/').next().unwrap_or_default().to_owned()
}
