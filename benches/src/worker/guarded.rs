//! Lock by hand: the transactions that our engine sends for a free name, in a loop, and nothing else.

use etcd_client::{
    Compare, CompareOp, GetOptions, PutOptions, SortOrder, SortTarget, Txn, TxnOp, TxnResponse,
};

use super::Fault;
use super::peer::Owner;

/// About as long as a holder record of ours.
pub(super) const VALUE: [u8; 160] = [b'x'; 160];

pub(crate) struct Guarded {
    owner: Owner,
    /// What the keys of all contenders of the name begin with.
    family: String,
    key: String,
    /// The session key, which the put compares, and its mod revision, which never changes.
    session: (String, i64),
}

impl Guarded {
    pub(crate) async fn new(owner: Owner, name: u64) -> Result<Self, Fault> {
        let session = format!("session/{name}/{:x}", owner.lease);
        let lease = PutOptions::new().with_lease(owner.lease);
        let put = owner.client.kv_client().put(session.as_str(), "", Some(lease)).await?;
        let revision = put.header().ok_or("no header")?.revision();
        let family = format!("guarded/{name}/");
        let key = format!("{family}{:x}", owner.lease);
        Ok(Self { owner, family, key, session: (session, revision) })
    }

    /// Puts the key and reads the oldest one of the name; returns the revision of the put.
    pub(crate) async fn put(&self) -> Result<i64, Fault> {
        let oldest = GetOptions::new()
            .with_prefix()
            .with_limit(1)
            .with_keys_only()
            .with_sort(SortTarget::Create, SortOrder::Ascend);
        let lease = PutOptions::new().with_lease(self.owner.lease);
        let (session, revision) = &self.session;
        let txn = Txn::new()
            .when([Compare::mod_revision(session.as_str(), CompareOp::Equal, *revision)])
            .and_then([
                TxnOp::put(self.key.as_str(), VALUE, Some(lease)),
                TxnOp::get(self.family.as_str(), Some(oldest)),
            ])
            .or_else([read(session)]);
        let answer = self.sent(txn).await?;
        Ok(answer.header().ok_or("no header")?.revision())
    }

    /// Deletes the key that was put at this revision.
    pub(crate) async fn delete(&self, revision: i64) -> Result<(), Fault> {
        let key = self.key.as_str();
        let txn = Txn::new()
            .when([Compare::create_revision(key, CompareOp::Equal, revision)])
            .and_then([TxnOp::delete(key, None)])
            .or_else([read(key)]);
        self.sent(txn).await.map(drop)
    }

    async fn sent(&self, txn: Txn) -> Result<TxnResponse, Fault> {
        let answer = self.owner.client.kv_client().txn(txn).await?;
        match answer.succeeded() {
            true => Ok(answer),
            false => Err(format!("another process changed `{}`", self.key).into()),
        }
    }
}

/// The read of our transactions if a comparison fails.
fn read(key: &str) -> TxnOp {
    TxnOp::get(key, Some(GetOptions::new().with_keys_only()))
}
