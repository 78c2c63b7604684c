//! Engine of a call: its own `locks = …`, else the scope's, else the thread's, else the process's.

use std::thread;

use etcd_locked::{LockError, Locks, current, etcd_locked};
use tokio::runtime::Builder;

use crate::corner::Corner;
use crate::limit::{self, within};

/// Returns for each corner whether the call runs there, that is, whether its key is there.
#[etcd_locked("orders/<id>")]
async fn whose(id: u64, corners: &[&Corner]) -> Result<Vec<bool>, LockError> {
    let mut here = Vec::new();
    for corner in corners {
        here.push(!corner.contenders("orders/7").await.is_empty());
    }
    Ok(here)
}

#[etcd_locked("orders/<id>", locks = locks)]
async fn whose_by_option(
    locks: &Locks,
    id: u64,
    corners: &[&Corner],
) -> Result<Vec<bool>, LockError> {
    let mut here = Vec::new();
    for corner in corners {
        here.push(!corner.contenders("orders/7").await.is_empty());
    }
    Ok(here)
}

#[limit::test]
async fn a_call_in_a_scope_uses_its_engine() {
    let (one, two) = (Corner::new().await, Corner::new().await);
    let corners = [&one, &two];
    let (first, second) = (one.locks().await, two.locks().await);
    let calls = async {
        assert_eq!(whose(7, &corners).await.unwrap(), [true, false]);
        // An inner scope, then the outer one again.
        assert_eq!(second.scope(whose(7, &corners)).await.unwrap(), [false, true]);
        assert_eq!(whose(7, &corners).await.unwrap(), [true, false]);
        // The function `lock` uses the scope as well.
        let held = etcd_locked::lock("orders/8").await.unwrap();
        assert_eq!(one.contenders("orders/8").await.len(), 1);
        held.release().await.unwrap();
        // The option precedes any scope.
        assert_eq!(whose_by_option(&second, 7, &corners).await.unwrap(), [false, true]);
    };
    within("the calls", first.scope(calls)).await;
}

#[limit::test]
async fn scopes_of_joined_futures_do_not_mix() {
    let (one, two) = (Corner::new().await, Corner::new().await);
    let corners = [&one, &two];
    let (first, second) = (one.locks().await, two.locks().await);
    let only =
        |mine: usize, seen: Vec<bool>| assert!(seen[mine], "not in its own corner: {seen:?}");
    let repeat = |mine: usize| async move {
        for _ in 0..20 {
            only(mine, whose(7, &corners).await.unwrap());
        }
    };
    within("both", async { tokio::join!(first.scope(repeat(0)), second.scope(repeat(1))) }).await;
    one.until_empty().await;
    two.until_empty().await;
}

#[limit::test]
async fn a_scope_ends_with_its_future() {
    let (corner, [locks]) = Corner::with_engines().await;
    assert_eq!(locks.scope(async { 7 }).await, 7);
    // This process has neither a default nor an initialised engine, so outside the scope there is none.
    let spawned = locks.scope(async {
        tokio::spawn(async { etcd_locked::lock("orders/7").await.map(drop) }).await
    });
    let error = within("the call", spawned).await.unwrap().unwrap_err();
    assert!(
        matches!(error, LockError::NotInitialized { .. }),
        "a spawned task is outside the scope: {error:?}"
    );
    let error = within("the call", whose(7, &[&corner])).await.unwrap_err();
    assert_matches!(error, LockError::NotInitialized { .. });
}

#[test]
fn a_thread_has_its_default() {
    // Two threads with an engine each, as in a test suite that runs in parallel.
    let threads: Vec<_> = (0..2)
        .map(|_| {
            thread::spawn(|| {
                let runtime = Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(within("a thread's calls", async {
                    let (mine, other) = (Corner::new().await, Corner::new().await);
                    let corners = [&mine, &other];
                    let (locks, others) = (mine.locks().await, other.locks().await);
                    let guard = locks.set_default();
                    for _ in 0..10 {
                        assert_eq!(whose(7, &corners).await.unwrap(), [true, false]);
                    }
                    // A spawned task runs on this thread, so it uses the same default.
                    let held = tokio::spawn(async { etcd_locked::lock("orders/7").await })
                        .await
                        .unwrap()
                        .unwrap();
                    assert_eq!(mine.contenders("orders/7").await.len(), 1);
                    held.release().await.unwrap();
                    // A scope precedes the thread's default.
                    assert_eq!(others.scope(whose(7, &corners)).await.unwrap(), [false, true]);
                    let inner = others.set_default();
                    assert_eq!(whose(7, &corners).await.unwrap(), [false, true]);
                    drop(inner);
                    assert_eq!(whose(7, &corners).await.unwrap(), [true, false]);
                    drop(guard);
                    let error = whose(7, &corners).await.unwrap_err();
                    assert_matches!(error, LockError::NotInitialized { .. });
                }));
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
}

#[limit::test]
async fn defaults_may_end_in_any_order() {
    let (one, other) = (Corner::new().await, Corner::new().await);
    let (first, second) = (one.locks().await, other.locks().await);
    let corners = [&one, &other];
    let first = first.set_default();
    let second = second.set_default();
    drop(first);
    assert_eq!(whose(7, &corners).await.unwrap(), [false, true]);
    drop(second);
}

#[limit::test]
async fn a_scope_is_not_a_lock() {
    let locks = Corner::new().await.locks().await;
    assert!(locks.scope(async { current().is_none() }).await);
}
