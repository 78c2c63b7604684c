//! Inside a process a lock passes from call to call without a word to etcd, and other processes are not kept waiting for it.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Waker};

use etcd_locked::{Acquire, LockError, LockGuard};
use tokio::task::JoinSet;

use crate::corner::{Corner, pass};
use crate::limit::{run, within};

type Waiting = Pin<Box<dyn Future<Output = Result<LockGuard, LockError>> + Send>>;

/// A call that has its place in the queue: it has been polled.
fn queue_up(call: Acquire) -> Waiting {
    let mut call: Waiting = Box::pin(call.wait_forever().into_future());
    let mut cx = Context::from_waker(Waker::noop());
    assert!(call.as_mut().poll(&mut cx).is_pending());
    call
}

#[test]
fn a_lock_is_handed_on_with_its_key() {
    run(async {
        let corner = Corner::new().await;
        let locks = corner.locks().await;
        let mut held = locks.lock("orders/7").await.unwrap();
        let key = corner.contenders("orders/7").await[0].clone();
        let mut token = held.token();
        for _ in 0..5 {
            let next = queue_up(locks.lock("orders/7"));
            held.release().await.unwrap();
            held = within("the next in the process", next).await.unwrap();
            assert!(held.token() > token && held.token().as_i64() > token.as_i64());
            assert_eq!(held.token().revision(), token.revision());
            assert_eq!(held.token().handover(), token.handover() + 1);
            token = held.token();
            let now = &corner.contenders("orders/7").await[0];
            assert_eq!((&now.text, now.created), (&key.text, key.created));
        }
        held.release().await.unwrap();
        corner.until_empty().await;
        let held = locks.lock("orders/7").await.unwrap();
        assert!(held.token() > token && held.token().handover() == 0);
    });
}

#[test]
fn of_several_locks_each_goes_to_whom_it_is_all_he_wants() {
    run(async {
        let corner = Corner::new().await;
        let locks = corner.locks().await;
        let held = locks.lock("orders/7").and("orders/8").await.unwrap();
        let elsewhere = locks.lock("orders/9").await.unwrap();
        let both = queue_up(locks.lock("orders/8").and("orders/9"));
        let single = queue_up(locks.lock("orders/7"));
        held.release().await.unwrap();
        let single = within("the single lock's turn", single).await.unwrap();
        assert_eq!(single.token().handover(), 1);
        assert!(
            corner.contenders("orders/8").await.is_empty(),
            "a part is kept for nobody"
        );
        elsewhere.release().await.unwrap();
        pass("both locks' turn", both).await;
        single.release().await.unwrap();
        corner.until_empty().await;
    });
}

/// A process whose calls never end would keep the lock for ever.
#[test]
fn another_process_gets_its_turn_while_one_hands_on() {
    run(async {
        let corner = Corner::new().await;
        let (busy, other) = (corner.locks().await, corner.locks().await);
        let (over, runs) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicUsize::new(0)),
        );
        let mut tasks = JoinSet::new();
        for _ in 0..4 {
            let (busy, over, runs) = (busy.clone(), over.clone(), runs.clone());
            tasks.spawn(async move {
                while !over.load(Ordering::SeqCst) {
                    let held = busy.lock("orders/7").wait_forever().await.unwrap();
                    if held.token().handover() > 0 {
                        runs.fetch_add(1, Ordering::SeqCst);
                    }
                    held.release().await.unwrap();
                }
            });
        }
        for _ in 0..10 {
            corner.until_contenders("orders/7", 1).await;
            pass("the other's turn", other.lock("orders/7").wait_forever()).await;
        }
        over.store(true, Ordering::SeqCst);
        while let Some(ended) = within("the busy ones' end", tasks.join_next()).await {
            ended.unwrap();
        }
        assert!(
            runs.load(Ordering::SeqCst) > 0,
            "none was handed on meanwhile"
        );
        corner.until_empty().await;
    });
}
