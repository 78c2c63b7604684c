//! Bundle of keys that are put and deleted together: as much of our transactions as the kind has, and nothing else.

use std::ops::Range;

use etcd_client::{
    Compare, CompareOp, GetOptions, PutOptions, SortOrder, SortTarget, Txn, TxnOp, TxnResponse,
};

use super::Fault;
use super::peer::{Owner, VALUE};
use crate::kind::Kind;

/// Locks per transaction, as in our own bundles.
pub(super) const LOCKS: u64 = 64;

pub(crate) struct Bundle {
    owner: Owner,
    keys: Vec<String>,
    kind: Kind,
    /// Session key that our transactions compare, with its mod revision, which never changes.
    session: (String, i64),
}

impl Bundle {
    pub(crate) async fn new(owner: Owner, names: Range<u64>, kind: Kind) -> Result<Self, Fault> {
        let session = format!("session/{}/{:x}", names.start, owner.lease);
        let lease = PutOptions::new().with_lease(owner.lease);
        let mut kv = owner.client.kv_client();
        let put = kv.put(session.as_str(), "", Some(lease)).await?;
        let revision = put.header().ok_or("no header")?.revision();
        Ok(Self {
            keys: match kind {
                // Like ours, in a separate family.
                Kind::Guarded => {
                    names.map(|name| format!("guarded/{name}/{:x}", owner.lease)).collect()
                }
                _ => names.map(|name| format!("raw/{name}")).collect(),
            },
            owner,
            kind,
            session: (session, revision),
        })
    }

    /// Puts and deletes; returns the number of locks that this represents.
    pub(super) async fn carry_out(&self) -> Result<u64, Fault> {
        self.delete(self.put().await?).await?;
        Ok(self.keys.len() as u64)
    }

    /// Puts all keys; returns the revision.
    pub(crate) async fn put(&self) -> Result<i64, Fault> {
        let answer = self.owner.client.kv_client().txn(self.puts()).await?;
        succeeded(&answer)?;
        Ok(answer.header().ok_or("no header")?.revision())
    }

    /// Deletes all keys, which were put at this revision.
    pub(crate) async fn delete(&self, revision: i64) -> Result<(), Fault> {
        succeeded(&self.owner.client.kv_client().txn(self.deletions(revision)).await?)
    }

    fn puts(&self) -> Txn {
        let lease = PutOptions::new().with_lease(self.owner.lease);
        let put = |key: &String| match self.kind {
            Kind::Raw => TxnOp::put(key.as_str(), "", None),
            _ => TxnOp::put(key.as_str(), VALUE, Some(lease.clone())),
        };
        if self.kind != Kind::Guarded {
            return Txn::new().and_then(self.keys.iter().map(put).collect::<Vec<_>>());
        }
        let oldest = GetOptions::new()
            .with_prefix()
            .with_limit(1)
            .with_keys_only()
            .with_sort(SortTarget::Create, SortOrder::Ascend);
        let family = |key: &String| {
            let (family, _) = key.rsplit_once('/').unwrap_or_default();
            TxnOp::get(format!("{family}/"), Some(oldest.clone()))
        };
        let (session, revision) = &self.session;
        let unsealed = Compare::mod_revision(session.as_str(), CompareOp::Equal, *revision);
        let put_and_read = self.keys.iter().flat_map(|key| [put(key), family(key)]);
        Txn::new()
            .when([unsealed])
            .and_then(put_and_read.collect::<Vec<_>>())
            .or_else([read(session)])
    }

    fn deletions(&self, revision: i64) -> Txn {
        let keys = || self.keys.iter().map(String::as_str);
        let deletions: Vec<_> = keys().map(|key| TxnOp::delete(key, None)).collect();
        if self.kind != Kind::Guarded {
            return Txn::new().and_then(deletions);
        }
        let ours = |key| Compare::create_revision(key, CompareOp::Equal, revision);
        Txn::new()
            .when(keys().map(ours).collect::<Vec<_>>())
            .and_then(deletions)
            .or_else(keys().map(read).collect::<Vec<_>>())
    }
}

fn succeeded(answer: &TxnResponse) -> Result<(), Fault> {
    match answer.succeeded() {
        true => Ok(()),
        false => Err("another process changed the bundle's keys".into()),
    }
}

/// Returns the read that our transaction makes if a comparison fails.
fn read(key: &str) -> TxnOp {
    TxnOp::get(key, Some(GetOptions::new().with_keys_only()))
}
