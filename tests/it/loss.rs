//! Loss of a lock: it ends the body, has a cause, and other calls continue.

use std::future::{Future, pending, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use etcd_client::PutOptions;
use etcd_locked::{LockError, Locks, LossCause, current, etcd_locked};
use etcd_locked_devkit::{Direction, Proxy};
use etcd_locked_tests::{chain, monotonic_ns};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{interval, sleep, timeout};

use crate::corner::{Corner, connect, pass, take};
use crate::etcd::{Etcd, on_embedded};
use crate::limit::{self, run, within, within_time};

/// Time within which a holder notices an operator's change, at a TTL of 15 s. The holder begins to watch its key after it has
/// held the lock for about a second.
const NOTICE: Duration = Duration::from_secs(12);

/// Time after which a holder certainly watches its key.
const GUARDED: Duration = Duration::from_millis(2_500);

/// Interval at which a busy body is polled.
const TICK: Duration = Duration::from_millis(5);

#[etcd_locked("orders/<id>", locks = &locks)]
async fn stay(locks: Locks, id: u64, inside: Arc<Notify>, alive: Arc<()>) -> Result<(), LockError> {
    let _alive = &alive;
    inside.notify_one();
    pending().await
}

/// Call that never ends by itself, and a value that its body shares until it is dropped.
struct Staying {
    call: JoinHandle<Result<(), LockError>>,
    alive: Arc<()>,
}

impl Staying {
    async fn begin(locks: &Locks) -> Staying {
        let (inside, alive) = (Arc::new(Notify::new()), Arc::new(()));
        let call = tokio::spawn(stay(locks.clone(), 7, inside.clone(), alive.clone()));
        within("the holder inside", inside.notified()).await;
        Staying { call, alive }
    }

    /// Awaits the loss, and returns its cause.
    async fn lost(self) -> LossCause {
        let ended = within_time(NOTICE, "the loss", self.call).await.expect("no panic");
        assert_eq!(Arc::strong_count(&self.alive), 1, "the body outlives its call");
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
        client.put(key.text, "an operator was here", options).await.unwrap();
        assert_eq!(body.lost().await, LossCause::Overwritten);
        // No key is left without an owner.
        corner.until_empty().await;
        pass("a lock after it", corner.locks().await.lock("orders/7")).await;
    }
}

/// Runs a body that is polled all the time, and records the time of its last poll.
async fn busy(last: &AtomicU64) {
    let mut tick = interval(TICK);
    let mut work = pin!(async {
        loop {
            tick.tick().await;
        }
    });
    poll_fn(|cx| {
        last.store(monotonic_ns(), Ordering::SeqCst);
        work.as_mut().poll(cx)
    })
    .await
}

/// Cuts off a holder with this network fault, and checks that it never overlaps a waiter of another process.
async fn cut_off(weather: impl FnOnce(&Proxy)) {
    let ttl = Duration::from_secs(5);
    let (corner, proxy) = Corner::with_proxy().await;
    let mine = connect(corner.config_via([proxy.endpoint()]).ttl(ttl)).await;
    let theirs = corner.locks_with_ttl(ttl).await;
    let held = take("the first lock", mine.lock("orders/7")).await;
    let last = AtomicU64::new(0);
    let body = held.hold(busy(&last));
    let rest = async {
        let waiter = tokio::spawn(async move {
            let held = theirs.lock("orders/7").wait_forever().await;
            (held.expect("served"), monotonic_ns())
        });
        corner.until_contenders("orders/7", 2).await;
        weather(&proxy);
        // The lease ends one TTL after the last renewal, which is sent within one TTL from now. The rest is slack for etcd and
        // the machine.
        let admitted = within_time(3 * ttl + Duration::from_secs(1), "the admission", waiter);
        admitted.await.expect("no panic")
    };
    let (ended, (theirs, entered)) =
        within("loss and admission", async { tokio::join!(body, rest) }).await;
    assert_matches!(ended, Err(LockError::Lost { cause, .. }) if cause == LossCause::Expired);
    assert!(last.into_inner() < entered, "the body was polled after the next holder's entry");
    assert!(!held.is_held());

    // After the fault the engine works again, and the rest of its old lease does not block a call.
    drop(held);
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

/// The renewals arrive, but their responses do not. The holder must stop renewing, or no other process is ever admitted.
#[test]
fn a_holder_without_answers_stops_and_lets_others_in() {
    run(cut_off(|proxy| proxy.freeze(Direction::Answers)));
}

#[limit::test]
async fn an_operators_act_is_always_the_cause() {
    for lease in [false, true] {
        let (corner, [locks]) = Corner::with_engines().await;
        let held = take("a free name", locks.lock("orders/7")).await;
        lose(&corner, lease).await;
        let ended = within("the loss", held.hold(pending::<()>())).await;
        for error in [ended.err(), held.release().await.err()] {
            let Some(LockError::Lost { cause, .. }) = error else { panic!("{error:?}") };
            assert_eq!(cause, LossCause::Gone);
        }
    }
}

/// No renewal gets a response, so anything that waits for one is hundreds of ticks later than the body's last poll.
#[limit::test]
async fn a_stop_ends_hold_and_lost_in_the_same_step() {
    let (corner, proxy) = Corner::with_proxy().await;
    let locks = connect(corner.config_via([proxy.endpoint()])).await;
    let held = take("a free name", locks.lock("orders/7")).await;
    sleep(GUARDED).await;
    let last = AtomicU64::new(0);
    let since_last = || Duration::from_nanos(monotonic_ns() - last.load(Ordering::SeqCst));
    let hold = async { (held.hold(busy(&last)).await, since_last()) };
    let lost = async {
        let (mut lost, mut late) = (pin!(held.lost()), 0);
        while timeout(TICK, &mut lost).await.is_err() {
            late += u32::from(since_last() > 4 * TICK);
        }
        (late, since_last())
    };
    let operator = async {
        proxy.freeze(Direction::Requests);
        corner.take_away("orders/7").await;
    };
    let all = async { tokio::join!(hold, lost, operator) };
    let ((ended, hold), (late, lost), ()) = within("the loss", all).await;
    println!("after the last poll `hold` ends in {hold:?}, `lost()` in {lost:?}");
    assert_matches!(ended, Err(LockError::Lost { cause, .. }) if cause == LossCause::Gone);
    assert!(late < 40, "{late} ticks between the body's last poll and `lost()`");
}

/// Deletes the key of a name, or revokes its `lease`, as an operator would.
async fn lose(corner: &Corner, lease: bool) {
    match lease {
        true => drop(corner.revoke("orders/7").await),
        false => corner.take_away("orders/7").await,
    }
}

#[limit::test]
async fn a_release_that_etcd_does_not_answer_says_why() {
    for (killed, why) in [(true, "refused"), (false, "no response")] {
        let mut etcd = Etcd::start().await;
        let corner = Corner::of(&etcd).await;
        let config = corner.config().connect_timeout(Duration::from_secs(2));
        let held = take("a free name", connect(config).await.lock("orders/7")).await;
        match killed {
            true => etcd.kill(),
            false => etcd.stop(),
        }
        let error = within("the release's answer", held.release()).await.expect_err("etcd is gone");
        assert_matches!(error, LockError::Backend { .. });
        assert!(error.is_retryable(), "{error:?}");
        let endpoint = if on_embedded() { "connect_with".to_owned() } else { etcd.address() };
        let text = chain(&error);
        assert!(text.contains(&endpoint) && text.contains(why), "`{text}`");
    }
}

/// Runs until it may end, and returns the cause of the loss, if there was one.
#[etcd_locked("orders/<id>", locks = &locks, on_lost = "continue")]
async fn go_on(
    locks: Locks,
    id: u64,
    inside: Arc<Notify>,
    done: Arc<Notify>,
) -> Result<LossCause, LockError> {
    inside.notify_one();
    let cause = current().expect("inside").lost().await;
    inside.notify_one();
    done.notified().await;
    assert!(current().is_some_and(|it| !it.is_held()));
    Ok(cause)
}

/// Makes a call of `go_on` whose body runs. Also returns the signal that it knows of its loss, and the one that lets it end.
async fn going(
    locks: &Locks,
) -> (JoinHandle<Result<LossCause, LockError>>, Arc<Notify>, Arc<Notify>) {
    let (inside, done) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let call = tokio::spawn(go_on(locks.clone(), 7, inside.clone(), done.clone()));
    within("the body inside", inside.notified()).await;
    (call, inside, done)
}

#[limit::test]
async fn a_body_that_goes_on_spares_the_next_holder() {
    for lease in [false, true] {
        let (corner, [mine, theirs]) = Corner::with_engines().await;
        let (call, inside, done) = going(&mine).await;
        lose(&corner, lease).await;
        within("the loss", inside.notified()).await;
        let next = take("the next lock", theirs.lock("orders/7")).await;
        let theirs = corner.owner("orders/7").await.created;
        done.notify_one();
        assert_eq!(within("the end", call).await.expect("no panic").unwrap(), LossCause::Gone);
        assert_eq!(corner.owner("orders/7").await.created, theirs);
        assert!(next.is_held());
        next.release().await.unwrap();
        pass("a lock after it", mine.lock("orders/7")).await;
        corner.until_empty().await;
    }
}

#[limit::test]
async fn a_shutdown_ends_a_body_that_goes_on() {
    for has_lost in [false, true] {
        let (corner, [locks]) = Corner::with_engines().await;
        let (call, inside, _done) = going(&locks).await;
        if has_lost {
            lose(&corner, true).await;
            within("the loss", inside.notified()).await;
        }
        within("the shutdown", locks.shutdown(Duration::ZERO)).await;
        let ended = within("the end", call).await.expect("no panic");
        assert_matches!(ended, Err(LockError::Lost { cause, .. }) if cause == LossCause::Shutdown);
        corner.until_empty().await;
    }
}

#[etcd_locked("orders/<id>", locks = locks, on_lost = "continue", max_hold = "3s")]
async fn limited(locks: &Locks, id: u64, corner: &Corner) -> Result<(), LockError> {
    corner.take_away("orders/7").await;
    pending().await
}

#[limit::test]
async fn a_hold_limit_ends_a_body_that_goes_on() {
    let (corner, [locks]) = Corner::with_engines().await;
    let ended = within("the limit", limited(&locks, 7, &corner)).await;
    assert_matches!(ended, Err(LockError::HoldLimit { .. }));
    corner.until_empty().await;
}
