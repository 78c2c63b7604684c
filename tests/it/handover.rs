//! Hand-over: inside a process a lock passes from call to call without a request to etcd, and other processes still get it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::task::JoinSet;

use crate::corner::{Corner, pass};
use crate::limit::{self, within};
use crate::steps::queued;

#[limit::test]
async fn a_hand_over_keeps_the_key() {
    let (corner, [locks]) = Corner::with_engines().await;
    let mut held = locks.lock("orders/7").await.unwrap();
    let key = corner.owner("orders/7").await;
    let mut token = held.token();
    for _ in 0..5 {
        let next = queued(locks.lock("orders/7").wait_forever());
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
}

#[limit::test]
async fn a_hand_over_keeps_no_name_for_a_call_that_wants_others() {
    let (corner, [locks]) = Corner::with_engines().await;
    let held = locks.lock("orders/7").and("orders/8").await.unwrap();
    let elsewhere = locks.lock("orders/9").await.unwrap();
    let both = queued(locks.lock("orders/8").and("orders/9").wait_forever());
    let single = queued(locks.lock("orders/7").wait_forever());
    held.release().await.unwrap();
    let single = within("the single lock's admission", single).await.unwrap();
    assert!(
        corner.contenders("orders/8").await.is_empty(),
        "a name is kept for a call that cannot have all of its names"
    );
    elsewhere.release().await.unwrap();
    pass("both locks' admission", both).await;
    single.release().await.unwrap();
    corner.until_empty().await;
}

/// Without a bound on hand-overs, a busy process would keep the lock for ever.
#[limit::test]
async fn another_process_is_admitted_despite_hand_overs() {
    let (corner, [busy, other]) = Corner::with_engines().await;
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
        pass(
            "the other's admission",
            other.lock("orders/7").wait_forever(),
        )
        .await;
    }
    over.store(true, Ordering::SeqCst);
    while let Some(ended) = within("the busy ones' end", tasks.join_next()).await {
        ended.unwrap();
    }
    assert!(
        runs.load(Ordering::SeqCst) > 0,
        "there was no hand-over meanwhile"
    );
    corner.until_empty().await;
}
