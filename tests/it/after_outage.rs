//! Recovery from an outage that outlived the leases: names are served again soon, whatever is left of our own dead sessions.

use std::future::pending;
use std::time::Duration;

use etcd_locked::{LockError, Locks};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::corner::{Corner, connect};
use crate::etcd::Etcd;
use crate::limit::{run, within};
use crate::logs;

const NAMES: usize = 40;
/// How long after etcd is back every name must have been served again.
const SOON: Duration = Duration::from_secs(6);

/// How etcd goes, and comes back.
#[derive(Debug, Clone, Copy)]
enum Outage {
    /// It is frozen, and finds its leases expired when it goes on.
    Frozen,
    /// It is killed, and starts anew with all leases, each with its full TTL.
    Killed,
}

/// Tries a name, or queues for it, until the call is served. Answers the first error that named this process
/// as the holder.
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

async fn names_are_served_again(outage: Outage, (ttl, lasts): (Duration, Duration)) {
    logs::collect();
    let mut etcd = Etcd::start().await;
    let corner = Corner::of(&etcd).await;
    let locks = connect(corner.config().ttl(ttl)).await;
    let name = |at: usize| format!("jobs/{at}");
    let mut bodies = JoinSet::new();
    for at in 0..NAMES {
        let guard = within("a free name", locks.lock(name(at))).await;
        let guard = guard.expect("a free name");
        bodies.spawn(async move { guard.hold(pending::<()>()).await });
    }
    match outage {
        Outage::Frozen => etcd.stop(),
        Outage::Killed => etcd.kill(),
    }
    sleep(lasts).await;
    for ended in bodies.join_all().await {
        assert_matches!(ended, Err(LockError::Lost { .. }));
    }
    // Calls come before etcd is back: they keep the engine asking for it.
    let mut calls = JoinSet::new();
    for at in 0..NAMES {
        let call = until_served(locks.clone(), name(at), at % 2 == 0);
        calls.spawn(async move {
            let own = timeout(ttl * 3, call).await;
            (at, own, Instant::now())
        });
    }
    sleep(Duration::from_secs(1)).await;
    match outage {
        Outage::Frozen => etcd.cont(),
        Outage::Killed => etcd.start_again().await,
    }
    let back = Instant::now();
    let calls = calls.join_all().await;
    let calls: Vec<_> =
        calls.into_iter().map(|(at, own, served)| (at, own, served - back)).collect();
    let last = calls.iter().map(|(.., took)| *took).max();
    let last = last.expect("calls");
    println!("{outage:?} for {lasts:?}, TTL {ttl:?}: the last name was served after {last:.1?}");
    let mut wrong = Vec::new();
    for (at, own, took) in calls {
        match own {
            Err(_) => wrong.push(format!("`{}` was not served within {took:.1?}", name(at))),
            Ok(own) => {
                wrong.extend(own.map(|own| format!("{own:?}")));
                if took > SOON {
                    wrong.push(format!("`{}` was served after {took:.1?}", name(at)));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{outage:?}: {wrong:#?}");
    corner.until_empty().await;
    logs::until(&["etcd.lost", "lock.lost", "etcd.back"]).await;
}

const SHORT: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(12));
const LONG: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(35));

#[test]
fn names_are_served_soon_after_etcd_was_frozen() {
    run(names_are_served_again(Outage::Frozen, SHORT));
}

#[test]
fn names_are_served_soon_after_etcd_was_killed() {
    run(names_are_served_again(Outage::Killed, SHORT));
}

#[test]
#[ignore = "takes 40 s: `cargo test -p etcd-locked-tests --test it served_soon_after_a_long -- --ignored`"]
fn names_are_served_soon_after_a_long_freeze() {
    run(names_are_served_again(Outage::Frozen, LONG));
}

#[test]
#[ignore = "takes 40 s: `cargo test -p etcd-locked-tests --test it served_soon_after_a_long -- --ignored`"]
fn names_are_served_soon_after_a_long_absence() {
    run(names_are_served_again(Outage::Killed, LONG));
}
