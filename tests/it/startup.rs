//! Start-up: an engine starts once, from the environment or by `init`. Errors say where and why it failed, and if a retry helps.

use std::time::{Duration, Instant};

use etcd_locked::{Config, LockError, Locks, Tls};
use etcd_locked_devkit::Proxy;
use etcd_locked_tests::chain;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::authority::Authority;
use crate::corner::{Corner, connect, pass};
use crate::etcd::{Etcd, free_port};
use crate::limit::{self, within};
use crate::real_only::real_etcd_only;
use crate::shop::Shop;
use crate::worker::Worker;

/// Connect time-out in these tests, with slack for a busy machine.
const CONNECT: Duration = Duration::from_secs(4);
const SLACK: Duration = Duration::from_secs(8);

/// Connect time-out longer than the test's limit: an error that waits for it comes too late.
const NEVER: Duration = Duration::from_secs(300);

/// Connects to endpoints that do not respond, and checks that the error came in time, is retryable and names each of them.
async fn unreachable(endpoints: &[String]) -> String {
    let started = Instant::now();
    let config = Config::new(endpoints).connect_timeout(CONNECT);
    let connected = within("a refusal", async {
        // An engine that connects only with the first lock gets the error there.
        Locks::connect(config).await?.lock("orders/7").wait_forever().await
    });
    let error = connected.await.expect_err("there is nothing to connect to");
    let took = started.elapsed();
    assert!(took <= CONNECT + SLACK, "it took {took:?} to say: {error}");
    assert_matches!(error, LockError::Backend { .. });
    let text = chain(&error);
    for endpoint in endpoints.iter().take(3) {
        let address = endpoint.rsplit('/').next().expect("at least itself");
        assert!(text.contains(address), "`{text}` does not name {address}");
    }
    text.to_lowercase()
}

/// Awaits an error that comes without a time-out and is not retryable, because an operator must fix the mistake. Returns its text.
async fn mistake(config: Config, parts: &[&str]) {
    let connecting = Locks::connect(config.connect_timeout(NEVER));
    let error = within("a refusal", connecting).await.map(drop);
    let error = error.expect_err("there is nothing to connect to");
    assert_matches!(error, LockError::Backend { .. });
    assert!(!error.is_retryable(), "{error}");
    let text = chain(&error);
    for part in parts {
        assert!(text.contains(part), "no `{part}` in `{text}`");
    }
    assert!(!text.contains("secret"), "a password in `{text}`");
}

#[limit::test]
async fn a_process_without_settings_names_what_to_set() {
    let corner = Corner::new().await;
    // A service ignores the variables of `etcdctl`.
    let mut worker = Worker::start([("ETCDCTL_ENDPOINTS", &corner.endpoint)]);
    let failed = worker.asked("lock orders/7", "failed").await;
    assert!(failed.starts_with("orders/7 NotInitialized"), "{failed}");
    assert!(failed.contains("ETCD_LOCKED_ENDPOINTS"), "{failed}");
    let failed = worker.asked("work till", "failed").await;
    assert!(failed.starts_with("till NotInitialized"), "{failed}");
    // The process may still follow the error's advice. A lock requested while `init` connects waits for it.
    worker.asked(&format!("init-beside {} initialised/late", corner.endpoint), "locked").await;
    worker.asked("lock initialised/later", "locked").await;
}

/// After a program calls `init`, no lock starts an engine without it, and no engine outlives the shutdown.
#[limit::test]
async fn init_goes_before_the_environment() {
    let corner = Corner::new().await;
    let mut worker = corner.worker([("WORKER_LOGS", "info")]);
    worker.asked(&format!("init http://127.0.0.1:{}", free_port()), "failed").await;
    let refused = worker.asked("lock orders/7", "failed").await;
    assert!(refused.starts_with("orders/7 Backend"), "{refused}");
    worker.asked(&format!("init {}", corner.endpoint), "initialised").await;
    assert!(!worker.said("shutdown"), "it logs a shutdown that was not requested");
    let mut worker = corner.worker([]);
    let refused = worker.asked(&format!("init-shut {} orders/7", corner.endpoint), "failed").await;
    assert!(refused.starts_with("orders/7 ShuttingDown"), "{refused}");
}

/// Initialised by `init`, or by a first lock, whose engine comes from the environment. It also ends once.
#[limit::test]
async fn a_process_is_initialised_once() {
    let corner = Corner::new().await;
    let init = format!("init {}", corner.endpoint);
    for (first, said) in [(&*init, "initialised"), ("lock orders/7", "locked")] {
        let mut worker = corner.worker([]);
        worker.asked(first, said).await;
        let failed = worker.asked(&init, "failed").await;
        assert!(failed.starts_with("init AlreadyInitialized"), "{failed}");
        worker.asked("lock initialised/once", "locked").await;
        worker.asked("shutdown 1000", "shut").await;
        for (command, what) in
            [(&*init, "init"), ("lock orders/7", "orders/7"), ("work till", "till")]
        {
            let failed = worker.asked(command, "failed").await;
            assert!(failed.starts_with(&format!("{what} ShuttingDown")), "{failed}");
        }
    }
}

