//! Shutdown: it refuses new locks, waits for bodies, and leaves nothing in etcd, even with ten thousand locks held. The log has
//! one line about it.

use std::future::pending;
use std::time::Duration;

use etcd_locked::{LockError, Locks, LossCause, etcd_locked};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::corner::{Corner, begin_shutdown, connect, until_refused};
use crate::etcd::Etcd;
use crate::limit::{self, within, within_time};
use crate::logs;

const LOCKS: u64 = 10_000;
/// Long enough that a renewal of every session falls due.
const GRACE: Duration = Duration::from_secs(10);
/// So short that a body without a renewal ends with `Expired` before the grace is over.
const TTL: Duration = Duration::from_secs(8);
/// Far longer than releases take if their cost is linear.
const BOUND: Duration = Duration::from_secs(40);

#[etcd_locked("held/<id>", locks = &locks, wait = "forever")]
async fn body(locks: Locks, id: u64, signs: Signs) -> Result<(), LockError> {
    let mut leave = signs.leave.subscribe();
    signs.inside.send_modify(|inside| *inside += 1);
    if id % 2 == 1 {
        return pending().await;
    }
    let _ = leave.wait_for(|leave| *leave).await;
    if id == 0 {
        // A body that has begun may acquire the locks it needs to finish.
        drop(locks.lock("stock/9").await?);
    }
    Ok(())
}

/// Signals between bodies and the test.
#[derive(Clone)]
struct Signs {
    inside: watch::Sender<u64>,
    leave: watch::Sender<bool>,
}

#[limit::test]
async fn a_shutdown_waits_for_bodies_and_leaves_nothing() {
    logs::collect();
    // A separate etcd, because these writes would delay those of all other tests.
    let etcd = Etcd::start().await;
    let corner = Corner::of(&etcd).await;
    let config = corner.config().ttl(TTL).connect_timeout(BOUND);
    let (locks, others) = (connect(config.clone()).await, connect(config).await);
    let kept = others.lock("kept").await.unwrap();
    let signs = Signs { inside: watch::Sender::new(0), leave: watch::Sender::new(false) };
    let mut bodies = JoinSet::new();
    for id in 0..LOCKS {
        bodies.spawn(body(locks.clone(), id, signs.clone()));
    }
    let mut inside = signs.inside.subscribe();
    let all = inside.wait_for(|inside| *inside == LOCKS);
    within_time(BOUND, "every body inside", all).await.unwrap();
    let leases: Vec<_> = locks.status().leases().iter().map(|it| it.id()).collect();

    let shutdown = begin_shutdown(&locks, GRACE);
    until_refused(&locks, "free").await;
    assert!(!shutdown.is_finished(), "the shutdown did not wait for the bodies");
    // One half ends now, all at once; the end of the grace cuts off the other.
    signs.leave.send_replace(true);
    let drained = within_time(BOUND, "the shutdown", shutdown).await.unwrap();
    assert_eq!(drained.cut_off() as u64, LOCKS / 2, "{drained}");
    let (mut ended, mut cut) = (0, 0);
    while let Some(end) = within("a body's end", bodies.join_next()).await {
        match end.expect("no panic") {
            Ok(()) => ended += 1,
            Err(LockError::Lost { cause: LossCause::Shutdown, .. }) => cut += 1,
            Err(error) => panic!("after {ended} ends and {cut} cuts: {error:?}"),
        }
    }
    assert_eq!((ended, cut), (LOCKS / 2, LOCKS / 2));
    let lines = logs::about("held/<id>");
    let [line] = &lines[..] else { panic!("{lines:#?}") };
    assert!(line.contains("shutdown.cut_off") && line.contains(&format!("({cut})")), "{line}");
    let error = locks.lock("orders/8").await.unwrap_err();
    assert_matches!(error, LockError::ShuttingDown);
    assert!(!error.is_retryable());
    assert!(kept.is_held(), "another engine's renewals were starved");
    kept.release().await.unwrap();
    within("the other shutdown", others.shutdown(GRACE)).await;
    corner.until_empty().await;
    assert_eq!(corner.sessions().await, []);
    for lease in leases {
        assert!(!corner.lease_lives(lease).await, "lease {lease:x} is still there");
    }
}
