//! `Config::embedded`: an etcd in the process, one for each `Config` value, whose clones share it.

use std::time::Duration;

use etcd_locked::{Config, LockError, Locks};

#[tokio::test]
async fn clones_of_a_config_share_their_etcd_and_nobody_else_does() {
    let config = Config::embedded();
    let one = Locks::connect(config.clone()).await.unwrap();
    let two = Locks::connect(config).await.unwrap();
    let alone = Locks::connect(Config::embedded()).await.unwrap();
    let held = one.lock("jobs/nightly").await.unwrap();
    let error = two.lock("jobs/nightly").try_once().await.unwrap_err();
    assert!(matches!(error, LockError::Held { .. }), "{error:?}");
    let other = alone.lock("jobs/nightly").try_once().await.unwrap();
    // The caller's own client reaches it, too.
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
    assert_eq!(held.lost().await, etcd_locked::LossCause::Deleted);
    taken.unwrap().release().await.unwrap();
    other.release().await.unwrap();
}

#[tokio::test]
async fn who_asks_for_users_gets_none() {
    let config = Config::embedded().user("me", "secret");
    let locks = Locks::connect(config).await.unwrap();
    let held = locks.lock("jobs/nightly").await.unwrap();
    held.release().await.unwrap();
}

#[tokio::test]
async fn it_outlives_a_shutdown_of_one_engine() {
    let config = Config::embedded();
    let one = Locks::connect(config.clone()).await.unwrap();
    let held = one.lock("jobs/nightly").await.unwrap();
    drop(held);
    one.shutdown(Duration::ZERO).await;
    let two = Locks::connect(config).await.unwrap();
    let held = two.lock("jobs/nightly").try_once().await.unwrap();
    held.release().await.unwrap();
}
