//! Owner of a name, read for the span of a call that waits: one read at a time and at most a hundred a second, however many
//! calls wait.

use std::sync::Arc;
use std::time::Duration;

use etcd_locked_core::{Op, Request, Txn};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;

use super::Key;
use crate::clock::Clock;
use crate::transport::client::WeakClient;
use crate::values::holder::Holder;

/// How long a call waits before it is worth a read. An owner's record is that of its call after as long.
const LONG: Duration = Duration::from_secs(1);
/// The pause before each read.
const PACE: Duration = Duration::from_millis(10);

/// Reads of owners.
#[derive(Debug)]
pub(super) struct Owners {
    client: WeakClient,
    clock: Arc<dyn Clock>,
    turn: Arc<Semaphore>,
}

impl Owners {
    pub(super) fn new(client: WeakClient, clock: Arc<dyn Clock>) -> Self {
        Self {
            client,
            clock,
            turn: Arc::new(Semaphore::new(1)),
        }
    }

    /// Has something done with the owner that a name, given with its prefix, has in a second. Aborted, nothing is done.
    pub(super) fn later(
        &self,
        runtime: &Handle,
        name: Key,
        found: impl FnOnce(&Holder) + Send + 'static,
    ) -> AbortHandle {
        let (client, clock, turn) = (self.client.clone(), self.clock.clone(), self.turn.clone());
        let read = async move {
            clock.sleep_until(clock.now() + LONG).await;
            let _turn = turn.acquire().await;
            clock.sleep_until(clock.now() + PACE).await;
            if let Some(owner) = owner(&client, &name).await {
                found(&owner);
            }
        };
        runtime.spawn(read).abort_handle()
    }
}

/// The record of the oldest contender. Nothing is said of a failure: a trace is not worth a line in the log.
async fn owner(client: &WeakClient, name: &Key) -> Option<Holder> {
    let oldest = Op::Range {
        prefix: format!("{name}/").into(),
        limit: Some(1),
        values: true,
        up_to: None,
    };
    let read = Txn {
        then: vec![oldest],
        ..Txn::default()
    };
    let answer = client.upgrade()?.exchange(Request::Txn(read)).await;
    let oldest = answer
        .and_then(|answer| answer.txn())
        .ok()?
        .firsts()
        .next()??;
    Holder::parse(&oldest.value)
}
