//! Owner of a name, read for the spans of waiting calls: once for all calls that wait for the name in the same second.
//!
//! Reads are sequential, with a pause before each: a slow etcd does not receive more requests because calls wait for it.

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

/// How long a call waits before its owner is read. A record describes the owner's call after the same time.
const LONG: Duration = Duration::from_secs(1);
/// Pause before each read.
const PACE: Duration = Duration::from_millis(50);

/// Receiver of a name's owner.
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
    /// Waiters that came since the last read of a name.
    waiters: Arc<Mutex<BTreeMap<Key, Waiters>>>,
}

impl Owners {
    pub(super) fn new(client: Weak<Client>, clock: Arc<dyn Clock>) -> Self {
        Self { client, clock, turn: Arc::new(Semaphore::new(1)), waiters: Arc::default() }
    }

    /// Tells a waiter within about a second who owns a name (given with its prefix), if the waiter still exists.
    pub(super) fn show(&self, runtime: &Handle, name: &Key, waiter: Weak<dyn Waiter>) {
        let mut all = lock(&self.waiters);
        let of_name = all.entry(name.clone()).or_default();
        of_name.push(waiter);
        if of_name.len() == 1 {
            drop(all);
            runtime.spawn(self.clone().read(name.clone()));
        }
    }

    /// Reads a name's owner in a second, for all that wait by then.
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

/// Returns the record of the oldest contender. Failures are ignored: a trace is not worth a log line.
async fn owner(client: &Weak<Client>, name: &Key) -> Option<Holder> {
    let oldest =
        Op::Range { prefix: format!("{name}/").into(), limit: Some(1), values: true, up_to: None };
    let read = Txn { then: vec![oldest], ..Txn::default() };
    let answer = client.upgrade()?.exchange(Request::Txn(read)).await;
    let oldest = answer.and_then(|answer| answer.txn()).ok()?.firsts().next()??;
    Holder::parse(&oldest.value)
}
