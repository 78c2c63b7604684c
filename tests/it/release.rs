//! Release: it is confirmed where possible, never changes the body's result, and removes only the key it was issued for.

use std::future::pending;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use etcd_client::PutOptions;
use etcd_locked::{LockError, Locks, etcd_locked};
use etcd_locked_devkit::Direction;
use tokio::runtime::Handle;
use tokio::sync::{Mutex, Notify};
use tokio::task::{JoinHandle, block_in_place};

use crate::corner::{Corner, connect, pass};
use crate::etcd::Etcd;
use crate::limit::{self, within};
use crate::under::AppError;

#[etcd_locked("orders/<id>", locks = locks)]
async fn kill(
    locks: &Locks,
    id: u64,
    etcd: &Mutex<Etcd>,
    result: Result<u8, AppError>,
) -> Result<u8, AppError> {
    etcd.lock().await.kill();
    result
}

#[etcd_locked("orders/<id>", locks = locks)]
async fn delete(locks: &Locks, id: u64, corner: &Corner) -> Result<u8, LockError> {
    corner.take_away("orders/7").await;
    Ok(7)
}

#[etcd_locked("orders/<id>", locks = locks)]
async fn visit(locks: &Locks, id: u64) -> Result<(), LockError> {
    Ok(())
}

#[etcd_locked("orders/<id>", locks = &locks)]
async fn stay(
    locks: Locks,
    id: u64,
    inside: Arc<Notify>,
    watched: Watched,
) -> Result<(), LockError> {
    let _watched = watched;
    inside.notify_one();
    pending().await
}

#[etcd_locked("orders/<id>", locks = &locks, max_hold = "200ms")]
async fn overstay(locks: Locks, id: u64, watched: Watched) -> Result<(), LockError> {
    let _watched = watched;
    pending().await
}

/// Panic payload that no library makes.
#[derive(Debug, PartialEq)]
struct Payload(u64);

#[etcd_locked("orders/<id>", locks = &locks)]
async fn fail(locks: Locks, id: u64, watched: Watched) -> Result<(), LockError> {
    let _watched = watched;
    tokio::task::yield_now().await;
    std::panic::panic_any(Payload(id))
}

/// Local of a body that counts the body's keys in etcd when it is dropped.
struct Watched {
    corner: Arc<Corner>,
    sent: Sender<usize>,
}

impl Watched {
    fn new(corner: &Arc<Corner>) -> (Watched, Receiver<usize>) {
        let (sent, received) = channel();
        (Watched { corner: corner.clone(), sent }, received)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let keys = block_in_place(|| {
            // Time for a key that was released too early to be deleted.
            thread::sleep(Duration::from_millis(200));
            Handle::current().block_on(self.corner.contenders("orders/7"))
        });
        let _ = self.sent.send(keys.len());
    }
}

#[limit::test]
async fn a_failing_release_keeps_the_result_and_is_completed_later() {
    let etcd = Etcd::start().await;
    let corner = Corner::of(&etcd).await;
    let (mine, theirs) = (corner.locks().await, corner.locks().await);
    let etcd = Mutex::new(etcd);
    for result in [Ok(7), Err(AppError("own".to_owned()))] {
        let expected = result.clone();
        let started = Instant::now();
        let returned = within("the call's end", kill(&mine, 7, &etcd, result)).await;
        assert_eq!(returned, expected);
        let took = started.elapsed();
        assert!(took < Duration::from_secs(10), "the release kept the caller {took:?}");
        etcd.lock().await.start_again().await;
        // The TTL is 15 s, and a restarted etcd gives leases their full time again. So the engine cleans up, not an expiry.
        let next = theirs.lock("orders/7").wait(Duration::from_secs(10));
        pass("the next lock", next).await;
        pass("the first one again", mine.lock("orders/7")).await;
    }
    corner.until_empty().await;
}

#[limit::test]
async fn a_key_removed_by_an_operator_does_not_disturb_the_result() {
    let (corner, [locks]) = Corner::with_engines().await;
    assert_eq!(within("the call", delete(&locks, 7, &corner)).await.unwrap(), 7);
    pass("the next lock", locks.lock("orders/7")).await;
    corner.until_empty().await;
}

