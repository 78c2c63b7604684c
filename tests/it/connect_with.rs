//! Client closure (`Config::connect_with`): it makes the engine's etcd client.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use etcd_locked::etcd_client::{Client, Error};
use etcd_locked::{Config, LockError, Locks};
use etcd_locked_tests::chain;

use crate::corner::{Corner, connect, take};
use crate::etcd::free_port;
use crate::limit::{self, within};

/// Returns a configuration whose closure connects to this endpoint and records the thread it runs on.
fn noting(endpoint: String, threads: &Arc<Mutex<Vec<String>>>) -> Config {
    let threads = Arc::clone(threads);
    Config::connect_with(move |options| {
        let (endpoint, threads) = (endpoint.clone(), Arc::clone(&threads));
        async move {
            let thread = std::thread::current().name().unwrap_or("?").to_owned();
            threads.lock().expect("not poisoned").push(thread);
            Client::connect([endpoint], Some(options)).await
        }
    })
}

#[limit::test]
async fn a_closure_makes_the_engines_client_on_its_thread() {
    let corner = Corner::new().await;
    let threads = Arc::default();
    let config = noting(corner.endpoint.clone(), &threads);
    let locks = connect(config.prefix(&corner.prefix)).await;
    let held = take("the lock", locks.lock("orders/7")).await;
    assert_eq!(corner.contenders("orders/7").await.len(), 1);
    held.release().await.unwrap();
    assert_eq!(*threads.lock().unwrap(), ["etcd-locked"]);
    // The closure also makes the caller's own client, on the caller's thread.
    let mut client = locks.client().await.unwrap();
    client.get("x", None).await.unwrap();
    assert_eq!(threads.lock().unwrap().len(), 2);
    assert_ne!(threads.lock().unwrap()[1], "etcd-locked");
}

#[limit::test]
async fn an_error_of_the_closure_is_reported() {
    let dead = format!("http://127.0.0.1:{}", free_port());
    let config = noting(dead, &Arc::default());
    let connected = Locks::connect(config.connect_timeout(Duration::from_secs(1)));
    let error = within("a refusal", connected).await.unwrap_err();
    assert_matches!(error, LockError::Backend { .. });
    let text = chain(&error);
    assert!(text.contains("connect_with: tcp connect error"), "{text}");

    // Neither a permanent error nor a panic ends the engine.
    let config = Config::connect_with(|_| async { Err(Error::EndpointsNotManaged) });
    let error = within("a refusal", Locks::connect(config)).await;
    let text = chain(&error.unwrap_err());
    assert!(text.contains("connect_with: "), "{text}");
    let config = Config::connect_with(|_| async { panic!("the user's closure panics") });
    let began = Instant::now();
    let connected = Locks::connect(config.connect_timeout(Duration::from_secs(1)));
    let error = within("a refusal", connected).await.unwrap_err();
    assert_matches!(error, LockError::Backend { .. });
    assert!(began.elapsed() < Duration::from_secs(5));
}
