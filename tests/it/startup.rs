//! Start-up: an engine starts once, from the environment or by `init`. If etcd is unreachable, the error says where and why.

use std::time::{Duration, Instant};

use etcd_locked::{Config, LockError, Locks, Tls};
use etcd_locked_devkit::Proxy;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::authority::Authority;
use crate::corner::{Corner, connect, pass, take};
use crate::etcd::{Etcd, free_port};
use crate::limit::{self, within};
use crate::real_only::real_etcd_only;
use crate::shop::Shop;
use crate::worker::Worker;

const NOTHING: [(&str, &str); 0] = [];

/// The connect time-out in these tests, and the slack for a busy machine.
const CONNECT: Duration = Duration::from_secs(4);
const SLACK: Duration = Duration::from_secs(8);

/// Connects in vain, checks that the error came in time and names the endpoint, and returns it.
async fn refused(config: Config, endpoint: &str) -> LockError {
    let started = Instant::now();
    let connected = within("a refusal", async {
        // An engine that connects only with the first lock gets the error there.
        Locks::connect(config.connect_timeout(CONNECT)).await?.lock("orders/7").wait_forever().await
    });
    let error = connected.await.expect_err("there is nothing to connect to");
    let took = started.elapsed();
    assert!(took <= CONNECT + SLACK, "it took {took:?} to say: {error}");
    let address = endpoint.rsplit('/').next().expect("at least itself");
    assert!(error.to_string().contains(address), "`{error}` does not name {address}");
    error
}

fn says(error: &LockError, words: &[&str]) {
    let text = error.to_string().to_lowercase();
    assert!(words.iter().any(|it| text.contains(it)), "none of {words:?} in `{error}`");
}

#[limit::test]
async fn a_process_without_settings_names_what_to_set() {
    let mut worker = Worker::start(NOTHING);
    let failed = worker.asked("lock orders/7", "failed").await;
    assert!(failed.starts_with("orders/7 NotInitialized"), "{failed}");
    assert!(failed.contains("ETCD_LOCKED_ENDPOINTS"), "{failed}");
    worker.send("work till");
    assert!(worker.says("failed").await.starts_with("till NotInitialized"));
    // The process may still follow the advice of the error.
    let corner = Corner::new().await;
    worker.asked(&format!("init {}", corner.endpoint), "initialised").await;
    worker.asked("lock initialised/late", "locked").await;
}

/// By `init`, or by a first lock, whose engine comes from the environment.
#[limit::test]
async fn a_process_is_initialised_once() {
    let corner = Corner::new().await;
    let init = format!("init {}", corner.endpoint);
    for (first, said) in [(&*init, "initialised"), ("lock orders/7", "locked")] {
        let mut worker = Worker::start(corner.environment());
        worker.send(first);
        worker.says(said).await;
        let failed = worker.asked(&init, "failed").await;
        assert!(failed.starts_with("init AlreadyInitialized"), "{failed}");
        worker.asked("lock initialised/once", "locked").await;
    }
}

#[limit::test]
async fn the_environment_says_everything() {
    let corner = Corner::new().await;
    let mut environment = corner.environment();
    environment.push(("ETCD_LOCKED_TTL", "7s".to_owned()));
    environment.push(("ETCD_LOCKED_WAIT", "none".to_owned()));
    environment.push(("ETCD_LOCKED_SERVICE", "till service".to_owned()));
    // The variables of `etcdctl` come second.
    environment.push(("ETCDCTL_ENDPOINTS", format!("http://127.0.0.1:{}", free_port())));
    let mut worker = Worker::start(environment);
    worker.asked("work till", "held").await;
    let key = corner.owner("jobs/till").await;
    assert!(String::from_utf8_lossy(&key.value).contains("till service"));
    let lease = corner.client.clone().lease_time_to_live(key.lease, None).await.unwrap();
    assert_eq!(lease.granted_ttl(), 7);
    worker.asked("done till", "released").await;
}

#[limit::test]
async fn an_engine_may_try_once_by_default() {
    let corner = Corner::new().await;
    let locks = connect(corner.config().try_once()).await;
    let held = take("a free name", locks.lock("orders/7")).await;
    let refused = within("a try", locks.lock("orders/7")).await;
    assert_matches!(refused, Err(LockError::Held { .. }));
    held.release().await.unwrap();
}

