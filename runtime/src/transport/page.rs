//! Page of keys: a part of a possibly long range.

use etcd_client::{Error, GetOptions, ResponseHeader};
use etcd_locked_core::{Kv, Revision};

use super::convert::{key_value, malformed};
use super::endpoint::Connection;

/// Maximum number of keys on a page. A value may have 1.5 MiB, so a page always fits in memory.
const KEYS: i64 = 200;

/// etcd's error for a revision that was compacted.
const COMPACTED: &str = "etcdserver: mvcc: required revision has been compacted";

/// Some keys of a range, in byte order.
pub(crate) struct Page {
    pub(crate) keys: Vec<Kv>,
    /// True if more keys follow the last one.
    pub(crate) more: bool,
    /// The revision of the page.
    pub(crate) revision: Revision,
}

impl Page {
    /// Reads the keys from `from` to `end` at a revision, or the current ones if that revision is compacted.
    pub(super) async fn read(
        connection: Connection,
        from: &[u8],
        end: &[u8],
        mut at: Option<i64>,
    ) -> Result<Self, Error> {
        let mut kv = connection.client.kv_client().max_decoding_message_size(usize::MAX);
        let mut answer = loop {
            let options =
                GetOptions::new().with_range(end).with_limit(KEYS).with_revision(at.unwrap_or(0)); // 0: now
            match kv.get(from, Some(options)).await {
                Err(Error::GRpcStatus(status)) if at.is_some() && status.message() == COMPACTED => {
                    at = None;
                }
                answer => break answer?,
            }
        };
        let revision = answer.header().map(ResponseHeader::revision);
        let now = revision.and_then(Revision::new).ok_or_else(malformed)?;
        Ok(Self {
            more: answer.more(),
            keys: answer.take_kvs().into_iter().filter_map(key_value).collect(),
            revision: at.and_then(Revision::new).unwrap_or(now),
        })
    }
}
