//! Peers in Rust: how each locks and unlocks.

use std::sync::Arc;

use etcd_client::{Client, Compare, CompareOp, LockOptions, PutOptions, Txn, TxnOp};
use etcd_locked::etcd_locked;
use tokio::sync::Mutex;

use super::Fault;
use super::guarded::Guarded;
use super::spec::Spec;
use super::watcher::Watcher;
use super::witness::Witness;
use crate::kind::Kind;

/// TTL of the peers' leases, so long that no peer in Rust has to renew its lease during the bench.
const TTL: i64 = 3_600;

/// Way in which one task locks.
#[derive(Clone)]
pub(super) enum Peer {
    Ours,
    Background,
    Plain(Owner),
    Watching(Arc<Mutex<Watcher>>),
    Service(Owner),
    Guarded(Arc<Guarded>),
}

/// Lease on the process's connection, which is the owner of locks.
#[derive(Clone)]
pub(crate) struct Owner {
    pub(super) client: Client,
    pub(super) lease: i64,
}

#[etcd_locked("ours/<name>", wait = "forever")]
async fn call(name: u64, witness: &Witness) -> Result<(), Fault> {
    Ok(witness.enter(name)?)
}

#[etcd_locked("background/<name>", wait = "forever", release = "background")]
async fn background(name: u64, witness: &Witness) -> Result<(), Fault> {
    Ok(witness.enter(name)?)
}

impl Peer {
    /// One for each task.
    pub(super) async fn of_tasks(spec: &Spec) -> Result<Vec<Self>, Fault> {
        match spec.kind {
            Kind::Ours => return Ok((0..spec.tasks).map(|_| Self::Ours).collect()),
            Kind::Background => return Ok((0..spec.tasks).map(|_| Self::Background).collect()),
            _ => {}
        }
        let client = Client::connect(&spec.endpoints, None).await?;
        let mut owner = Owner::new(&client).await?;
        let mut peers = Vec::new();
        for task in 0..spec.tasks {
            // As for Go: tasks that contend for a name are separate owners.
            if task > 0 && spec.tasks > spec.names {
                owner = Owner::new(&client).await?;
            }
            let owner = owner.clone();
            peers.push(match spec.kind {
                Kind::Plain => Self::Plain(owner),
                Kind::Watching if (spec.tasks, spec.names) == (1, 1) => {
                    Self::Watching(Arc::new(Mutex::new(Watcher::new(owner).await?)))
                }
                Kind::Service => Self::Service(owner),
                Kind::Guarded | Kind::Single => {
                    Self::Guarded(Arc::new(Guarded::new(owner, task).await?))
                }
                _ => return Err("this peer makes no such calls".into()),
            });
        }
        Ok(peers)
    }

    /// Locks and unlocks.
    pub(super) async fn call(&self, name: u64, witness: &Witness) -> Result<(), Fault> {
        match self {
            Self::Ours => call(name, witness).await?,
            Self::Background => background(name, witness).await?,
            Self::Plain(owner) => owner.by_hand(name, witness).await?,
            Self::Watching(watcher) => watcher.lock().await.call(name, witness).await?,
            Self::Service(owner) => owner.by_service(name, witness).await?,
            Self::Guarded(guarded) => {
                let revision = guarded.put().await?;
                witness.enter(name)?;
                guarded.delete(revision).await?;
            }
        }
        Ok(())
    }
}

impl Owner {
    pub(crate) async fn new(client: &Client) -> Result<Self, Fault> {
        let lease = client.lease_client().grant(TTL, None).await?.id();
        Ok(Self { client: client.clone(), lease })
    }

    /// Locks as one would without a library, if no other process wants the name.
    async fn by_hand(&self, name: u64, witness: &Witness) -> Result<(), Fault> {
        let key = format!("plain/{name}");
        let mut kv = self.client.kv_client();
        let options = PutOptions::new().with_lease(self.lease);
        let put = Txn::new()
            .when([Compare::create_revision(key.as_str(), CompareOp::Equal, 0)])
            .and_then([TxnOp::put(key.as_str(), "", Some(options))]);
        if !kv.txn(put).await?.succeeded() {
            return Err(format!("`{key}` is held by another process").into());
        }
        witness.enter(name)?;
        kv.delete(key, None).await?;
        Ok(())
    }

    async fn by_service(&self, name: u64, witness: &Witness) -> Result<(), Fault> {
        let mut locks = self.client.lock_client();
        let options = LockOptions::new().with_lease(self.lease);
        let locked = locks.lock(format!("service/{name}"), Some(options)).await?;
        witness.enter(name)?;
        locks.unlock(locked.key()).await?;
        Ok(())
    }
}
