//! Fencing: tokens grow from owner to owner, so that a store can refuse a late write; a fence does the same inside etcd.

use etcd_client::{Compare, Txn, TxnOp};
use etcd_locked::current;

use crate::corner::Corner;
use crate::limit::{self, within};

#[limit::test]
async fn tokens_grow_while_many_wait() {
    let corner = Corner::new().await;
    let held = corner.locks().await.lock("orders/7").await.unwrap();
    let (send, mut entries) = tokio::sync::mpsc::unbounded_channel();
    for _ in 0..3 {
        let locks = corner.locks().await;
        for _ in 0..5 {
            let (locks, send) = (locks.clone(), send.clone());
            tokio::spawn(async move {
                let held = locks.lock("orders/7").wait_forever().await.unwrap();
                // Sent under the lock, so that the order in the channel is the order of ownership.
                send.send(held.token()).unwrap();
                held.release().await.unwrap();
            });
        }
    }
    drop(send);
    corner.until_contenders("orders/7", 4).await;
    let mut tokens = vec![held.token()];
    held.release().await.unwrap();
    while let Some(token) = within("the next owner", entries.recv()).await {
        tokens.push(token);
    }
    assert_eq!(tokens.len(), 16);
    assert!(tokens.windows(2).all(|it| it[0].as_i64() < it[1].as_i64()), "{tokens:?}");
}

#[limit::test]
async fn a_token_is_one_number_and_its_parts() {
    let corner = Corner::new().await;
    let held = corner.locks().await.lock("orders/7").await.unwrap();
    let token = held.token();
    assert_eq!(token.as_i64(), token.revision() << 16 | i64::from(token.handover()));
    assert!(token.revision() >= corner.owner("orders/7").await.created);
    let inside = held.hold(async { current().unwrap().token() }).await.unwrap();
    assert_eq!(inside, token);
    held.release().await.unwrap();
}

/// Writes if the fence still stands; returns whether it did.
async fn write(corner: &Corner, fence: Compare) -> bool {
    let put = TxnOp::put(format!("{}written", corner.prefix), "x", None);
    let answer = corner.client.clone().txn(Txn::new().when([fence]).and_then([put])).await;
    answer.expect("etcd answers the test's own client").succeeded()
}

#[limit::test]
async fn a_fence_stands_while_the_lock_is_held() {
    let (corner, [locks]) = Corner::with_engines().await;
    let held = locks.lock("orders/7").await.unwrap();
    let fence = held.fence();
    assert!(write(&corner, fence.clone()).await, "the fence fell while the lock was held");
    held.release().await.unwrap();
    assert!(!write(&corner, fence.clone()).await, "the fence stands after the release");
    // The fence does not stand for the next ownership of the same engine.
    let next = locks.lock("orders/7").await.unwrap();
    assert!(!write(&corner, fence.clone()).await, "the fence stands for the next owner");
    assert!(write(&corner, next.fence()).await);
    next.release().await.unwrap();
}
