//! etcd restored from a snapshot: locks are lost with the first answers, old keys go within a TTL, and watches live.

use std::future::pending;
use std::time::Duration;

use etcd_locked::{LockError, Locks, LossCause};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::corner::{Corner, Key, connect, pass, spawn, take};
use crate::etcd::Etcd;
use crate::limit::{self, within, within_time};
use crate::real_only::real_etcd_only;

const TTL: Duration = Duration::from_secs(15);
/// A session is renewed every third of its TTL, and the barrier after that takes one exchange. Two renewals, or expiry, would take
/// longer.
const NOTICED: Duration = Duration::from_secs(9);
/// Less than the five seconds after which a waiter reads what its watch has not shown.
const BY_WATCH: Duration = Duration::from_secs(3);
const HELD: usize = 20;

/// Holds a name until it is lost; why.
async fn hold(locks: Locks, name: String) -> (String, LossCause) {
    let guard = take("a free name", locks.lock(&*name)).await;
    match guard.hold(pending::<()>()).await {
        Err(LockError::Lost { cause, .. }) => (name, cause),
        other => panic!("`{name}`: {other:?}"),
    }
}

/// A name goes from one engine to the other as soon as it is released, and from a holder as soon as its key is deleted.
async fn watches_live(corner: &Corner, one: &Locks, two: &Locks, name: &str) {
    let guard = take("a name", one.lock(name).wait_forever()).await;
    let waiter = spawn(two.lock(name).wait_forever());
    corner.until_contenders(name, 2).await;
    // The waiter's watch is what is asked for: early reads beside a fresh one are over by then.
    tokio::time::sleep(Duration::from_secs(1)).await;
    guard.release().await.expect("a release");
    let next = within_time(BY_WATCH, "the waiter's admission", waiter).await;
    let next = next.expect("no panic").expect("served");
    let own = corner.contenders(name).await.remove(0);
    let body = tokio::spawn(async move { next.hold(pending::<()>()).await });
    tokio::time::sleep(Duration::from_secs(2)).await; // by then a holder watches its key
    let deleted = corner.client.clone().delete(own.text, None).await;
    deleted.expect("an operator's delete");
    let lost = within_time(BY_WATCH, "the loss", body).await;
    let lost = lost.expect("no panic");
    assert_matches!(lost, Err(LockError::Lost { .. }));
}

#[limit::test]
async fn ownership_is_lost_soon_and_watches_live_after_a_restore() {
    real_etcd_only!("an embedded etcd makes no snapshot");
    let mut etcd = Etcd::start().await;
    let corner = Corner::of(&etcd).await;
    let config = corner.config().ttl(TTL);
    let (one, two) = (connect(config.clone()).await, connect(config).await);

    // In the snapshot: both engines hold names, each waits for names of the other, and some are about to be released.
    let mut bodies = JoinSet::new();
    for at in 0..HELD {
        bodies.spawn(hold(one.clone(), format!("one/{at}")));
        bodies.spawn(hold(two.clone(), format!("two/{at}")));
    }
    let mut given = Vec::new();
    for at in 0..HELD {
        let name = format!("given/{at}");
        given.push(take("a free name", one.lock(name)).await);
    }
    let mut waiters = Vec::new();
    for (mine, theirs) in [(&one, "two"), (&two, "one")] {
        for at in 0..HELD {
            let name = format!("{theirs}/{at}");
            corner.until_contenders(&name, 1).await;
            waiters.push(spawn(mine.lock(&*name).wait_forever()));
            corner.until_contenders(&name, 2).await;
        }
    }
    etcd.save();
    for guard in given {
        guard.release().await.expect("a release");
    }
    for _ in 0..3 {
        pass("a free name", two.lock("traffic")).await;
    }
    let mut old: Vec<i64> = corner.sessions().await.iter().map(|it| it.lease).collect();
    for name in ["one/0", "two/0"] {
        old.extend(corner.leases(name).await);
    }
    etcd.kill();
    etcd.restore();
    etcd.start_again().await;
    let back = Instant::now();

    let mut wrong = Vec::new();
    let mut last = Duration::ZERO;
    while let Ok(Some(lost)) = timeout(NOTICED, bodies.join_next()).await {
        let (name, cause) = lost.expect("no panic");
        last = back.elapsed();
        if cause == LossCause::Expired || last > NOTICED {
            wrong.push(format!("`{name}` was lost by {cause:?} after {last:.1?}"));
        }
    }
    println!("the last lock was lost after {last:.1?}");
    assert!(bodies.is_empty(), "{} locks are not lost", bodies.len());
    assert!(wrong.is_empty(), "{wrong:#?}");
    for waiter in waiters {
        let next = within("a waiter's admission", waiter).await;
        let released = next.expect("no panic").expect("served").release().await;
        // One may be served by the restored history before its engine knows that it is another.
        let wiped = |error: &LockError| match error {
            LockError::Lost { cause, .. } => *cause == LossCause::Wiped,
            _ => false,
        };
        assert!(released.as_ref().err().is_none_or(wiped), "{released:?}");
    }
    println!("the last waiter was served after {:.1?}", back.elapsed());
    let gone = |keys: &[Key]| !keys.iter().any(|key| old.contains(&key.lease));
    for below in [corner.prefix.clone(), corner.session_prefix()] {
        let gone = corner.until("no key of a session of before", &below, gone);
        let left = TTL.saturating_sub(back.elapsed());
        within_time(left, "the end of the old sessions", gone).await;
    }
    println!("the last old key was gone after {:.1?}", back.elapsed());
    watches_live(&corner, &one, &two, "one/0").await;
    watches_live(&corner, &two, &one, "given/0").await;
    corner.until_empty().await;
}
