//! How each peer locks and unlocks.

use std::ops::Range;
use std::sync::Arc;

use etcd_client::{
    Client, Compare, CompareOp, GetOptions, LockOptions, PutOptions, SortOrder, SortTarget, Txn,
    TxnOp,
};
use etcd_locked::etcd_locked;
use tokio::sync::Mutex;

use super::Fault;
use super::line::Line;
use super::spec::{Spec, Who};
use super::witness::Witness;

/// No peer in Rust renews its lease while it is measured: it outlives the bench.
const TTL: i64 = 3_600;
/// Locks a transaction, as in our own bundles.
const BUNDLE: u64 = 64;
/// About as long as a holder record of ours.
pub(super) const VALUE: [u8; 160] = [b'x'; 160];

/// One task's way to lock.
#[derive(Clone)]
pub(super) enum Peer {
    Ours,
    Background,
    Plain(Owner),
    /// By hand as well, where other processes want the name.
    InLine(Arc<Mutex<Line>>),
    Service(Owner),
    Raw(Arc<Bundle>),
}

/// A lease, which is what owns a lock, on the process's connection.
#[derive(Clone)]
pub(super) struct Owner {
    pub(super) client: Client,
    pub(super) lease: i64,
}

/// Keys that are put together, and deleted together.
pub(super) struct Bundle {
    owner: Owner,
    keys: Vec<String>,
    kind: Who,
    /// What our transactions compare: with its mod revision, which never changes.
    session: (String, i64),
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
    /// One for each task; raw bundles stand for many tasks each.
    pub(super) async fn of_tasks(spec: &Spec) -> Result<Vec<Self>, Fault> {
        let ours = match spec.who {
            Who::Ours => Some(Self::Ours),
            Who::Background => Some(Self::Background),
            _ => None,
        };
        if let Some(ours) = ours {
            etcd_locked::init(spec.config()).await?;
            return Ok((0..spec.tasks).map(|_| ours.clone()).collect());
        }
        let client = Client::connect([&spec.endpoint], None).await?;
        let mut owner = Owner::new(&client).await?;
        let mut peers = Vec::new();
        for task in 0..spec.tasks {
            // The same as for Go: tasks that contend for a name are owners of their own.
            if task > 0 && spec.tasks > spec.names {
                owner = Owner::new(&client).await?;
            }
            let owner = owner.clone();
            peers.push(match spec.who {
                Who::Plain if spec.witness.is_some() => {
                    Self::InLine(Arc::new(Mutex::new(Line::new(owner).await?)))
                }
                Who::Plain => Self::Plain(owner),
                Who::Service => Self::Service(owner),
                Who::Raw | Who::Stored | Who::Guarded if task % BUNDLE == 0 => {
                    let names = task..spec.tasks.min(task + BUNDLE);
                    Self::Raw(Arc::new(Bundle::new(owner, names, spec.who).await?))
                }
                Who::Raw | Who::Stored | Who::Guarded => continue,
                Who::Ours | Who::Background | Who::Mutex => {
                    return Err("this peer makes no such calls".into());
                }
            });
        }
        Ok(peers)
    }

    /// Locks and unlocks; how many locks that were.
    pub(super) async fn call(&self, name: u64, witness: &Witness) -> Result<u64, Fault> {
        match self {
            Self::Ours => call(name, witness).await?,
            Self::Background => background(name, witness).await?,
            Self::Plain(owner) => owner.by_hand(name, witness).await?,
            Self::InLine(line) => line.lock().await.call(name, witness).await?,
            Self::Service(owner) => owner.by_service(name, witness).await?,
            Self::Raw(bundle) => return bundle.carry_out().await,
        }
        Ok(1)
    }
}

impl Owner {
    async fn new(client: &Client) -> Result<Self, Fault> {
        let lease = client.lease_client().grant(TTL, None).await?.id();
        Ok(Self {
            client: client.clone(),
            lease,
        })
    }

    /// What one writes without a library, where nobody else wants the name.
    async fn by_hand(&self, name: u64, witness: &Witness) -> Result<(), Fault> {
        let key = format!("plain/{name}");
        let mut kv = self.client.kv_client();
        let options = PutOptions::new().with_lease(self.lease);
        let put = Txn::new()
            .when([Compare::create_revision(key.as_str(), CompareOp::Equal, 0)])
            .and_then([TxnOp::put(key.as_str(), "", Some(options))]);
        if !kv.txn(put).await?.succeeded() {
            return Err(format!("`{key}` is held by somebody else").into());
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

impl Bundle {
    async fn new(owner: Owner, names: Range<u64>, kind: Who) -> Result<Self, Fault> {
        let session = format!("session/{}/{:x}", names.start, owner.lease);
        let lease = PutOptions::new().with_lease(owner.lease);
        let mut kv = owner.client.kv_client();
        let put = kv.put(session.as_str(), "", Some(lease)).await?;
        let revision = put.header().ok_or("no header")?.revision();
        Ok(Self {
            keys: names
                .map(|name| format!("{kind:?}/{name}/{:x}", owner.lease))
                .collect(),
            owner,
            kind,
            session: (session, revision),
        })
    }

    async fn carry_out(&self) -> Result<u64, Fault> {
        let mut kv = self.owner.client.kv_client();
        let answer = kv.txn(self.puts()).await?;
        let revision = answer.header().ok_or("no header")?.revision();
        if !(answer.succeeded() && kv.txn(self.deletions(revision)).await?.succeeded()) {
            return Err("somebody else was at the bundle's keys".into());
        }
        Ok(self.keys.len() as u64)
    }

    fn puts(&self) -> Txn {
        let lease = PutOptions::new().with_lease(self.owner.lease);
        let put = |key: &String| match self.kind {
            Who::Raw => TxnOp::put(key.as_str(), "", None),
            Who::Stored => TxnOp::put(key.as_str(), VALUE, Some(lease.clone())),
            _ => TxnOp::put(key.as_str(), VALUE, Some(lease.clone().with_prev_key())),
        };
        if self.kind != Who::Guarded {
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
    }

    fn deletions(&self, revision: i64) -> Txn {
        let keys = || self.keys.iter().map(String::as_str);
        let ours = |key| Compare::create_revision(key, CompareOp::Equal, revision);
        let compares: Vec<_> = match self.kind {
            Who::Guarded => keys().map(ours).collect(),
            _ => Vec::new(),
        };
        let deletions = keys().map(|key| TxnOp::delete(key, None));
        Txn::new()
            .when(compares)
            .and_then(deletions.collect::<Vec<_>>())
    }
}
