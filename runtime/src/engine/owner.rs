//! Owner of a name, read for the spans of calls that wait: once for all calls of a name that wait in the same second.
//!
//! Reads come one after the other, with a pause before each: an etcd that is slow is not asked more because calls wait for it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use etcd_locked_core::{Op, Request, Txn};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use super::Key;
use crate::clock::Clock;
use crate::mutex::lock;
use crate::transport::client::Client;
use crate::values::Holder;

/// How long calls wait before it is worth a read. An owner's record is that of its call after as long.
const LONG: Duration = Duration::from_secs(1);
/// The pause before each read.
const PACE: Duration = Duration::from_millis(50);

/// What wants to know who owns a name.
pub(crate) trait Waiter: Send + Sync {
    fn owned_by(&self, owner: &Holder);
}

type Waiters = Vec<Weak<dyn Waiter>>;

/// Reads of owners. Clones share them.
#[derive(Debug, Clone)]
pub(super) struct Owners {
    client: Weak<Client>,
    clock: Arc<dyn Clock>,
    turn: Arc<Semaphore>,
    /// Those who have come since the last read of a name.
    waiters: Arc<Mutex<BTreeMap<Key, Waiters>>>,
}

impl Owners {
    pub(super) fn new(client: Weak<Client>, clock: Arc<dyn Clock>) -> Self {
        Self { client, clock, turn: Arc::new(Semaphore::new(1)), waiters: Arc::default() }
    }

    /// Has a waiter learn within about a second who owns a name, given with its prefix, if it is still there.
    pub(super) fn show(&self, runtime: &Handle, name: &Key, waiter: Weak<dyn Waiter>) {
        let mut all = lock(&self.waiters);
        let of_name = all.entry(name.clone()).or_default();
        of_name.push(waiter);
        if of_name.len() == 1 {
            drop(all);
            runtime.spawn(self.clone().read(name.clone()));
        }
    }

    /// Reads a name's owner in a second, for all who wait by then.
    async fn read(self, name: Key) {
        self.clock.sleep_until(self.clock.now() + LONG).await;
        let _turn = self.turn.acquire().await;
        let waiters = lock(&self.waiters).remove(&name).unwrap_or_default();
        if waiters.iter().all(|waiter| waiter.strong_count() == 0) {
            return;
        }
        self.clock.sleep_until(self.clock.now() + PACE).await;
        if let Some(owner) = owner(&self.client, &name).await {
            for waiter in waiters.iter().filter_map(Weak::upgrade) {
                waiter.owned_by(&owner);
            }
        }
    }
}

/// The record of the oldest contender. Nothing is said of a failure: a trace is not worth a line in the log.
async fn owner(client: &Weak<Client>, name: &Key) -> Option<Holder> {
    let oldest =
        Op::Range { prefix: format!("{name}/").into(), limit: Some(1), values: true, up_to: None };
    let read = Txn { then: vec![oldest], ..Txn::default() };
    let answer = client.upgrade()?.exchange(Request::Txn(read)).await;
    let oldest = answer.and_then(|answer| answer.txn()).ok()?.firsts().next()??;
    Holder::parse(&oldest.value)
}
