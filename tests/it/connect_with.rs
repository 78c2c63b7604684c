//! Where no URL says how etcd is reached, a closure does.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use etcd_locked::etcd_client::{Client, Error};
use etcd_locked::{Config, LockError, Locks};

use crate::corner::{Corner, connect, pass, take};
use crate::etcd::{Etcd, free_port};
use crate::limit::{run, within};
use crate::proxy::{Proxy, Way};

/// By a closure that connects there, and notes on which thread.
fn noting(endpoint: String, threads: &Arc<Mutex<Vec<String>>>) -> Config {
    let threads = Arc::clone(threads);
    Config::connect_with(move |options| {
        let (endpoint, threads) = (endpoint.clone(), Arc::clone(&threads));
        async move {
            let thread = std::thread::current().name().unwrap_or("?").to_owned();
            threads.lock().expect("nobody panics with it").push(thread);
            Client::connect([endpoint], Some(options)).await
        }
    })
}

#[test]
fn a_closure_makes_the_engines_client_on_its_thread() {
    run(async {
        let corner = Corner::new().await;
        let threads = Arc::default();
        let config = noting(corner.endpoint.clone(), &threads);
        let locks = connect(config.prefix(&corner.prefix)).await;
        let held = take("the lock", locks.lock("orders/7")).await;
        assert_eq!(corner.contenders("orders/7").await.len(), 1);
        held.release().await.unwrap();
        assert_eq!(*threads.lock().unwrap(), ["etcd-locked"]);
        // A client of the caller's own is made by it too, here.
        let mut client = locks.client().await.unwrap();
        client.get("x", None).await.unwrap();
        assert_eq!(threads.lock().unwrap().len(), 2);
        assert_ne!(threads.lock().unwrap()[1], "etcd-locked");
    });
}

#[test]
fn a_connection_that_went_silent_is_made_anew() {
    run(async {
        let etcd = Etcd::shared().await;
        let corner = Corner::of(etcd).await;
        let proxy = Proxy::start(etcd.address()).await;
        let threads = Arc::default();
        let config = noting(proxy.endpoint(), &threads);
        let locks = connect(config.prefix(&corner.prefix)).await;
        pass("the first", locks.lock("orders/7")).await;
        proxy.freeze(Way::Answers);
        let refused = within("a refusal", locks.lock("orders/7").try_once()).await;
        assert!(refused.is_err(), "{refused:?}");
        proxy.thaw();
        pass("the second", locks.lock("orders/8")).await;
        let made = threads.lock().unwrap().len();
        assert!(made > 1, "it is still the first client");
    });
}

#[test]
fn a_closure_that_cannot_connect_for_once_is_asked_again() {
    run(async {
        let corner = Corner::new().await;
        let endpoint = corner.endpoint.clone();
        let refusals = Arc::new(AtomicU32::new(2));
        let config = Config::connect_with(move |options| {
            let refuses = |left: u32| left.checked_sub(1);
            let refused = refusals.fetch_update(Ordering::SeqCst, Ordering::SeqCst, refuses);
            let endpoint = endpoint.clone();
            async move {
                match refused {
                    Ok(_) => Err(Error::IoError(std::io::ErrorKind::ConnectionRefused.into())),
                    Err(_) => Client::connect([endpoint], Some(options)).await,
                }
            }
        });
        let locks = connect(config.prefix(&corner.prefix)).await;
        pass("the lock", locks.lock("orders/7")).await;
    });
}

#[test]
fn what_the_closure_says_is_told_and_named() {
    run(async {
        let nobody = format!("http://127.0.0.1:{}", free_port());
        let config = noting(nobody, &Arc::default());
        let connected = Locks::connect(config.connect_timeout(Duration::from_secs(1)));
        let error = within("a refusal", connected).await.unwrap_err();
        assert!(matches!(error, LockError::Backend { .. }), "{error:?}");
        let text = error.to_string();
        assert!(text.contains("connect_with: tcp connect error"), "{text}");

        // An error that no waiting mends, and a panic: neither takes the engine along.
        let config = Config::connect_with(|_| async { Err(Error::EndpointsNotManaged) });
        let error = within("a refusal", Locks::connect(config)).await;
        let text = error.unwrap_err().to_string();
        assert!(text.contains("connect_with: "), "{text}");
        let config = Config::connect_with(|_| async { panic!("of the user's") });
        let began = Instant::now();
        let connected = Locks::connect(config.connect_timeout(Duration::from_secs(1)));
        let error = within("a refusal", connected).await.unwrap_err();
        assert!(matches!(error, LockError::Backend { .. }), "{error:?}");
        assert!(began.elapsed() < Duration::from_secs(5));
    });
}
