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
async fn ten_thousand_tries_serve_as_many_as_there_is_room_for() {
    let engine = Engine::new().await;
    let served = engine.tried(|| engine.locks.lock("crowd").permits(PERMITS)).await;
    assert!((1..=usize::from(PERMITS)).contains(&served.len()), "{}", served.len());
    drop(served);
    engine.corner.until_empty().await;
    let served = engine.tried(|| engine.locks.lock("crowd")).await;
    assert_eq!(served.len(), 1);
    drop(served);
    engine.corner.until_empty().await;
}

#[limit::test]
async fn ten_thousand_shared_tries_behind_a_writer_end() {
    let engine = Engine::new().await;
    let [here, there] = [engine.corner.locks().await, engine.corner.locks().await];
    let tries = || engine.locks.lock("crowd").shared();
    // It waits behind a reader. Its key is there before the tries begin.
    let reader = here.lock("crowd").shared().await.unwrap();
    let writer = spawn(there.lock("crowd").wait_forever());
    engine.corner.until_contenders("crowd", 2).await;
    let served = engine.tried(tries).await;
    reader.release().await.unwrap();
    drop(served);
    let writer = admitted("the writer", writer).await;
    // It holds the lock.
    assert_eq!(engine.tried(tries).await.len(), 0, "a reader joined a writer");
    writer.release().await.unwrap();
    // It is of the same engine, and etcd has not answered it.
    engine.proxy.freeze(Direction::Answers);
    let mut writer = Box::pin(engine.locks.lock("crowd").wait_forever().into_future());
    assert!(submit(&mut writer).is_none(), "etcd has not answered");
    drop(engine.tried(tries).await);
    within("the writer", writer).await.unwrap().release().await.unwrap();
    engine.corner.until_empty().await;
}
