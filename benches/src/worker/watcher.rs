//! Peer with an open watch: a lock of several processes without protection against failures. A call is a put that returns the
//! earlier keys, an event of a watch that is already open, and a deletion. That is the limit of etcd and a client.

use std::collections::BTreeMap;

use etcd_client::{
    GetOptions, PutOptions, Txn, TxnOp, TxnOpResponse, WatchFilterType, WatchOptions, WatchStream,
};

use super::Fault;
use super::guarded::VALUE;
use super::peer::Owner;
use super::witness::Witness;

/// Contender of one process for the only name.
pub(super) struct Watcher {
    owner: Owner,
    key: String,
    deletions: WatchStream,
}

/// Prefix of every contender.
const FAMILY: &str = "watching/";

impl Watcher {
    pub(super) async fn new(owner: Owner) -> Result<Self, Fault> {
        let options = WatchOptions::new().with_prefix();
        let options = options.with_filters([WatchFilterType::NoPut]);
        let mut watches = owner.client.watch_client();
        Ok(Self {
            key: format!("{FAMILY}{:x}", owner.lease),
            deletions: watches.watch(FAMILY, Some(options)).await?,
            owner,
        })
    }

    pub(super) async fn call(&mut self, name: u64, witness: &Witness) -> Result<(), Fault> {
        let mut kv = self.owner.client.kv_client();
        let key = self.key.as_str();
        let lease = PutOptions::new().with_lease(self.owner.lease);
        let all = GetOptions::new().with_prefix().with_keys_only();
        let put = Txn::new()
            .and_then([TxnOp::put(key, VALUE, Some(lease)), TxnOp::get(FAMILY, Some(all))]);
        let mut before = BTreeMap::new();
        for answer in kv.txn(put).await?.op_responses() {
            if let TxnOpResponse::Get(all) = answer {
                let others = all.kvs().iter().filter(|kv| kv.key() != key.as_bytes());
                before.extend(others.map(|kv| (kv.key().to_vec(), kv.create_revision())));
            }
        }
        while !before.is_empty() {
            let news = self.deletions.message().await?;
            let news = news.ok_or("etcd has ended the watch")?;
            for kv in news.events().iter().filter_map(|event| event.kv()) {
                // The key may belong to an earlier turn of that process.
                if before.get(kv.key()).is_some_and(|born| *born < kv.mod_revision()) {
                    before.remove(kv.key());
                }
            }
        }
        witness.enter(name)?;
        kv.delete(key, None).await?;
        Ok(())
    }
}
