//! Background releases (`release = "background"`): the call does not wait for its release, which still completes.

use std::time::Duration;

use etcd_locked::{LockError, Locks, etcd_locked};
use etcd_locked_devkit::{Direction, Proxy};

use crate::corner::{Corner, connect};
use crate::limit::{self, within};

/// Cuts off the engine's requests as soon as the body runs.
#[etcd_locked("orders/<id>", locks = locks, release = "background")]
async fn freeze(locks: &Locks, id: u64, proxy: &Proxy) -> Result<(), LockError> {
    proxy.freeze(Direction::Requests);
    Ok(())
}

#[limit::test]
async fn the_call_returns_and_a_shutdown_waits_for_its_release() {
    let (corner, proxy) = Corner::with_proxy().await;
    let locks = connect(corner.config_via([proxy.endpoint()])).await;
    within("the call", freeze(&locks, 7, &proxy)).await.unwrap();
    assert_eq!(corner.contenders("orders/7").await.len(), 1);
    proxy.thaw();
    let shutdown = locks.shutdown(Duration::from_secs(5));
    within("the shutdown's end", shutdown).await;
    assert_eq!(corner.contenders("orders/7").await, []);
}
