//! Detached bodies (`detach`): a body that has begun runs to its end, even if its caller is dropped.

use std::future::{Future, pending};
use std::sync::Arc;
use std::time::Duration;

use etcd_locked::{LockError, Locks, current, etcd_locked};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::corner::{Corner, begin_shutdown, pass, take, until_refused};
use crate::limit::{self, within};
use crate::spans::Spans;
use crate::under::{alone, name, with_locks};

/// Signals between a test and a body.
#[derive(Default)]
struct Signs {
    inside: Notify,
    go: Notify,
    done: Notify,
}

#[etcd_locked("orders/<id>", locks = &locks, detach)]
async fn ship(locks: Locks, id: u64, signs: Arc<Signs>) -> Result<String, LockError> {
    signs.inside.notify_one();
    signs.go.notified().await;
    let name = name();
    signs.done.notify_one();
    Ok(name)
}

/// Makes a call in a separate task, and awaits that its body runs.
async fn inside<F>(call: impl FnOnce(Arc<Signs>) -> F) -> (JoinHandle<F::Output>, Arc<Signs>)
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    let signs = Arc::new(Signs::default());
    let caller = tokio::spawn(call(signs.clone()));
    within("the body inside", signs.inside.notified()).await;
    (caller, signs)
}

#[limit::test]
async fn a_detached_body_outlives_its_caller() {
    let (corner, [mine, theirs]) = Corner::with_engines().await;
    let (caller, signs) = inside(|signs| ship(mine.clone(), 7, signs)).await;
    caller.abort();
    let ended = within("the caller", caller).await;
    assert!(ended.unwrap_err().is_cancelled());
    // The lock lives as long as the body, and so does the engine.
    let refused = theirs.lock("orders/7").try_once().await;
    assert_matches!(refused, Err(LockError::Held { .. }));
    let shutdown = begin_shutdown(&mine, Duration::from_secs(20));
    until_refused(&mine, "orders/8").await;
    assert!(!shutdown.is_finished(), "the shutdown did not wait");
    signs.go.notify_one();
    within("the body's end", signs.done.notified()).await;
    within("the shutdown", shutdown).await.unwrap();
    pass("the next lock", theirs.lock("orders/7")).await;
    corner.until_empty().await;
}

#[limit::test]
async fn an_aborted_waiter_never_starts_its_detached_body() {
    let (corner, [mine, theirs]) = Corner::with_engines().await;
    let held = take("their lock", theirs.lock("orders/7")).await;
    let signs = Arc::new(Signs::default());
    let caller = tokio::spawn(ship(mine, 7, signs.clone()));
    corner.until_contenders("orders/7", 2).await;
    caller.abort();
    corner.until_contenders("orders/7", 1).await;
    held.release().await.unwrap();
    corner.until_empty().await;
    let never = tokio::time::timeout(Duration::ZERO, signs.inside.notified()).await;
    assert!(never.is_err(), "the body has begun");
}

#[etcd_locked("orders/<id>", locks = &locks, detach)]
async fn fail(locks: Locks, id: u32) -> Result<(), LockError> {
    tokio::task::yield_now().await;
    std::panic::panic_any(id)
}

#[etcd_locked("orders/<id>", locks = &locks, detach, max_hold = "100ms")]
async fn limited(locks: Locks, id: u64) -> Result<(), LockError> {
    pending().await
}

#[limit::test]
async fn a_caller_gets_what_ended_its_detached_body() {
    let (corner, [locks]) = Corner::with_engines().await;
    let caller = tokio::spawn(fail(locks.clone(), 7));
    let panic = within("the panic", caller).await.unwrap_err().into_panic();
    assert_eq!(panic.downcast_ref(), Some(&7_u32));
    let ended = within("the limit", limited(locks.clone(), 7)).await;
    assert_matches!(ended, Err(LockError::HoldLimit { .. }));
    let (caller, _signs) = inside(|signs| ship(locks.clone(), 7, signs)).await;
    corner.take_away("orders/7").await;
    let ended = within("the loss", caller).await.unwrap();
    assert_matches!(ended, Err(LockError::Lost { .. }));
    let (caller, signs) = inside(|signs| ship(locks.clone(), 7, signs)).await;
    signs.go.notify_one();
    assert_eq!(within("the call", caller).await.unwrap().unwrap(), "orders/7");
    pass("the next lock", locks.lock("orders/7").try_once()).await;
    corner.until_empty().await;
}

struct Shop;

#[async_trait::async_trait]
trait Keeper {
    async fn keep(self: Arc<Self>, id: u64) -> Result<(String, u64), LockError>;
}

#[async_trait::async_trait]
impl Keeper for Shop {
    #[etcd_locked("behind/<id>", detach)]
    async fn keep(self: Arc<Self>, id: u64) -> Result<(String, u64), LockError> {
        Ok((name(), id))
    }
}

