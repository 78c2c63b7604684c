//! `release = "background"`: the call does not wait for its release, which completes all the same.

use std::time::Duration;

use etcd_locked::{LockError, Locks, Token, current, etcd_locked};
use etcd_locked_devkit::{Direction, Proxy};

use crate::corner::{Corner, connect};
use crate::limit::{self, within};

#[etcd_locked("orders/<id>", locks = locks, release = "background")]
async fn visit(locks: &Locks, id: u64) -> Result<Token, LockError> {
    Ok(current().expect("a lock").token())
}

/// Cuts the engine's requests off as soon as the body runs.
#[etcd_locked("orders/<id>", locks = locks, release = "background")]
async fn freeze(locks: &Locks, id: u64, proxy: &Proxy) -> Result<(), LockError> {
    proxy.freeze(Direction::Requests);
    Ok(())
}

#[limit::test]
async fn the_call_returns_though_etcd_does_not_answer() {
    let (corner, proxy) = Corner::with_proxy().await;
    let locks = connect(corner.config_via([proxy.endpoint()])).await;
    within("the call", freeze(&locks, 7, &proxy)).await.unwrap();
    assert_eq!(corner.contenders("orders/7").await.len(), 1);
    proxy.thaw();
    corner.until_empty().await;
}

#[limit::test]
async fn consecutive_calls_keep_the_key() {
    let (corner, [locks]) = Corner::with_engines().await;
    let mut before = visit(&locks, 7).await.unwrap();
    let mut kept = 0;
    for _ in 0..200 {
        let token = visit(&locks, 7).await.unwrap();
        assert!(token > before, "{token:?} follows {before:?}");
        kept += u32::from(token.revision() == before.revision());
        before = token;
    }
    assert!(kept > 0, "each call created a new key");
    corner.until_empty().await;
}

#[limit::test]
async fn a_shutdown_waits_for_background_releases() {
    let (corner, [locks]) = Corner::with_engines().await;
    visit(&locks, 7).await.unwrap();
    let shutdown = locks.shutdown(Duration::from_secs(5));
    within("the shutdown's end", shutdown).await;
    assert_eq!(corner.contenders("orders/7").await, []);
}
