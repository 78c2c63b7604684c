//! Mistakes that an operator has to mend: refused at once, and not said to be retryable.

use std::time::Duration;

use etcd_locked::{Config, LockError, Locks, Tls};
use etcd_locked_devkit::Proxy;

use crate::authority::Authority;
use crate::corner::{Corner, connect, pass};
use crate::etcd::Etcd;
use crate::limit::{run, within};
use crate::real_only::real_etcd_only;
use crate::worker::Worker;

/// A connect time-out that outlasts the test's patience: an error that waits for it comes too late.
const NEVER: Duration = Duration::from_secs(300);

/// Awaits an error that waits for no time-out.
async fn refused_at_once(config: Config) -> LockError {
    let connecting = Locks::connect(config.connect_timeout(NEVER));
    let error = within("a refusal", connecting).await.map(drop);
    let error = error.expect_err("there is nothing to connect to");
    assert!(matches!(error, LockError::Backend { .. }), "{error:?}");
    assert!(!error.is_retryable(), "{error}");
    error
}

#[test]
fn tls_to_a_plain_port_is_refused_at_once() {
    run(async {
        let etcd = Etcd::shared().await;
        let endpoint = etcd.endpoint().replace("http://", "https://");
        let error = refused_at_once(Config::new([endpoint.clone()]))
            .await
            .to_string();
        assert!(
            error.contains(&endpoint) && error.contains("write `http://`"),
            "{error}"
        );
    });
}

#[test]
fn tls_mistakes_are_refused_at_once() {
    real_etcd_only!();
    run(async {
        let authority = Authority::new();
        let etcd = Etcd::start_with_tls(&authority).await;
        let plain = format!("http://{}", etcd.address());
        let error = refused_at_once(Config::new([plain.clone()]))
            .await
            .to_string();
        assert!(
            error.contains(&plain) && error.contains("write `https://`"),
            "{error}"
        );

        let untrusted = refused_at_once(Config::new([etcd.endpoint()]))
            .await
            .to_string();
        assert!(
            untrusted.contains("invalid peer certificate"),
            "{untrusted}"
        );
        let other = Tls::new().ca_pem(Authority::new().pem());
        refused_at_once(Config::new([etcd.endpoint()]).tls(other)).await;
        let another_host = Tls::new().ca_pem(authority.pem()).domain("etcd.example");
        refused_at_once(Config::new([etcd.endpoint()]).tls(another_host)).await;
        // A member that is configured wrongly is passed over like one that is down.
        let sound = Tls::new().ca_pem(authority.pem());
        let by_name = etcd.endpoint().replace("127.0.0.1", "localhost");
        for endpoints in [
            [etcd.endpoint(), by_name.clone()],
            [by_name, etcd.endpoint()],
        ] {
            let locks = connect(Config::new(endpoints).tls(sound.clone())).await;
            pass("a lock", locks.lock("orders/7")).await;
        }
    });
}

#[test]
fn credentials_are_not_retryable() {
    real_etcd_only!();
    run(async {
        let etcd = Etcd::start().await;
        etcd.enable_auth("shop", "secret", &["locks/", "locks%s/"])
            .await;
        let config = || Config::new([etcd.endpoint()]);
        for config in [
            config().user("shop", "wrong"),
            config().user("nobody", "secret"),
            config(),
        ] {
            let error = refused_at_once(config).await.to_string();
            assert!(!error.contains("secret"), "a password in `{error}`");
        }
    });
}

/// The same errors as at a port that speaks TLS come from a proxy whose etcd restarts.
#[test]
fn an_endpoint_without_etcd_gets_no_hint_at_tls() {
    run(async {
        let mut etcd = Etcd::start().await;
        let corner = Corner::of(&etcd).await;
        let proxy = Proxy::start(etcd.address()).unwrap();
        let config = || {
            corner
                .config_via([proxy.endpoint()])
                .connect_timeout(Duration::from_secs(2))
        };
        let served = connect(config()).await;
        pass("a lock", served.lock("orders/7")).await;
        etcd.kill();
        proxy.reset_all();
        let lost = within("a refusal", served.lock("orders/7"))
            .await
            .unwrap_err();
        let never = within("a refusal", Locks::connect(config()))
            .await
            .map(drop)
            .unwrap_err();
        for error in [lost, never] {
            assert!(error.is_retryable(), "{error}");
            assert!(!error.to_string().contains("https"), "{error}");
        }
    });
}

#[test]
fn init_after_shutdown_says_shutting_down() {
    run(async {
        let corner = Corner::new().await;
        let mut worker = Worker::start(corner.environment());
        worker.send("lock orders/7");
        worker.says("locked").await;
        worker.send("shutdown 1000");
        assert_eq!(worker.line().await, "shut down");
        let init = format!("init {}", corner.endpoint);
        for (command, what) in [
            (&*init, "init"),
            ("lock orders/7", "orders/7"),
            ("work till", "till"),
            (&*init, "init"),
        ] {
            worker.send(command);
            let failed = worker.says("failed").await;
            assert!(
                failed.starts_with(&format!("{what} ShuttingDown")),
                "{failed}"
            );
        }
    });
}
