//! Cancellation: a future dropped at any await point leaves neither a key nor a waiter behind.
//!
//! The TTL is 15 s and no test here waits that long, so no expired lease can help.

use std::time::Duration;

use etcd_locked::{LockError, Locks, etcd_locked};
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::corner::{Corner, pass, take};
use crate::limit::{self, within};
use crate::steps::{When, poll_then_drop};

/// More await points than any call here has. A test that reaches it has a future that never ends.
const ENDLESS: usize = 100;

/// Awaits of several kinds: of the executor, of a timer, of another lock.
#[etcd_locked("orders/<id>", locks = locks, wait = "forever")]
async fn body(locks: &Locks, id: u64) -> Result<(), LockError> {
    tokio::task::yield_now().await;
    sleep(Duration::from_millis(1)).await;
    locks.lock("stock/9").await?.release().await?;
    tokio::task::yield_now().await;
    Ok(())
}

/// Asserts that both engines can take the name at once, and that no key is left afterwards.
async fn nothing_is_left(corner: &Corner, engines: [&Locks; 2]) {
    for locks in engines {
        let call = locks.lock("orders/7").wait(Duration::from_secs(5));
        pass("the name free again", call).await;
    }
    corner.until_empty().await;
}

/// Drops a call after no poll, after one, after two …, until the call completes first. `attempt` makes the call, polls it the
/// given number of times, and checks what is left.
async fn at_every_point(attempt: impl AsyncFn(usize, When) -> Option<Result<(), LockError>>) {
    for when in [When::AtOnce, When::WhenWoken] {
        let mut done = None;
        for polls in 0..ENDLESS {
            done = attempt(polls, when).await;
            if done.is_some() {
                break;
            }
        }
        done.expect("the call ends").expect("without an error");
    }
}

/// Another engine holds the name meanwhile. It releases once the call waits in etcd or is gone.
#[limit::test]
async fn a_dropped_waiting_call_leaves_nothing() {
    let (corner, [mine, holder, theirs]) = Corner::with_engines().await;
    at_every_point(async |polls, when| {
        let held = take("no other holder", holder.lock("orders/7")).await;
        let gone = Notify::new();
        let dropped = async {
            let done = poll_then_drop(polls, when, body(&mine, 7)).await;
            gone.notify_one();
            done
        };
        let holding = async {
            tokio::select! {
                _ = corner.until_contenders("orders/7", 2) => {}
                () = gone.notified() => {
                    // The engine's earlier request is on its way to etcd by now. Its key must go although the name
                    // is still held.
                    pass("another lock", mine.lock("stock/8")).await;
                    corner.until_contenders("orders/7", 1).await;
                }
            }
            held.release().await.expect("a release that is confirmed");
        };
        let (done, ()) = within("a dropped call", async { tokio::join!(dropped, holding) }).await;
        nothing_is_left(&corner, [&theirs, &mine]).await;
        done
    })
    .await;
}

#[limit::test]
async fn a_dropped_try_leaves_nothing() {
    let (corner, [mine, theirs]) = Corner::with_engines().await;
    at_every_point(async |polls, when| {
        let call = async { mine.lock("orders/7").try_once().await.map(drop) };
        let done = within("a dropped try", poll_then_drop(polls, when, call)).await;
        nothing_is_left(&corner, [&theirs, &mine]).await;
        done
    })
    .await;
}

/// The first lock of an engine also creates a lease and a session key, so there are more points to interrupt.
#[limit::test]
async fn a_dropped_first_call_leaves_nothing() {
    let (corner, [theirs]) = Corner::with_engines().await;
    at_every_point(async |polls, when| {
        let mine = corner.locks().await;
        let done = within("a dropped call", poll_then_drop(polls, when, body(&mine, 7))).await;
        nothing_is_left(&corner, [&theirs, &mine]).await;
        done
    })
    .await;
}
