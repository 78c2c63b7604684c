//! Page of keys: a part of a range that may be long.

use etcd_client::{Error, GetOptions, ResponseHeader};
use etcd_locked_core::{Kv, Revision};

use super::convert::{key_value, malformed};
use super::endpoint::Connection;

/// How many keys a page has at most. A value may have 1.5 MiB, so no page outgrows a process.
const KEYS: i64 = 200;

/// etcd's word for a revision that it has forgotten.
const COMPACTED: &str = "etcdserver: mvcc: required revision has been compacted";

/// Some keys of a range, in the order of their bytes.
pub(crate) struct Page {
    pub(crate) keys: Vec<Kv>,
    /// There are more behind the last one.
    pub(crate) more: bool,
    /// The revision it is of.
    pub(crate) revision: Revision,
}

impl Page {
    /// Reads the keys from `from` up to `end`, as they were at a revision, or as they are now once that is compacted.
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
