//! Mistakes that an operator has to mend: refused at once, and not said to be retryable.

use std::time::Duration;

use etcd_locked::{Config, LockError, Locks, Tls};
use etcd_locked_devkit::Proxy;

use crate::authority::Authority;
use crate::corner::{Corner, connect, pass};
use crate::etcd::Etcd;
use crate::limit::{self, within};
use crate::real_only::real_etcd_only;
use crate::shop::Shop;
use crate::worker::Worker;

/// A connect time-out that outlasts the test's patience: an error that waits for it comes too late.
const NEVER: Duration = Duration::from_secs(300);

/// Awaits an error that waits for no time-out.
async fn refused_at_once(config: Config) -> LockError {
    let connecting = Locks::connect(config.connect_timeout(NEVER));
    let error = within("a refusal", connecting).await.map(drop);
    let error = error.expect_err("there is nothing to connect to");
    assert_matches!(error, LockError::Backend { .. });
    assert!(!error.is_retryable(), "{error}");
    error
}

#[limit::test]
async fn tls_to_a_plain_port_is_refused_at_once() {
    let etcd = Etcd::shared().await;
    let endpoint = etcd.endpoint().replace("http://", "https://");
    let config = Config::new([endpoint.clone()]);
    let error = refused_at_once(config).await.to_string();
    assert!(error.contains(&endpoint) && error.contains("write `http://`"), "{error}");
}

#[limit::test]
async fn tls_mistakes_are_refused_at_once() {
    real_etcd_only!("an embedded etcd has no certificates");
    let authority = Authority::new();
    let etcd = Etcd::start_with_tls(&authority).await;
    let plain = format!("http://{}", etcd.address());
    let config = Config::new([plain.clone()]);
    let error = refused_at_once(config).await.to_string();
    assert!(error.contains(&plain) && error.contains("write `https://`"), "{error}");

    let config = || Config::new([etcd.endpoint()]);
    let untrusted = refused_at_once(config()).await.to_string();
    for part in ["invalid peer certificate", &etcd.address()] {
        assert!(untrusted.contains(part), "no `{part}` in `{untrusted}`");
    }
    let other = Tls::new().ca_pem(Authority::new().pem());
    refused_at_once(config().tls(other)).await;
    let another_host = Tls::new().ca_pem(authority.pem()).domain("etcd.example");
    refused_at_once(config().tls(another_host)).await;
    // A member that is configured wrongly is passed over like one that is down.
    let sound = Tls::new().ca_pem(authority.pem());
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
    for config in [config().user("shop", "wrong"), config().user("nobody", "secret"), config()] {
        let error = refused_at_once(config).await.to_string();
        assert!(!error.contains("secret"), "a password in `{error}`");
        assert!(error.contains(&etcd.address()), "`{error}`");
        let words = ["auth", "user", "password", "permission"];
        let named = words.iter().any(|word| error.to_lowercase().contains(word));
        assert!(named, "none of {words:?} in `{error}`");
    }
}

/// The same errors as at a port that speaks TLS come from a proxy whose etcd restarts.
#[limit::test]
async fn an_endpoint_without_etcd_gets_no_hint_at_tls() {
    let mut etcd = Etcd::start().await;
    let corner = Corner::of(&etcd).await;
    let proxy = Proxy::start(etcd.address()).unwrap();
    let config = || corner.config_via([proxy.endpoint()]).connect_timeout(Duration::from_secs(4));
    let served = connect(config()).await;
    pass("a lock", served.lock("orders/7")).await;
    etcd.kill();
    proxy.reset_all();
    let lost = within("a refusal", served.lock("orders/7")).await.unwrap_err();
    let never = within("a refusal", Locks::connect(config())).await.map(drop).unwrap_err();
    for error in [lost, never] {
        assert!(error.is_retryable(), "{error}");
        assert!(!error.to_string().contains("https"), "{error}");
    }
}

#[limit::test]
async fn init_after_shutdown_says_shutting_down() {
    let corner = Corner::new().await;
    let environment = corner.environment().into_iter();
    let mut worker = Worker::start(environment);
    worker.asked("lock orders/7", "locked").await;
    worker.send("shutdown 1000");
    assert_eq!(worker.line().await, "shut down");
    corner.until_empty().await;
    assert_eq!(corner.sessions().await, []);
    let init = format!("init {}", corner.endpoint);
    for (command, what) in
        [(&*init, "init"), ("lock orders/7", "orders/7"), ("work till", "till"), (&*init, "init")]
    {
        let failed = worker.asked(command, "failed").await;
        assert!(failed.starts_with(&format!("{what} ShuttingDown")), "{failed}");
    }
}
