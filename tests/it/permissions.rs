//! Permissions: with authentication enabled, a lock needs one for its prefix and one for the session keys.

use etcd_locked::{LockError, Locks, etcd_locked};
use etcd_locked_tests::chain;

use crate::corner::connect;
use crate::etcd::Etcd;
use crate::limit::{self, within};
use crate::real_only::real_etcd_only;
use crate::shop::Shop;
use crate::worker::Worker;

#[etcd_locked("<family>/<id>", locks = locks, wait = "5s")]
async fn call(locks: &Locks, family: &str, id: u64) -> Result<(), LockError> {
    Ok(())
}

fn config(etcd: &Etcd) -> etcd_locked::Config {
    etcd_locked::Config::new([etcd.endpoint()]).prefix("shop/").user("shop", "secret")
}

#[limit::test]
async fn a_forbidden_name_is_denied_and_fails_alone() {
    real_etcd_only!("an embedded etcd has no users");
    let etcd = Etcd::start().await;
    // `shop` may lock only `shop/orders/…`.
    etcd.enable_auth("shop", "secret", &["shop/orders/", "shop%s/"]).await;
    let locks = connect(config(&etcd)).await;
    // Both at the same time, so that the engine would batch them in one transaction.
    let forbidden = async {
        let mut errors = Vec::new();
        for id in 0..10 {
            errors.push(call(&locks, "reports", id).await.unwrap_err());
        }
        errors
    };
    let allowed = async {
        for id in 0..30 {
            call(&locks, "orders", id).await.expect("a permitted name next to a forbidden one");
        }
    };
    let (errors, ()) = within("all calls", async { tokio::join!(forbidden, allowed) }).await;
    for error in errors {
        assert_matches!(error, LockError::PermissionDenied { .. });
        assert!(!error.is_retryable());
        let text = chain(&error);
        assert!(text.contains("<family>/<id>"), "`{text}` does not name the lock");
        assert!(!text.contains("reports"), "a value in `{text}`");
    }
}

#[limit::test]
async fn a_missing_session_key_permission_is_named() {
    real_etcd_only!("an embedded etcd has no users");
    let etcd = Etcd::start().await;
    etcd.enable_auth("shop", "secret", &["shop/"]).await;
    let error = match within("connecting", Locks::connect(config(&etcd))).await {
        Ok(locks) => within("a call", call(&locks, "orders", 7)).await.unwrap_err(),
        Err(error) => error,
    };
    assert_matches!(error, LockError::PermissionDenied { .. });
    assert!(chain(&error).contains("session key"), "{error}");
}

#[limit::test]
async fn a_role_that_is_taken_away_is_one_warning_about_watches() {
    const NAMES: usize = 5;
    real_etcd_only!("an embedded etcd has no users");
    let Shop { etcd, mut root } = Shop::start("secret").await;
    let mut worker = Worker::start([
        ("ETCD_LOCKED_ENDPOINTS", &*etcd.endpoint()),
        ("ETCD_LOCKED_USER", "shop:secret"),
        ("WORKER_LOGS", "debug"),
    ]);
    for name in 0..NAMES {
        worker.asked(&format!("work {name}"), "held").await;
    }
    root.user_revoke_role("shop", "shop").await.expect("the role is revoked");
    let (mut refused, mut warned) = (0, 0);
    while refused < 3 * NAMES {
        let line = worker.says("logged").await;
        refused += usize::from(line.contains("refuses a watch"));
        warned += usize::from(line.contains("refuses watches"));
    }
    assert_eq!(warned, 1);
}
