//! `detach`: a body that has begun runs to its end, even if its caller is dropped.

use std::future::{Future, pending, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
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

/// Makes a call on a task of its own, and awaits its body inside.
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
async fn a_caller_that_stays_gets_the_answer_after_the_release() {
    let (_, [mine, theirs]) = Corner::with_engines().await;
    let signs = Arc::new(Signs::default());
    signs.go.notify_one();
    let shipped = within("the call", ship(mine, 7, signs)).await;
    assert_eq!(shipped.unwrap(), "orders/7");
    pass("the next lock", theirs.lock("orders/7").try_once()).await;
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

/// A panic payload that no library makes.
#[derive(Debug, PartialEq)]
struct Payload(u32);

#[etcd_locked("orders/<id>", locks = &locks, detach)]
async fn fail(locks: Locks, id: u32) -> Result<(), LockError> {
    tokio::task::yield_now().await;
    std::panic::panic_any(Payload(id))
}

#[limit::test]
async fn a_panic_reaches_the_caller_and_frees_the_lock() {
    let (corner, [locks]) = Corner::with_engines().await;
    let caller = tokio::spawn(fail(locks.clone(), 7));
    let panic = within("the panic", caller).await.unwrap_err().into_panic();
    assert_eq!(panic.downcast_ref(), Some(&Payload(7)));
    pass("the next lock", locks.lock("orders/7")).await;
    corner.until_empty().await;
}

#[etcd_locked("orders/<id>", locks = &locks, detach, at_most = "100ms")]
async fn limited(locks: Locks, id: u64) -> Result<(), LockError> {
    pending().await
}

#[etcd_locked("orders/<id>", locks = &locks, detach)]
async fn lost(locks: Locks, id: u64, signs: Arc<Signs>) -> Result<(), LockError> {
    signs.inside.notify_one();
    pending().await
}

#[limit::test]
async fn a_caller_gets_the_error_that_ended_its_detached_body() {
    let (corner, [locks]) = Corner::with_engines().await;
    let ended = within("the limit", limited(locks.clone(), 7)).await;
    assert_matches!(ended, Err(LockError::HoldLimit { .. }));
    let (caller, _signs) = inside(|signs| lost(locks.clone(), 7, signs)).await;
    corner.take_away("orders/7").await;
    let ended = within("the loss", caller).await.unwrap();
    assert_matches!(ended, Err(LockError::Lost { .. }));
    corner.until_empty().await;
}

struct Shop {
    shard: u8,
}

impl Shop {
    #[etcd_locked("shops/<self.shard>/<id>", detach)]
    async fn keep(self: Arc<Self>, id: u64) -> Result<(String, u8), LockError> {
        Ok((name(), self.shard))
    }
}

#[async_trait::async_trait]
trait Keeper {
    async fn keep_behind(self: Arc<Self>, id: u64) -> Result<(String, u64), LockError>;
}

#[async_trait::async_trait]
impl Keeper for Shop {
    #[etcd_locked("behind/<id>", detach)]
    async fn keep_behind(self: Arc<Self>, id: u64) -> Result<(String, u64), LockError> {
        Ok((name(), id))
    }
}

#[etcd_locked("generic/<id>", detach, on_held = "skip")]
async fn generic<T: Clone + Send + 'static>(
    id: u64,
    of: impl Fn(&str) -> T + Send + 'static,
) -> Option<T> {
    Some(of(&name()))
}

#[test]
fn any_function_that_owns_its_arguments_may_be_detached() {
    alone(async {
        let shop = Arc::new(Shop { shard: 3 });
        let kept = shop.clone().keep(7).await.unwrap();
        assert_eq!(kept, ("shops/3/7".to_owned(), 3));
        assert_eq!(shop.keep_behind(7).await.unwrap(), ("behind/7".to_owned(), 7));
        assert_eq!(generic(7, str::len).await, Some("generic/7".len()));
    });
}

/// A detached body that uses the engine of its caller's scope, under the lock of its caller.
#[etcd_locked("inner/<id>", detach)]
async fn inner(id: u64) -> Result<(), LockError> {
    // The caller's body awaits this one, so waiting for the caller's lock would be a deadlock. The caller may also go on without
    // this body, so the lock is not reentered either.
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
        poll_fn(|cx| {
            let done = pin!(signs.done.notified()).poll(cx);
            assert!(done.is_ready(), "two bodies under one lock");
            Poll::Ready(())
        })
        .await;
    };
    held.hold(outer).await.unwrap();
    held.release().await.unwrap();
    corner.until_empty().await;
}

#[limit::test]
async fn a_detached_reentrant_body_outlives_a_caller_without_lock() {
    let (corner, [locks]) = Corner::with_engines().await;
    let (caller, signs) = inside(|signs| again(locks.clone(), signs)).await;
    caller.abort();
    let cut = tokio::time::timeout(Duration::from_millis(100), signs.done.notified()).await;
    assert!(cut.is_err(), "the body ended with its caller");
    within("the shutdown", locks.shutdown(Duration::ZERO)).await;
    within("the body's end", signs.done.notified()).await;
    corner.until_empty().await;
}

#[etcd_locked("large", locks = &locks, detach)]
async fn large(locks: Locks) -> Result<u8, LockError> {
    let room = [1_u8; 100_000];
    tokio::task::yield_now().await;
    Ok(room[7])
}

#[test]
fn the_body_takes_no_room_in_the_caller_s_future() {
    with_locks(async |locks: &Locks| {
        let call = large(locks.clone());
        let size = size_of_val(&call);
        assert!(size < 1_000, "{size} bytes");
        assert_eq!(call.await.unwrap(), 1);
    });
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

/// A call may move to another executor, or be dropped in between; its body goes on all the while.
#[limit::test]
async fn a_detached_body_runs_on_without_polls() {
    let (corner, [locks]) = Corner::with_engines().await;
    let signs = Arc::new(Signs::default());
    let mut call = Box::pin(ship(locks, 7, signs.clone()));
    // Polls the call until the body signals that it has begun.
    let mut inside = pin!(signs.inside.notified());
    within(
        "the body inside",
        poll_fn(|cx| {
            let _ = call.as_mut().poll(cx);
            match inside.as_mut().poll(cx) {
                Poll::Ready(()) => Poll::Ready(()),
                Poll::Pending => Poll::Pending,
            }
        }),
    )
    .await;
    signs.go.notify_one();
    within("the body's end", signs.done.notified()).await;
    corner.until_empty().await;
    assert_eq!(call.await.unwrap(), "orders/7");
}
