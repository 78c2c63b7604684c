//! Service under test: annotated functions, as users write them.

use std::time::Duration;

use etcd_locked::testing::{self, Etcd};
use etcd_locked::{Config, LockError, LockGuard, Locks, LossCause, current, etcd_locked};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Returns at once.
#[etcd_locked("orders/<id>", wait = "10s")]
pub(crate) async fn ship(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

/// Tries once.
#[etcd_locked("orders/<id>", wait = "none")]
pub(crate) async fn ship_now(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

/// Ships after `done` is sent.
#[etcd_locked("orders/<id>", wait = "10s")]
pub(crate) async fn pack(id: u64, done: oneshot::Receiver<()>) -> Result<u64, LockError> {
    assert!(current().is_some_and(|lock| lock.is_held()));
    let _ = done.await;
    Ok(id)
}

/// Call that runs in a separate task.
pub(crate) struct Packing {
    pub(crate) call: JoinHandle<Result<u64, LockError>>,
    done: oneshot::Sender<()>,
}

impl Packing {
    pub(crate) fn of(id: u64) -> Packing {
        let (done, receiver) = oneshot::channel();
        Packing { call: tokio::spawn(pack(id, receiver)), done }
    }

    /// Lets the body end, and awaits the call.
    pub(crate) async fn ship(self) -> Result<u64, LockError> {
        let _ = self.done.send(());
        self.call.await.expect("no panic")
    }

    /// Returns why the lock was lost; `None` if the call still runs.
    pub(crate) async fn loss(self) -> Option<LossCause> {
        if !self.call.is_finished() {
            return None;
        }
        match self.call.await.expect("no panic") {
            Err(LockError::Lost { cause, .. }) => Some(cause),
            other => panic!("not lost: {other:?}"),
        }
    }
}

pub(crate) async fn start() -> Etcd {
    testing::start().await.expect("it starts")
}

pub(crate) async fn start_with(configure: impl FnOnce(Config) -> Config) -> Etcd {
    testing::start_with(configure).await.expect("it starts")
}

/// Starts an etcd in which the engine of another process holds `orders/7`.
pub(crate) async fn held_elsewhere() -> (Etcd, Locks, LockGuard) {
    let etcd = start().await;
    let other = etcd.second().await.expect("another engine");
    let held = other.lock("orders/7").await.expect("a free name");
    (etcd, other, held)
}

/// Starts an etcd, and a call of this process that holds `orders/7`.
pub(crate) async fn held_here() -> (Etcd, Packing) {
    let etcd = start().await;
    let packing = Packing::of(7);
    etcd.advance(Duration::ZERO).await;
    (etcd, packing)
}

pub(crate) const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}