#[limit::test]
async fn the_environment_says_everything() {
    let corner = Corner::new().await;
    let mut worker = corner.worker([
        ("ETCD_LOCKED_TTL", "7s"),
        ("ETCD_LOCKED_WAIT", "none"),
        ("ETCD_LOCKED_SERVICE", "till service"),
    ]);
    worker.asked("work till", "held").await;
    let key = corner.owner("jobs/till").await;
    assert!(String::from_utf8_lossy(&key.value).contains("till service"));
    let lease = corner.client.clone().lease_time_to_live(key.lease, None).await.unwrap();
    assert_eq!(lease.granted_ttl(), 7);
    worker.asked("done till", "released").await;
    let mut worker = Worker::start([("ETCD_LOCKED_ENDPOINTS", "embedded")]);
    worker.asked("lock orders/7", "locked").await;
}

#[limit::test]
async fn refused_endpoints_are_all_named() {
    let endpoints = [free_port(), free_port()].map(|port| format!("http://127.0.0.1:{port}"));
    assert!(unreachable(&endpoints).await.contains("refused"));
    unreachable(&["http://nowhere.invalid:2379".to_owned()]).await;
}

/// The servers share one connect time-out; separate ones would add up.
#[limit::test]
async fn silent_servers_are_named_in_the_time_of_one() {
    let mut silent = Vec::new();
    for _ in 0..8 {
        // No task accepts these connections, so there is no response.
        silent.push(TcpListener::bind("127.0.0.1:0").await.unwrap());
    }
    let endpoint = |it: &TcpListener| format!("http://{}", it.local_addr().unwrap());
    unreachable(&silent.iter().map(endpoint).collect::<Vec<_>>()).await;
}

#[limit::test]
async fn a_server_that_is_no_etcd_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            let _ = connection.read(&mut [0; 1024]).await;
            let answer = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n";
            let _ = connection.write_all(answer).await;
        }
    });
    unreachable(&[endpoint]).await;
}

/// A proxy whose etcd restarts gives the same errors as a port that speaks TLS.
#[limit::test]
async fn an_endpoint_without_etcd_gets_no_hint_at_tls() {
    let mut etcd = Etcd::start().await;
    let proxy = Proxy::start(etcd.address()).unwrap();
    etcd.kill();
    assert!(!unreachable(&[proxy.endpoint()]).await.contains("https"));
}

#[limit::test]
async fn tls_to_a_plain_port_is_refused_at_once() {
    let endpoint = Etcd::shared().await.endpoint().replace("http://", "https://");
    mistake(Config::new([&endpoint]), &[&endpoint, "write `http://`"]).await;
}

#[limit::test]
async fn tls_mistakes_are_refused_at_once() {
    real_etcd_only!("an embedded etcd has no certificates");
    let authority = Authority::new();
    let etcd = Etcd::start_with_client_certificates(&authority).await;
    let plain = format!("http://{}", etcd.address());
    mistake(Config::new([plain.clone()]), &[&plain, "write `https://`"]).await;
    let config = || Config::new([etcd.endpoint()]);
    mistake(config(), &["invalid peer certificate", &etcd.address()]).await;
    let tls = || Tls::new().ca_pem(authority.pem());
    mistake(config().tls(Tls::new().ca_pem(Authority::new().pem())), &[]).await;
    mistake(config().tls(tls().domain("etcd.example")), &[]).await;
    let (certificate, key) = authority.issue("client");
    let sound = tls().identity_pem(certificate, key);
    let without = within("a refusal", Locks::connect(config().tls(tls()))).await.map(drop);
    assert_matches!(without, Err(LockError::Backend { .. }));
    // A member with a wrong configuration is skipped like one that is down.
    let by_name = etcd.endpoint().replace("127.0.0.1", "localhost");
    for endpoints in [[etcd.endpoint(), by_name.clone()], [by_name, etcd.endpoint()]] {
        let locks = connect(Config::new(endpoints).tls(sound.clone())).await;
        pass("a lock", locks.lock("orders/7")).await;
    }
}

#[limit::test]
async fn credentials_are_not_retryable() {
    real_etcd_only!("an embedded etcd has no users");
    let etcd = Shop::start("secret").await.etcd;
    let config = || Config::new([etcd.endpoint()]);
    mistake(config().user("shop", "wrong"), &[&etcd.address(), "authentication failed"]).await;
    mistake(config().user("nobody", "secret"), &[&etcd.address(), "authentication failed"]).await;
    mistake(config(), &[&etcd.address(), "user name is empty"]).await;
}

/// A failed first call is not final, because services and their etcd start in any order.
#[limit::test]
async fn a_process_that_started_before_etcd_works_once_it_is_there() {
    let (_, proxy) = Corner::with_proxy().await;
    proxy.refuse();
    let mut worker = Worker::start([("ETCD_LOCKED_ENDPOINTS", proxy.endpoint())]);
    let failed = worker.asked("lock started/early", "failed").await;
    assert!(failed.starts_with("started/early Backend"), "{failed}");
    proxy.accept_again().unwrap();
    worker.asked("lock started/early", "locked").await;
}
