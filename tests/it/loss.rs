//! Loss of a lock: it ends the body, carries its cause, and leaves other calls able to go on.

use std::future::{Future, pending, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use etcd_client::PutOptions;
use etcd_locked::{LockError, LockGuard, Locks, LossCause, current, etcd_locked};
use etcd_locked_devkit::{Direction, Proxy};
use etcd_locked_tests::monotonic_ns;
use tokio::sync::Notify;
use tokio::time::interval;

use crate::corner::{Corner, admitted, connect, pass, spawn, take};
use crate::etcd::Etcd;
use crate::limit::{self, run, within, within_time};

/// The time within which a holder notices an operator's change, at a TTL of 15 s. The holder watches its key once it has held
/// the lock for about a second.
const NOTICE: Duration = Duration::from_secs(12);

/// Sets its flag when it is dropped.
struct Dropped(Arc<AtomicBool>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[etcd_locked("orders/<id>", locks = locks)]
async fn stay(locks: &Locks, id: u64, inside: &Notify, dropped: Dropped) -> Result<(), LockError> {
    let _dropped = &dropped;
    inside.notify_one();
    pending().await
}

/// A call that never ends by itself, and whether its body has been dropped.
struct Staying {
    call: tokio::task::JoinHandle<Result<(), LockError>>,
    dropped: Arc<AtomicBool>,
}

impl Staying {
    async fn begin(locks: &Locks) -> Staying {
        let (inside, dropped) = (Arc::new(Notify::new()), Arc::new(AtomicBool::new(false)));
        let call = tokio::spawn({
            let (locks, inside, dropped) =
                (locks.clone(), inside.clone(), Dropped(dropped.clone()));
            async move { stay(&locks, 7, &inside, dropped).await }
        });
        within("the holder inside", inside.notified()).await;
        Staying { call, dropped }
    }

    /// Awaits the loss.
    async fn lost(self) -> LossCause {
        let ended = within_time(NOTICE, "the loss", self.call).await.expect("no panic");
        assert!(
            self.dropped.load(Ordering::SeqCst),
            "the call has ended and its body is still there"
        );
        let Err(LockError::Lost { cause, .. }) = ended else { panic!("{ended:?}") };
        cause
    }
}

/// A put without our lease detaches the key from it: no expiry removes the key after a crash, or only that of a foreign lease.
#[limit::test]
async fn an_overwritten_key_ends_the_body() {
    let corner = Corner::new().await;
    let mut client = corner.client.clone();
    let foreign = client.lease_grant(600, None).await.unwrap().id();
    for lease in [0, foreign] {
        let locks = corner.locks().await;
        let body = Staying::begin(&locks).await;
        let key = corner.owner("orders/7").await;
        let options = Some(PutOptions::new().with_lease(lease));
        let put = client.put(key.text, "an operator was here", options);
        put.await.unwrap();
        assert_eq!(body.lost().await, LossCause::Overwritten);
        // No key is left without an owner.
        corner.until_empty().await;
        let other = corner.locks().await;
        pass("a lock after it", other.lock("orders/7")).await;
    }
}

#[limit::test]
async fn a_guard_and_its_body_observe_the_loss() {
    let corner = Corner::new().await;
    let held = corner.locks().await.lock("orders/7").await.unwrap();
    let (send, receive) = tokio::sync::oneshot::channel();
    let body = held.hold(async {
        // `current()` may leave the body, and stays true outside.
        let _ = send.send(current().unwrap());
        pending::<()>().await;
    });
    let watcher = async {
        let current = receive.await.unwrap();
        assert!(current.is_held());
        corner.take_away("orders/7").await;
        let cause = current.lost().await;
        assert!(!current.is_held());
        cause
    };
    let (ended, cause) =
        within_time(NOTICE, "the loss", async { tokio::join!(body, watcher) }).await;
    assert_matches!(ended, Err(LockError::Lost { cause, .. }) if cause == LossCause::Deleted);
    assert_eq!(cause, LossCause::Deleted);
    assert_eq!(within("the loss of the guard", held.lost()).await, LossCause::Deleted);
    assert!(!held.is_held());
    // A lost lock admits no further body.
    let mut ran = false;
    let late = held.hold(async { ran = true }).await;
    assert_matches!(late, Err(LockError::Lost { .. }));
    assert!(!ran, "a body was polled under a lost lock");
}

#[limit::test]
async fn waiters_of_the_process_go_on_with_another_lease() {
    let (corner, [mine, theirs]) = Corner::with_engines().await;
    let elsewhere = theirs.lock("orders/8").await.unwrap();
    let body = Staying::begin(&mine).await;
    // One call waits for the body in this process, one for another process.
    let local = spawn(mine.lock("orders/7").wait_forever());
    let remote = spawn(mine.lock("orders/8").wait_forever());
    corner.until_contenders("orders/8", 2).await;
    let lease = corner.revoke("orders/7").await;
    assert_eq!(body.lost().await, LossCause::Revoked);
    let local = admitted("the local waiter's admission", local).await;
    assert!(!corner.leases("orders/7").await.contains(&lease));
    corner.until_contenders("orders/8", 2).await;
    elsewhere.release().await.unwrap();
    let remote = admitted("the remote waiter's admission", remote).await;
    assert!(local.is_held() && remote.is_held());
    drop((local, remote));
    corner.until_empty().await;
}

/// Observations of a body: the time of its last poll, the number of polls, and whether one took place without the lock.
#[derive(Default)]
struct Polls {
    last: AtomicU64,
    count: AtomicU64,
    unlocked: AtomicBool,
}

/// Runs a body that is polled all the time.
async fn busy(polls: &Polls) {
    let mut tick = interval(Duration::from_millis(5));
    let mut work = pin!(async {
        loop {
            tick.tick().await;
        }
    });
    poll_fn(|cx| {
        polls.last.store(monotonic_ns(), Ordering::SeqCst);
        polls.count.fetch_add(1, Ordering::SeqCst);
        work.as_mut().poll(cx)
    })
    .await
}

/// Polls the holding future, and records whether it polls the body although the lock was lost before that poll. A loss between
/// the guard's check and the poll cannot be avoided, and does not count.
///
/// The neighbour is another lock under the same lease, which is lost at the same moment. To ask the lock itself would make its
/// own guard notice the loss.
async fn observed<T>(
    neighbour: &LockGuard,
    polls: &Polls,
    holding: impl Future<Output = Result<T, LockError>>,
) -> Result<T, LockError> {
    let mut holding = pin!(holding);
    poll_fn(|cx| {
        let lost = !neighbour.is_held();
        let before = polls.count.load(Ordering::SeqCst);
        let polled = holding.as_mut().poll(cx);
        if lost && polls.count.load(Ordering::SeqCst) != before {
            polls.unlocked.store(true, Ordering::SeqCst);
        }
        polled
    })
    .await
}

/// Cuts a holder off by this fault of the network, and checks that it never overlaps a waiter of another process.
async fn cut_off(weather: impl FnOnce(&Proxy)) {
    let ttl = Duration::from_secs(5);
    let etcd = Etcd::shared().await;
    let corner = Corner::new().await;
    let proxy = Proxy::start(etcd.address()).expect("a proxy");
    let mine = connect(corner.config_via([proxy.endpoint()]).ttl(ttl)).await;
    let theirs = corner.locks_with_ttl(ttl).await;
    let held = take("the first lock", mine.lock("orders/7")).await;
    let neighbour = take("its neighbour", mine.lock("orders/8")).await;
    assert_eq!(corner.leases("orders/7").await, corner.leases("orders/8").await);
    let polls = Polls::default();
    let body = observed(&neighbour, &polls, held.hold(busy(&polls)));
    let rest = async {
        let waiter = tokio::spawn(async move {
            let held = theirs.lock("orders/7").wait_forever().await;
            (held.expect("served"), monotonic_ns())
        });
        corner.until_contenders("orders/7", 2).await;
        weather(&proxy);
        // The lease ends one TTL after the last renewal, which is sent within one TTL from now. The rest is slack for etcd and
        // the machine.
        within_time(3 * ttl + Duration::from_secs(1), "the waiter's admission", waiter)
            .await
            .expect("no panic")
    };
    let (ended, (theirs, entered)) =
        within("loss and admission", async { tokio::join!(body, rest) }).await;
    assert_matches!(ended, Err(LockError::Lost { cause, .. }) if cause == LossCause::Expired);
    let last = polls.last.load(Ordering::SeqCst);
    assert!(
        last < entered,
        "the last poll came {} ns after the next holder's entry",
        last - entered
    );
    assert!(!polls.unlocked.load(Ordering::SeqCst), "the body was polled without the lock");
    assert!(!held.is_held());

    // After the fault the engine works again, and the rest of its old lease blocks no call.
    drop((held, neighbour));
    proxy.thaw();
    theirs.release().await.expect("a release that is confirmed");
    pass("a lock after the cut", mine.lock("orders/7").wait_forever()).await;
    corner.until_empty().await;
}

#[test]
fn a_holder_that_is_cut_off_stops_before_the_next_enters() {
    run(cut_off(|proxy| {
        proxy.freeze(Direction::Requests);
        proxy.freeze(Direction::Answers);
    }));
}

/// The renewals arrive, but the holder does not know. It has to stop renewing, or no other process is ever admitted.
#[test]
fn a_holder_without_answers_stops_and_lets_others_in() {
    run(cut_off(|proxy| proxy.freeze(Direction::Answers)));
}