#[limit::test]
async fn a_call_returns_when_its_release_is_confirmed() {
    let (corner, [locks]) = Corner::with_engines().await;
    for _ in 0..20 {
        visit(&locks, 7).await.unwrap();
        assert_eq!(corner.contenders("orders/7").await, [], "after a call");
        pass("a free name", locks.lock("orders/7")).await;
        assert_eq!(corner.contenders("orders/7").await, [], "after a guard");
    }
}

#[limit::test]
async fn a_delayed_release_spares_what_came_later() {
    let (corner, proxy) = Corner::with_proxy().await;
    let locks = connect(corner.config_via([proxy.endpoint()])).await;
    let held = locks.lock("orders/7").await.unwrap();
    let key = corner.owner("orders/7").await;

    // The release is delayed while the key is deleted and created again.
    proxy.freeze(Direction::Requests);
    drop(held);
    let mut client = corner.client.clone();
    let foreign = client.lease_grant(60, None).await.unwrap().id();
    client.delete(key.text.clone(), None).await.unwrap();
    let leased = Some(PutOptions::new().with_lease(foreign));
    client.put(key.text, "newer", leased).await.unwrap();
    let newer = corner.contenders("orders/7").await;
    proxy.thaw();
    // A lock of another name shows that the engine's requests arrive again.
    pass("another lock", locks.lock("orders/8")).await;
    // A refused try of this name shows that the release is over, because it waits for the release.
    let refused = within("a try", locks.lock("orders/7").try_once()).await;
    assert_matches!(refused, Err(LockError::Held { .. }));
    assert_eq!(corner.contenders("orders/7").await, newer);
    client.lease_revoke(foreign).await.unwrap();
    pass("the name, free again", locks.lock("orders/7")).await;
    corner.until_empty().await;
}

/// Makes a call whose body stays inside; also returns how many keys the body's drop has seen.
async fn staying(
    corner: &Arc<Corner>,
    locks: &Locks,
) -> (JoinHandle<Result<(), LockError>>, Receiver<usize>) {
    let (watched, received) = Watched::new(corner);
    let inside = Arc::new(Notify::new());
    let call = tokio::spawn(stay(locks.clone(), 7, inside.clone(), watched));
    within("the body inside", inside.notified()).await;
    (call, received)
}

/// If it is dropped, panics, exceeds its limit or is ended by a shutdown, the lock is free at once, long before its lease expires.
#[limit::test]
async fn a_body_that_is_cut_short_is_dropped_before_its_key_goes() {
    let (corner, [locks, theirs]) = Corner::with_engines().await;
    let corner = Arc::new(corner);
    let (aborted, of_aborted) = staying(&corner, &locks).await;
    aborted.abort();
    let ended = within("the cancellation", aborted).await;
    assert!(ended.unwrap_err().is_cancelled());
    let (watched, of_panicked) = Watched::new(&corner);
    let panicked = tokio::spawn(fail(locks.clone(), 7, watched));
    let panic = within("the panic", panicked).await.unwrap_err().into_panic();
    assert_eq!(panic.downcast_ref(), Some(&Payload(7)));
    let (watched, of_limited) = Watched::new(&corner);
    let limited = tokio::spawn(overstay(locks.clone(), 7, watched));
    let limited = within("the limit", limited).await.unwrap().unwrap_err();
    let text = "the body under lock `orders/<id>` exceeded `max_hold` (200ms) and was dropped";
    assert_eq!(limited.to_string(), text);
    pass("the next lock", theirs.lock("orders/7")).await;
    let (cut_off, of_cut_off) = staying(&corner, &locks).await;
    within("the shutdown's end", locks.shutdown(Duration::ZERO)).await;
    assert!(within("the call's end", cut_off).await.unwrap().is_err());
    for keys in [of_aborted, of_panicked, of_limited, of_cut_off] {
        assert_eq!(keys.recv().unwrap(), 1, "the key went before the body");
    }
    corner.until_empty().await;
}
