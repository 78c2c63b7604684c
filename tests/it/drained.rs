//! Shutdown with bodies that do not end by themselves: it ends within the grace and one exchange, and reports what is left.

use std::future::pending;
use std::time::Duration;

use etcd_locked::{Drained, LockError, Locks, LossCause};
use tokio::time::Instant;

use crate::corner::{Corner, connect, pass, spawn, take};
use crate::etcd::Etcd;
use crate::limit::{self, run, within, within_time};
use crate::logs;

const GRACE: Duration = Duration::from_secs(1);
/// How long one exchange with etcd may take, plus slack for a busy machine.
const EXCHANGE: Duration = Duration::from_secs(12);
/// Far longer than a shutdown may take.
const TTL: Duration = Duration::from_secs(60);

async fn shut_down(what: &str, locks: Locks) -> Drained {
    let began = Instant::now();
    let drained = within_time(GRACE + EXCHANGE, what, locks.shutdown(GRACE)).await;
    println!("{what}: {drained} after {:.1?}", began.elapsed());
    drained
}

fn left(drained: &Drained) -> Vec<String> {
    let names = drained.left().iter();
    names.map(|name| format!("{name:?}")).collect()
}

#[limit::test]
async fn a_shutdown_says_what_ended_and_what_is_left() {
    logs::collect();
    let corner = Corner::new().await;
    let locks = corner.locks_with_ttl(TTL).await;
    let kept = take("a free name", locks.lock("kept")).await;
    let lease = corner.leases("kept").await;
    // Under a separate session, which has no body left at the end.
    let given = take("a free name", locks.lock("given").ttl(TTL / 2)).await;
    let session = corner.leases("given").await;
    let body = take("a free name", locks.lock("body")).await;
    let body = tokio::spawn(async move { body.hold(pending::<()>()).await });
    let queued = spawn(locks.lock("kept").wait_forever());
    let shutdown = tokio::spawn(shut_down("a kept guard", locks.clone()));
    let refused = async {
        // A held name, because a lock that is acquired here might count as one that has ended.
        let call = || locks.lock("kept").try_once();
        while !matches!(call().await, Err(LockError::ShuttingDown)) {
            tokio::task::yield_now().await;
        }
    };
    within("a refusal", refused).await;
    drop(given);
    let drained = within("the shutdown's end", shutdown).await.unwrap();
    assert!(!kept.is_held());
    assert_eq!((drained.ended(), drained.cut_off()), (1, 1), "{drained:?}");
    assert_eq!(left(&drained), ["\"kept\""]);
    assert_eq!(drained.leases(), 1, "{drained:?}");
    assert!(!drained.is_complete());
    // No wait here, because the shutdown has awaited the keys that could go.
    assert_eq!(keys_left(&corner).await, [corner.below("kept")]);
    // The body that was not dropped may still be polled, as far as its lease knows (rule P26).
    assert!(corner.lease_lives(*lease.first().unwrap()).await);
    assert!(!corner.lease_lives(*session.first().unwrap()).await);
    assert_eq!(within("the cause", kept.lost()).await, LossCause::Shutdown);
    let late = within("a late body", kept.hold(pending::<()>())).await;
    assert_matches!(late, Err(LockError::ShuttingDown));
    assert_eq!(shut_down("a second time", locks).await, Drained::default());
    let queued = within("the waiter's refusal", queued).await.unwrap();
    assert_matches!(queued, Err(LockError::ShuttingDown));
    let body = within("the body's end", body).await.unwrap();
    assert_matches!(body, Err(LockError::Lost { .. }));
    logs::until(&["shutdown.cut_off", "shutdown.incomplete"]).await;
}

/// Returns the keys of the corner, without their leases.
async fn keys_left(corner: &Corner) -> Vec<String> {
    let keys = corner.keys(&corner.prefix).await.into_iter();
    keys.filter_map(|key| Some(key.text.rsplit_once('/')?.0.to_owned() + "/")).collect()
}

/// Shuts down a guard, a waiter and a retained name after etcd has failed.
async fn shutdown_after(what: &str, goes: impl FnOnce(&mut Etcd)) {
    let mut etcd = Etcd::start().await;
    let corner = Corner::of(&etcd).await;
    let locks = connect(corner.config().ttl(TTL)).await;
    let kept = take("a free name", locks.lock("kept")).await;
    let given = take("a free name", locks.lock("given")).await;
    let call = locks.lock("retained").min_hold(TTL);
    let retained = take("a free name", call).await;
    let queued = spawn(locks.lock("kept").wait_forever());
    goes(&mut etcd);
    drop(given);
    drop(retained);
    let drained = shut_down(what, locks).await;
    assert!(!kept.is_held());
    assert_eq!(left(&drained), ["\"kept\"", "\"retained\""], "{drained:?}");
    assert_eq!(drained.leases(), 1, "{drained:?}");
    assert_eq!((drained.ended(), drained.cut_off()), (0, 0), "{drained:?}");
    let queued = within("the waiter's refusal", queued).await.expect("no panic");
    assert_matches!(queued, Err(LockError::ShuttingDown | LockError::Backend { .. }));
}

/// There are more keys than one transaction moves, and a body that a shutdown ends; all stay for less than the TTL.
#[limit::test]
async fn names_stay_locked_for_their_time_after_a_shutdown() {
    const NAMES: usize = 70;
    const LEAST: Duration = Duration::from_secs(6);
    let corner = Corner::new().await;
    let locks = corner.locks_with_ttl(TTL).await;
    let began = Instant::now();
    for name in 0..NAMES {
        pass("a free name", locks.lock(format!("rest/{name}")).min_hold(LEAST)).await;
    }
    let call = locks.lock("rest/body").min_hold(LEAST);
    let body = take("a free name", call).await;
    let body = tokio::spawn(async move { body.hold(pending::<()>()).await });
    let held = corner.keys(&corner.prefix).await;
    let drained = shut_down("many names", locks).await;
    assert!(drained.is_complete(), "{drained:?}");
    assert_matches!(within("the body's end", body).await.unwrap(), Err(LockError::Lost { .. }));
    let left = corner.keys(&corner.prefix).await;
    assert_eq!(left.len(), NAMES + 1);
    for (held, left) in held.iter().zip(&left) {
        assert_eq!((&left.text, left.created), (&held.text, held.created));
        assert!(left.lease != held.lease && !left.value.is_empty());
    }
    corner.until_empty().await;
    assert!(began.elapsed() >= LEAST && began.elapsed() < TTL / 2, "{:?}", began.elapsed());
}

#[test]
fn retention_does_not_block_a_shutdown_on_a_frozen_etcd() {
    run(shutdown_after("a frozen", |etcd| etcd.stop()));
}

#[test]
fn retention_does_not_block_a_shutdown_on_a_dead_etcd() {
    run(shutdown_after("a dead", Etcd::kill));
}
