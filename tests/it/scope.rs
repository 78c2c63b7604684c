//! Engine of a call: that of its option `locks = …`, else the scope's, else the thread's, else the process's.

use etcd_locked::{LockError, Locks, current, etcd_locked};
use tokio::runtime::Builder;

use crate::corner::Corner;
use crate::limit::{self, within};

/// Returns true if the call's key is in this corner.
#[etcd_locked("orders/<id>")]
async fn runs_in(id: u64, corner: &Corner) -> Result<bool, LockError> {
    Ok(!corner.contenders("orders/7").await.is_empty())
}

#[etcd_locked("orders/<id>", locks = locks)]
async fn runs_by_option(locks: &Locks, id: u64, corner: &Corner) -> Result<bool, LockError> {
    Ok(!corner.contenders("orders/7").await.is_empty())
}

/// Makes two corners, with an engine in each.
async fn corners() -> [(Corner, Locks); 2] {
    let ((one, [first]), (other, [second])) =
        (Corner::with_engines().await, Corner::with_engines().await);
    [(one, first), (other, second)]
}

#[limit::test]
async fn a_call_in_a_scope_uses_its_engine() {
    let [(one, first), (other, second)] = corners().await;
    let calls = async {
        assert!(current().is_none(), "a scope is not a lock");
        assert!(runs_in(7, &one).await.unwrap());
        // An inner scope, then the outer one again.
        assert!(second.scope(runs_in(7, &other)).await.unwrap());
        assert!(runs_in(7, &one).await.unwrap());
        // The function `lock` uses the scope too.
        let held = etcd_locked::lock("orders/8").await.unwrap();
        assert_eq!(one.contenders("orders/8").await.len(), 1);
        held.release().await.unwrap();
        // The option overrides any scope.
        assert!(runs_by_option(&second, 7, &other).await.unwrap());
    };
    within("the calls", first.scope(calls)).await;
    // Scopes of joined futures do not mix.
    let repeat = async |corner: &Corner| {
        for _ in 0..20 {
            assert!(runs_in(7, corner).await.unwrap());
        }
    };
    let both = async { tokio::join!(first.scope(repeat(&one)), second.scope(repeat(&other))) };
    within("both", both).await;
}

#[limit::test]
async fn a_scope_ends_with_its_future() {
    let (corner, [locks]) = Corner::with_engines().await;
    // This process has neither a default nor an initialised engine, so outside the scope there is none.
    let spawned = locks.scope(async {
        tokio::spawn(async { etcd_locked::lock("orders/7").await.map(drop) }).await
    });
    let spawned = within("the call", spawned).await.unwrap();
    assert_matches!(spawned, Err(LockError::NotInitialized { .. }));
    let after = within("the call", runs_in(7, &corner)).await;
    assert_matches!(after, Err(LockError::NotInitialized { .. }));
}

/// Uses a separate thread, as in a test suite that runs in parallel.
#[test]
fn a_thread_has_its_default() {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(within("a thread's calls", async {
        let [(one, first), (other, second)] = corners().await;
        let guard = first.set_default();
        assert!(runs_in(7, &one).await.unwrap());
        // A spawned task runs on this thread, so it uses the same default.
        let spawned = tokio::spawn(async { etcd_locked::lock("orders/7").await });
        let held = spawned.await.unwrap().unwrap();
        assert_eq!(one.contenders("orders/7").await.len(), 1);
        held.release().await.unwrap();
        // A scope overrides the thread's default.
        assert!(second.scope(runs_in(7, &other)).await.unwrap());
        // Defaults end in any order.
        let inner = second.set_default();
        drop(guard);
        assert!(runs_in(7, &other).await.unwrap());
        drop(inner);
        assert_matches!(runs_in(7, &one).await, Err(LockError::NotInitialized { .. }));
    }));
}
