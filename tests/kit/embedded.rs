//! Embedded etcd of a `Config`: each `Config::embedded()` has its own, and clones of that value share it.

use std::time::Duration;

use etcd_locked::{Config, LockError, Locks};

#[tokio::test]
async fn clones_of_a_config_share_their_etcd() {
    let config = Config::embedded();
    let one = Locks::connect(config.clone()).await.unwrap();
    let two = Locks::connect(config).await.unwrap();
    let alone = Locks::connect(Config::embedded()).await.unwrap();
    let held = one.lock("jobs/nightly").await.unwrap();
    let error = two.lock("jobs/nightly").try_once().await.unwrap_err();
    assert_matches!(error, LockError::Held { .. });
    let other = alone.lock("jobs/nightly").try_once().await.unwrap();
    // The caller's own client reaches the same etcd.
    let mut client = one.client().await.unwrap();
    let deleted = client
        .delete(
            "locks/jobs/nightly/",
            Some(etcd_locked::etcd_client::DeleteOptions::new().with_prefix()),
        )
        .await
        .unwrap();
    assert_eq!(deleted.deleted(), 1);
    let taken = two.lock("jobs/nightly").wait(Duration::from_secs(10)).await;
    assert_eq!(held.lost().await, etcd_locked::LossCause::Gone);
    taken.unwrap().release().await.unwrap();
    other.release().await.unwrap();
}
