//! Operator actions on a lock: delete its key, revoke its lease, compact the history, or contend by hand.

use etcd_locked::LossCause;

use crate::service::{Packing, held_elsewhere, secs, ship, start};

#[tokio::test]
async fn deleted_lock_passes_to_the_next_waiter() {
    let etcd = start().await;
    let packing = Packing::of(7);
    let next = tokio::spawn(ship(7));
    etcd.lose("orders/7").await.unwrap();
    assert_eq!(packing.loss().await, Some(LossCause::Gone));
    assert!(next.is_finished());
    assert_eq!(next.await.unwrap().unwrap(), 7);
    assert_eq!(etcd.held().await, [""; 0]);
}

#[tokio::test]
async fn lose_refuses_a_name_that_is_not_held() {
    let etcd = start().await;
    let nothing = etcd.lose("orders/7").await.unwrap_err().to_string();
    assert_eq!(nothing, "`orders/7` is not held, and nothing else is");
    let one = etcd.locks().lock("orders/8").await.unwrap();
    let two = etcd.locks().lock("orders/9").await.unwrap();
    let wrong = etcd.lose("orders/7").await.unwrap_err().to_string();
    assert_eq!(wrong, "`orders/7` is not held; these are: `orders/8`, `orders/9`");
    assert!(etcd.lose("orders//7").await.is_err());
    assert!(one.is_held() && two.is_held());
}

#[tokio::test]
async fn revoking_leases_loses_their_locks() {
    let etcd = start().await;
    let other = etcd.second().await.unwrap();
    let theirs = other.lock("orders/8").await.unwrap();
    let packing = Packing::of(7);
    let waiting = tokio::spawn(ship(7));
    etcd.revoke_all().await;
    assert_eq!(packing.loss().await, Some(LossCause::Gone));
    assert!(!theirs.is_held());
    // The waiter continues under a new session.
    etcd.advance(secs(1)).await;
    assert_eq!(waiting.await.unwrap().unwrap(), 7);
    assert_eq!(ship(8).await.unwrap(), 8);
}

#[tokio::test]
async fn compaction_loses_no_lock() {
    let (etcd, _other, held) = held_elsewhere().await;
    let waiting = tokio::spawn(ship(7));
    etcd.advance(secs(2)).await;
    let mut client = etcd.client().await;
    for _ in 0..5 {
        client.put("noise", "", None).await.unwrap();
    }
    etcd.compact().await;
    etcd.compact().await;
    let past = etcd_locked::etcd_client::GetOptions::new().with_revision(2);
    let error = client.get("noise", Some(past)).await.unwrap_err();
    assert!(error.to_string().contains("compacted"), "{error}");
    assert!(held.is_held());
    held.release().await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap(), 7);
}
