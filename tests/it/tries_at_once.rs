//! Single tries by the thousand: every one of them ends, served or refused, whatever the size of a stack.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use etcd_locked::{Acquire, LockError, LockGuard, LockMode, Locks, Name};
use etcd_locked_devkit::{Direction, Proxy};
use tokio::task::JoinSet;

use crate::corner::{Corner, admitted, connect, spawn};
use crate::limit::{self, within};

const TRIES: usize = 10_000;
const PERMITS: u16 = 5;

/// An engine whose answers from etcd can be held back, so that all tries are there before the first one is decided.
struct Engine {
    corner: Corner,
    proxy: Proxy,
    locks: Locks,
}

impl Engine {
    async fn new() -> Engine {
        let (corner, proxy) = Corner::with_proxy().await;
        // A try that etcd leaves without an answer ends after this time.
        let patience = Duration::from_secs(60);
        let config = corner.config_via([proxy.endpoint()]);
        let locks = connect(config.connect_timeout(patience)).await;
        Engine { corner, proxy, locks }
    }

    /// Makes every try at once; the guards of those that are served. All others must be refused.
    async fn tried<M: LockMode>(
        &self,
        call: impl Fn() -> Acquire<Name, M>,
    ) -> Vec<LockGuard<Name, M>> {
        self.proxy.freeze(Direction::Answers);
        let (mut tasks, mut ends) = (JoinSet::new(), Vec::new());
        for _ in 0..TRIES {
            let mut call = Box::pin(call().try_once().into_future());
            match submit(&mut call) {
                Some(end) => ends.push(end),
                None => drop(tasks.spawn(call)),
            }
        }
        self.proxy.thaw();
        while let Some(end) = within("the end of every try", tasks.join_next()).await {
            ends.push(end.expect("no panic"));
        }
        let served = |end| match end {
            Ok(guard) => Some(guard),
            Err(LockError::Held { .. }) => None,
            Err(error) => panic!("a try was neither served nor refused: {error:?}"),
        };
        ends.into_iter().filter_map(served).collect()
    }
}

/// Polls a call once, which makes it known to the engine.
fn submit<F: Future>(call: &mut Pin<Box<F>>) -> Option<F::Output> {
    let mut context = Context::from_waker(Waker::noop());
    match call.as_mut().poll(&mut context) {
        Poll::Ready(end) => Some(end),
        Poll::Pending => None,
    }
}

#[limit::test]
async fn ten_thousand_tries_for_a_few_permits_end() {
    let engine = Engine::new().await;
    let served = engine.tried(|| engine.locks.lock("crowd").permits(PERMITS)).await;
    let most = usize::from(PERMITS);
    assert!((1..=most).contains(&served.len()), "{}", served.len());
    drop(served);
    engine.corner.until_empty().await;
}

#[limit::test]
async fn ten_thousand_shared_tries_behind_a_holding_writer_end() {
    let engine = Engine::new().await;
    let elsewhere = engine.corner.locks().await;
    let writer = elsewhere.lock("crowd").await.unwrap();
    let served = engine.tried(|| engine.locks.lock("crowd").shared()).await;
    assert_eq!(served.len(), 0, "a reader joined a writer");
    writer.release().await.unwrap();
    engine.corner.until_empty().await;
}

#[limit::test]
async fn ten_thousand_shared_tries_behind_a_queued_writer_end() {
    let engine = Engine::new().await;
    let [here, there] = [engine.corner.locks().await, engine.corner.locks().await];
    let reader = here.lock("crowd").shared().await.unwrap();
    let writer = there.lock("crowd").wait_forever();
    let writer = spawn(writer);
    // The writer has a key of its own, so it waits before the tries begin.
    engine.corner.until_contenders("crowd", 2).await;
    let served = engine.tried(|| engine.locks.lock("crowd").shared()).await;
    reader.release().await.unwrap();
    drop(served);
    let writer = admitted("the writer", writer).await;
    writer.release().await.unwrap();
    engine.corner.until_empty().await;
}

#[limit::test]
async fn ten_thousand_shared_tries_behind_an_undecided_writer_end() {
    let engine = Engine::new().await;
    engine.proxy.freeze(Direction::Answers);
    let mut writer = Box::pin(engine.locks.lock("crowd").wait_forever().into_future());
    assert!(submit(&mut writer).is_none(), "etcd has not answered");
    let served = engine.tried(|| engine.locks.lock("crowd").shared()).await;
    drop(served);
    let writer = within("the writer", writer).await.unwrap();
    writer.release().await.unwrap();
    engine.corner.until_empty().await;
}

#[limit::test]
async fn ten_thousand_exclusive_tries_serve_one() {
    let engine = Engine::new().await;
    let served = engine.tried(|| engine.locks.lock("crowd")).await;
    assert_eq!(served.len(), 1);
    drop(served);
    engine.corner.until_empty().await;
}