#[limit::test]
async fn an_embedded_etcd_is_chosen_by_name() {
    let mut worker = Worker::start([("ETCD_LOCKED_ENDPOINTS", "embedded")]);
    worker.asked("lock orders/7", "locked").await;
}

#[limit::test]
async fn an_invalid_configuration_is_refused() {
    let endpoint = Corner::new().await.endpoint;
    let good = || Config::new([endpoint.clone()]);
    let connected = within("a refusal", Locks::connect(good().prefix("no-slash"))).await;
    let error = connected.map(drop).unwrap_err();
    assert_matches!(error, LockError::Config { .. });
    // The options of a call are checked as well.
    let locks = connect(good()).await;
    let error =
        within("a refusal", locks.lock("orders/7").ttl(Duration::from_secs(1))).await.unwrap_err();
    assert_matches!(error, LockError::Config { .. });
}

#[limit::test]
async fn refused_endpoints_are_all_named() {
    let endpoints = [free_port(), free_port()].map(|port| format!("http://127.0.0.1:{port}"));
    let error = refused(Config::new(endpoints.clone()), &endpoints[0]).await;
    assert_matches!(error, LockError::Backend { .. });
    assert!(error.is_retryable());
    says(&error, &["refused"]);
    says(&error, &[&endpoints[1]]);
}

#[limit::test]
async fn a_host_that_does_not_exist_is_named() {
    let endpoint = "http://nowhere.invalid:2379";
    let error = refused(Config::new([endpoint]), endpoint).await;
    assert_matches!(error, LockError::Backend { .. });
}

/// The servers share one connect time-out; one each would add up to a multiple of it.
#[limit::test]
async fn silent_servers_are_all_named_in_the_time_of_one() {
    let mut silent = Vec::new();
    for _ in 0..8 {
        // No task accepts these connections, so none is answered.
        silent.push(TcpListener::bind("127.0.0.1:0").await.unwrap());
    }
    let endpoints: Vec<_> = silent
        .iter()
        .map(|listener| format!("http://{}", listener.local_addr().unwrap()))
        .collect();
    let error = refused(Config::new(endpoints.clone()), &endpoints[0]).await;
    assert_matches!(error, LockError::Backend { .. });
    says(&error, &[&endpoints[1]]);
    says(&error, &[&endpoints[2]]);
}

#[limit::test]
async fn a_server_that_is_no_etcd_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let server = tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            let _ = connection.read(&mut [0; 1024]).await;
            let _ = connection
                .write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")
                .await;
        }
    });
    let error = refused(Config::new([endpoint.clone()]), &endpoint).await;
    assert_matches!(error, LockError::Backend { .. });
    server.abort();
}

#[limit::test]
async fn a_client_certificate_is_presented() {
    real_etcd_only!("an embedded etcd has no certificates");
    let authority = Authority::new();
    let etcd = Etcd::start_with_client_certificates(&authority).await;
    let config = || Config::new([etcd.endpoint()]);
    let error = refused(config().tls(Tls::new().ca_pem(authority.pem())), &etcd.endpoint()).await;
    assert_matches!(error, LockError::Backend { .. });
    let (certificate, key) = authority.issue("client");
    let tls = Tls::new().ca_pem(authority.pem()).identity_pem(certificate, key);
    let locks = connect(config().tls(tls)).await;
    pass("a lock over TLS", locks.lock("orders/7")).await;
}

#[limit::test]
async fn a_user_may_come_from_the_environment() {
    real_etcd_only!("an embedded etcd has no users");
    let etcd = Shop::start("secret").await.etcd;
    // The two variables of `etcdctl`.
    let mut worker = Worker::start([
        ("ETCDCTL_ENDPOINTS", etcd.endpoint()),
        ("ETCDCTL_USER", "shop".to_owned()),
        ("ETCDCTL_PASSWORD", "secret".to_owned()),
    ]);
    worker.asked("lock orders/7", "locked").await;
}

/// A failed first call is not final, because services and their etcd start in any order.
#[limit::test]
async fn a_process_that_started_before_etcd_works_once_it_is_there() {
    let etcd = Etcd::shared().await;
    let proxy = Proxy::start(etcd.address()).unwrap();
    proxy.refuse();
    let mut worker = Worker::start([("ETCD_LOCKED_ENDPOINTS", proxy.endpoint())]);
    let failed = worker.asked("lock started/early", "failed").await;
    assert!(failed.starts_with("started/early Backend"), "{failed}");
    proxy.accept_again().unwrap();
    worker.asked("lock started/early", "locked").await;
}
