//! etcd restored from a snapshot: what it says is an older truth, and every lock held across it is lost.

use std::future::{IntoFuture, pending};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use etcd_locked::{LockError, LockGuard, Locks, LossCause};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::corner::{Corner, admitted, connect, pass, spawn, take};
use crate::etcd::Etcd;
use crate::limit;
use crate::real_only::real_etcd_only;

/// What lives for longer is renewed: `until` waits for three times as long.
const TTL: Duration = Duration::from_secs(12);

/// More than a TTL: by then a session that was not renewed is gone.
const NOTICED: Duration = Duration::from_secs(16);

/// Sees two bodies at once.
#[derive(Clone, Default)]
struct Inside(Arc<[AtomicUsize; 2]>);

struct Visit(Inside);

impl Inside {
    fn enter(&self) -> Visit {
        let [now, most] = &*self.0;
        most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        Visit(self.clone())
    }

    /// How many bodies there have been at once.
    fn most(&self) -> usize {
        self.0[1].load(Ordering::SeqCst)
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.0.0[0].fetch_sub(1, Ordering::SeqCst);
    }
}

/// A body that ends with its lock only; why.
fn stay(guard: LockGuard, name: &'static str, inside: &Inside) -> JoinHandle<LossCause> {
    let inside = inside.clone();
    tokio::spawn(async move {
        let body = async {
            let _visit = inside.enter();
            pending::<()>().await;
        };
        match guard.hold(body).await {
            Err(LockError::Lost { cause, .. }) => cause,
            other => panic!("`{name}`: {other:?}"),
        }
    })
}

/// A call that waits, and its body when it is served.
fn wait(locks: &Locks, name: &'static str, inside: &Inside) -> JoinHandle<Result<(), LockError>> {
    let (call, inside) = (locks.lock(name).wait_forever(), inside.clone());
    tokio::spawn(async move {
        let guard = call.into_future().await?;
        let body = async {
            let _visit = inside.enter();
            sleep(Duration::from_millis(50)).await;
        };
        guard.hold(body).await?;
        guard.release().await
    })
}

#[limit::test]
async fn a_restore_from_a_snapshot_costs_every_lock_held() {
    real_etcd_only!("an embedded etcd makes no snapshot");
    let mut etcd = Etcd::start().await;
    let corner = Corner::of(&etcd).await;
    // The waiters outlast a restore on a busy machine.
    let patience = Duration::from_secs(20);
    let config = corner.config().ttl(TTL).connect_timeout(patience);
    let (one, two) = (connect(config.clone()).await, connect(config).await);
    let [held, moved, alone] = [(); 3].map(|()| Inside::default());

    // In the snapshot: `one` holds three names, and `two` waits for two of them.
    let holder = stay(one.lock("held").await.unwrap(), "held", &held);
    let waiter = wait(&two, "held", &held);
    let moving = take("a free name", one.lock("moved")).await;
    let mover = spawn(two.lock("moved").wait_forever());
    let freed = take("a free name", one.lock("freed")).await;
    corner.until_contenders("held", 2).await;
    corner.until_contenders("moved", 2).await;
    etcd.save();

    // After the snapshot: one name goes over to `two`, one is released, one is taken.
    moving.release().await.unwrap();
    let moving = admitted("the waiter", mover).await;
    let mover = stay(moving, "moved", &moved);
    let follower = wait(&one, "moved", &moved);
    corner.until_contenders("moved", 2).await;
    freed.release().await.unwrap();
    let newcomer = stay(one.lock("later").await.unwrap(), "later", &alone);
    for _ in 0..20 {
        pass("a free name", two.lock("traffic")).await;
    }
    let mut old: Vec<i64> = corner.sessions().await.iter().map(|it| it.lease).collect();
    for name in ["held", "moved", "later"] {
        old.extend(corner.leases(name).await);
    }

    let revision = corner.revision().await;
    etcd.kill();
    etcd.restore();
    etcd.start_again().await;
    let restored = corner.revision().await;
    assert!(restored < revision, "{restored} after {revision}");

    // All that is wrong is said together: one fault often hides another.
    let mut wrong = Vec::new();
    for (name, body) in [("held", holder), ("moved", mover), ("later", newcomer)] {
        let lost = timeout(NOTICED, body).await;
        match lost {
            // A session that etcd answers does not expire: what etcd says of it is not so.
            Ok(cause) if cause.as_ref().is_ok_and(|it| *it != LossCause::Expired) => {}
            Ok(cause) => wrong.push(format!("`{name}` was lost by {cause:?}")),
            Err(_) => wrong.push(format!("`{name}` was not lost within {NOTICED:?}")),
        }
    }
    for (name, call) in [("held", waiter), ("moved", follower)] {
        let served = timeout(NOTICED, call).await;
        match served {
            // Served by the restored history, before its engine knew that it is another.
            Ok(Ok(Ok(()) | Err(LockError::Lost { cause: LossCause::Wiped, .. }))) => {}
            other => wrong.push(format!("the waiter for `{name}`: {other:?}")),
        }
    }
    for (name, inside) in [("held", held), ("moved", moved)] {
        if inside.most() > 1 {
            wrong.push(format!("{} held `{name}` at once", inside.most()));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    for name in ["held", "moved", "freed", "later", "traffic", "new"] {
        for locks in [&one, &two] {
            pass(&format!("a call for `{name}`"), locks.lock(name).wait_forever()).await;
        }
    }
    corner.until_empty().await;
    let gone = |keys: &[crate::corner::Key]| !keys.iter().any(|key| old.contains(&key.lease));
    let sessions = corner.session_prefix();
    corner.until("no session of before", &sessions, gone).await;
}
