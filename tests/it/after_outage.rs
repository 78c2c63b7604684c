//! Recovery from an outage that outlived the leases: names are served again soon, although keys of our dead sessions remain.

use std::future::pending;
use std::time::Duration;

use etcd_locked::{LockError, Locks};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::corner::{Corner, connect, take};
use crate::etcd::Etcd;
use crate::limit::run;
use crate::logs;

const NAMES: usize = 40;
/// Time after etcd's return within which every name must be served again.
const SOON: Duration = Duration::from_secs(6);

const TTL: Duration = Duration::from_secs(10);
const LASTS: Duration = Duration::from_secs(12);

/// Tries a name, or queues for it, until the call gets the lock. Returns the first error that named this process as the holder.
async fn until_served(locks: Locks, name: String, tries: bool) -> Option<LockError> {
    let mut own = None;
    loop {
        let call = locks.lock(&*name);
        let served = match tries {
            true => call.try_once().await,
            false => call.wait(Duration::from_millis(500)).await,
        };
        let error = match served {
            Ok(guard) => match guard.release().await {
                Ok(()) => return own,
                Err(error) => error,
            },
            Err(error) => error,
        };
        if let LockError::Held { holder, .. } | LockError::Timeout { holder, .. } = &error
            && let Some(holder) = holder
            && holder.pid() == std::process::id()
        {
            own.get_or_insert(error);
        }
        sleep(Duration::from_millis(20)).await; // not in a busy loop
    }
}

/// A frozen etcd finds its leases expired when it continues. A killed one restarts with all leases, each with its full TTL.
async fn names_are_served_again(freezes: bool) {
    logs::collect();
    let mut etcd = Etcd::start().await;
    let corner = Corner::of(&etcd).await;
    let locks = connect(corner.config().ttl(TTL)).await;
    let name = |at: usize| format!("jobs/{at}");
    let mut bodies = JoinSet::new();
    for at in 0..NAMES {
        let guard = take("a free name", locks.lock(name(at))).await;
        bodies.spawn(async move { guard.hold(pending::<()>()).await });
    }
    match freezes {
        true => etcd.stop(),
        false => etcd.kill(),
    }
    sleep(LASTS).await;
    for ended in bodies.join_all().await {
        assert_matches!(ended, Err(LockError::Lost { .. }));
    }
    // Calls arrive before etcd is back, so the engine keeps trying to reach it.
    let mut calls = JoinSet::new();
    for at in 0..NAMES {
        let call = until_served(locks.clone(), name(at), at % 2 == 0);
        calls.spawn(async move { (timeout(TTL * 3, call).await, Instant::now()) });
    }
    sleep(Duration::from_secs(1)).await;
    match freezes {
        true => etcd.cont(),
        false => etcd.start_again().await,
    }
    let back = Instant::now();
    for (own, served) in calls.join_all().await {
        assert!(
            matches!(own, Ok(None)),
            "not served, or refused by a holder of this process: {own:?}"
        );
        assert!(served - back < SOON, "served after {:?}", served - back);
    }
    corner.until_empty().await;
    logs::until(&["etcd.lost", "lock.lost", "etcd.back"]).await;
}

#[test]
fn names_are_served_soon_after_etcd_was_frozen() {
    run(names_are_served_again(true));
}

#[test]
fn names_are_served_soon_after_etcd_was_killed() {
    run(names_are_served_again(false));
}