#[test]
fn a_method_of_async_trait_may_be_detached() {
    alone(async {
        assert_eq!(Arc::new(Shop).keep(7).await.unwrap(), ("behind/7".to_owned(), 7));
    });
}

/// A detached body that uses the engine of its caller's scope, under the lock of its caller.
#[etcd_locked("inner/<id>", detach)]
async fn inner(id: u64) -> Result<(), LockError> {
    // The caller's body awaits this one, so waiting for the caller's lock would be a deadlock. The caller may also continue
    // without this body, so the lock is not reentered either.
    for refused in [etcd_locked::lock("outer").await, etcd_locked::lock("outer").reentrant().await]
    {
        assert_matches!(refused, Err(LockError::SelfDeadlock { .. }));
    }
    etcd_locked::lock(format!("free/{id}")).await?.release().await
}

#[etcd_locked("unlocked/<id>", detach, when = false, on_held = "skip")]
async fn unlocked(id: u64) -> Option<String> {
    let lock = current()?;
    Some(format!("{id}, {}", lock.name().text()?))
}

#[etcd_locked("outer")]
async fn outer() -> Result<Option<String>, LockError> {
    inner(7).await?;
    Ok(unlocked(7).await)
}

#[test]
fn a_detached_body_inherits_engine_and_locks() {
    with_locks(async |locks: &Locks| {
        let under = locks.scope(outer()).await.unwrap();
        assert_eq!(under.as_deref(), Some("7, outer"));
    });
}

#[etcd_locked("inner", locks = &locks, detach)]
async fn wants(locks: Locks, name: &'static str, signs: Arc<Signs>) -> Result<(), LockError> {
    signs.inside.notify_one();
    signs.go.notified().await;
    drop(locks.lock(name).reentrant().await?);
    signs.done.notify_one();
    Ok(())
}

#[limit::test]
async fn a_detached_body_waits_for_the_lock_of_its_caller() {
    let (corner, [locks]) = Corner::with_engines().await;
    let held = locks.lock("outer").await.unwrap();
    let signs = Arc::new(Signs::default());
    let outer = async {
        let mut call = Box::pin(wants(locks.clone(), "outer", signs.clone()));
        tokio::select! {
            ended = &mut call => panic!("{ended:?}"),
            () = signs.inside.notified() => drop(call),
        }
        signs.go.notify_one();
        // The detached body waits for the end of this body, as any other task would.
        let waits = tokio::time::timeout(Duration::from_millis(300), signs.done.notified());
        assert!(waits.await.is_err(), "two bodies under one lock");
    };
    held.hold(outer).await.unwrap();
    held.release().await.unwrap();
    within("the detached body's admission", signs.done.notified()).await;
    corner.until_empty().await;
}

#[etcd_locked("outer", locks = &locks, detach, reentrant)]
async fn again(locks: Locks, signs: Arc<Signs>) -> Result<(), LockError> {
    let _dropped = Leaving(signs.clone());
    signs.inside.notify_one();
    pending().await
}

/// Signals its drop.
struct Leaving(Arc<Signs>);

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.done.notify_one();
    }
}

#[limit::test]
async fn a_detached_reentrant_body_ends_with_its_caller() {
    let (corner, [locks]) = Corner::with_engines().await;
    let held = locks.lock("outer").await.unwrap();
    let signs = Arc::new(Signs::default());
    let outer = async {
        let mut call = Box::pin(again(locks.clone(), signs.clone()));
        tokio::select! {
            ended = &mut call => panic!("{ended:?}"),
            () = signs.inside.notified() => {}
        }
        drop(call);
        // The body is dropped with the call, not later in another task.
        let done = tokio::time::timeout(Duration::ZERO, signs.done.notified()).await;
        done.expect("one body under the lock");
    };
    held.hold(outer).await.unwrap();
    held.release().await.unwrap();
    corner.until_empty().await;
}

#[etcd_locked("traced", locks = &locks, detach)]
async fn traced(locks: Locks) -> Result<Option<&'static str>, LockError> {
    tokio::task::yield_now().await;
    Ok(tracing::Span::current().metadata().map(|it| it.name()))
}

#[test]
fn a_detached_body_keeps_its_span() {
    use tracing::Instrument as _;

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let spans = Spans::default();
    let _subscriber = spans.subscribe();
    runtime.block_on(async {
        let locks = Corner::new().await.locks().await;
        let call = traced(locks.clone()).instrument(tracing::info_span!("request"));
        assert_eq!(within("the call", call).await.unwrap(), Some("lock.held"));
        assert_eq!(spans.named("lock.held")[0].parent, Some("request"));
        traced(locks).await.unwrap();
        assert_eq!(spans.named("lock.held")[1].parent, None);
    });
}
