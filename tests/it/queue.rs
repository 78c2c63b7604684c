//! Queue of contenders in etcd: a waiting call is admitted, even if its key or the keys before it are deleted or overwritten.

use etcd_client::PutOptions;

use crate::corner::{Corner, served, spawn};
use crate::limit;

#[limit::test]
async fn a_waiting_key_that_is_deleted_or_revoked_is_put_again() {
    let (corner, [mine, theirs]) = Corner::with_engines().await;
    let held = theirs.lock("orders/7").await.unwrap();
    let waiter = spawn(mine.lock("orders/7").wait_forever());
    let mut client = corner.client.clone();
    let key = corner.until_contenders("orders/7", 2).await[1].clone();
    client.delete(key.text, None).await.unwrap();
    let lease = corner.until_contenders("orders/7", 2).await[1].lease;
    client.lease_revoke(lease).await.unwrap();
    let what = "a waiting key on another lease";
    corner
        .until(what, &corner.below("orders/7"), |keys| {
            keys.len() == 2 && keys.iter().all(|it| it.lease != lease)
        })
        .await;
    held.release().await.unwrap();
    served("the waiter", waiter).await;
    corner.until_empty().await;
}

/// An overwritten key has a foreign lease or none, so it would outlive its process.
#[limit::test]
async fn a_waiting_key_that_is_overwritten_is_served_and_goes() {
    let (corner, [mine, theirs]) = Corner::with_engines().await;
    let mut client = corner.client.clone();
    let foreign = client.lease_grant(600, None).await.unwrap().id();
    // The waiter's engine observes both events at about the same time, in either order.
    for _ in 0..20 {
        let held = theirs.lock("orders/7").await.unwrap();
        let waiter = spawn(mine.lock("orders/7").wait_forever());
        let key = corner.until_contenders("orders/7", 2).await[1].clone();
        client
            .put(key.text, "mine now", Some(PutOptions::new().with_lease(foreign)))
            .await
            .unwrap();
        held.release().await.unwrap();
        served("the waiter", waiter).await;
        corner.until_empty().await;
    }
}
