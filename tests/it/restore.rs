//! Restore of etcd from a snapshot: etcd's state is an older one, and every lock held across it is lost with the first responses.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use etcd_locked::{LockError, LockGuard, Locks, LossCause};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::corner::{Corner, Key, admitted, connect, pass, spawn, take};
use crate::etcd::Etcd;
use crate::limit::{self, within, within_time};
use crate::real_only::real_etcd_only;

const TTL: Duration = Duration::from_secs(15);
/// One renewal, after a third of the TTL, plus one exchange for the barrier after it. Two renewals, or the expiry, would take
/// longer.
const NOTICED: Duration = Duration::from_secs(9);
/// Less than the five seconds after which a waiter reads what its watch did not report.
const BY_WATCH: Duration = Duration::from_secs(3);

/// Number of bodies inside, and the largest number at once so far.
type Inside = Arc<[AtomicUsize; 2]>;

/// Awaits this call's lock, and holds it until it is lost; returns the cause.
fn stay(call: JoinHandle<Result<LockGuard, LockError>>, inside: &Inside) -> JoinHandle<LossCause> {
    let inside = inside.clone();
    tokio::spawn(async move {
        let guard = admitted("a waiter's admission", call).await;
        let ended = guard.hold(visit(&inside, pending())).await;
        let Err(LockError::Lost { cause, .. }) = ended else { panic!("{ended:?}") };
        cause
    })
}

async fn visit(inside: &Inside, body: impl Future<Output = ()>) {
    struct Leave<'a>(&'a AtomicUsize);
    impl Drop for Leave<'_> {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::SeqCst);
        }
    }
    let [now, most] = &**inside;
    most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
    let _leave = Leave(now);
    body.await;
}

/// Makes a call that waits, and then runs a short body.
fn wait(locks: &Locks, name: &str, inside: &Inside) -> JoinHandle<Result<(), LockError>> {
    let (call, inside) = (locks.lock(name).wait_forever(), inside.clone());
    tokio::spawn(async move {
        let guard = call.await?;
        guard.hold(visit(&inside, sleep(Duration::from_millis(50)))).await?;
        guard.release().await
    })
}

/// Checks that a name passes on as soon as it is released, and that a holder loses it as soon as its key is deleted.
async fn watches_live(corner: &Corner, one: &Locks, two: &Locks, name: &str) {
    let guard = take("a name", one.lock(name).wait_forever()).await;
    let waiter = spawn(two.lock(name).wait_forever());
    corner.until_contenders(name, 2).await;
    // This tests the waiter's watch: the early reads beside a fresh watch are over by then.
    sleep(Duration::from_secs(1)).await;
    guard.release().await.expect("a release");
    let next = within_time(BY_WATCH, "the waiter's admission", waiter).await;
    let next = next.expect("no panic").expect("served");
    let own = corner.owner(name).await;
    let body = tokio::spawn(async move { next.hold(pending::<()>()).await });
    sleep(Duration::from_secs(2)).await; // by then a holder watches its key
    corner.client.clone().delete(own.text, None).await.expect("an operator's delete");
    let lost = within_time(BY_WATCH, "the loss", body).await.expect("no panic");
    assert_matches!(lost, Err(LockError::Lost { .. }));
    let held = take("a name", one.lock(name).wait_forever()).await;
    corner.kick(one, name).await;
    assert_eq!(within_time(BY_WATCH, "the kick", held.lost()).await, LossCause::Kicked);
}

#[limit::test]
async fn a_restore_costs_every_lock_held_and_nothing_else() {
    real_etcd_only!("an embedded etcd makes no snapshot");
    let mut etcd = Etcd::start().await;
    let corner = Corner::of(&etcd).await;
    // The waiters outlast a restore on a busy machine.
    let config = corner.config().ttl(TTL).connect_timeout(Duration::from_secs(20));
    let (one, two) = (connect(config.clone()).await, connect(config).await);
    let [held, moved, alone] = [(); 3].map(|()| Inside::default());

    // In the snapshot: `one` holds three names, and `two` waits for two of them.
    let holder = stay(spawn(one.lock("held")), &held);
    corner.until_contenders("held", 1).await;
    let waiter = wait(&two, "held", &held);
    let moving = take("a free name", one.lock("moved")).await;
    let mover = stay(spawn(two.lock("moved").wait_forever()), &moved);
    let freed = take("a free name", one.lock("freed")).await;
    corner.until_contenders("held", 2).await;
    corner.until_contenders("moved", 2).await;
    // A guard without a body, so that the engine has a session all the time.
    let guard = take("a free name", two.lock("guarded")).await;
    etcd.save();

    // After the snapshot: one name passes to `two`, one is released, one is acquired.
    moving.release().await.unwrap();
    corner.until_contenders("moved", 1).await;
    let follower = wait(&one, "moved", &moved);
    corner.until_contenders("moved", 2).await;
    freed.release().await.unwrap();
    let newcomer = stay(spawn(one.lock("later")), &alone);
    corner.until_contenders("later", 1).await;
    // The restored history is far behind, and stays behind until the end.
    for _ in 0..200 {
        pass("a free name", two.lock("traffic")).await;
    }
    // The watches for kicks have seen one.
    let kick = corner.session_prefix() + "kick/0";
    corner.client.clone().put(kick, "not a kick", None).await.expect("a put");
    let mut old: Vec<i64> = corner.sessions().await.iter().map(|it| it.lease).collect();
    for name in ["held", "moved", "later"] {
        old.extend(corner.leases(name).await);
    }

    let revision = corner.revision().await;
    etcd.kill();
    etcd.restore();
    etcd.start_again().await;
    let back = Instant::now();
    assert!(corner.revision().await < revision);

    // Reports all failures together, because one often hides another.
    let mut wrong = Vec::new();
    for (name, body) in [("held", holder), ("moved", mover), ("later", newcomer)] {
        match timeout(NOTICED.saturating_sub(back.elapsed()), body).await {
            // A session does not expire while etcd responds to its renewals.
            Ok(Ok(cause)) if cause != LossCause::Expired => {}
            other => wrong.push(format!("`{name}`: {other:?}")),
        }
    }
    for (name, call) in [("held", waiter), ("moved", follower)] {
        match timeout(TTL, call).await {
            // Admitted in the restored history, before its engine knew that it is another one.
            Ok(Ok(Ok(()) | Err(LockError::Lost { cause: LossCause::Wiped, .. }))) => {}
            other => wrong.push(format!("the waiter for `{name}`: {other:?}")),
        }
    }
    for (name, inside) in [("held", held), ("moved", moved)] {
        let most = inside[1].load(Ordering::SeqCst);
        if most > 1 {
            wrong.push(format!("{most} held `{name}` at once"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    for name in ["held", "moved", "freed", "later", "traffic", "new"] {
        for locks in [&one, &two] {
            pass(&format!("a call for `{name}`"), locks.lock(name).wait_forever()).await;
        }
    }
    let gone = |keys: &[Key]| !keys.iter().any(|key| old.contains(&key.lease));
    for below in [corner.prefix.clone(), corner.session_prefix()] {
        within("the old keys' end", corner.until("no key of before", &below, gone)).await;
    }
    watches_live(&corner, &one, &two, "held").await;
    watches_live(&corner, &two, &one, "freed").await;
    drop(guard);
    corner.until_empty().await;
}
