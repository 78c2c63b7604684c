//! Credentials and certificates that etcd refuses while locks are held: the loss names them as its cause.

use std::future::pending;
use std::time::Duration;

use etcd_client::Txn;
use etcd_locked::{Acquire, Config, Group, LockError, LockGuard, LockMode, Locks, LossCause, Tls};
use etcd_locked_tests::chain;
use tokio::time::{Instant, sleep, timeout};

use crate::authority::Authority;
use crate::corner::{connect, pass, take};
use crate::etcd::Etcd;
use crate::limit::{self, within};
use crate::logs;
use crate::real_only::real_etcd_only;
use crate::shop::{Shop, USER};

/// Longer than a busy machine takes to restart etcd, because the lease must be refused before it expires.
const TTL: Duration = Duration::from_secs(12);

/// Awaits that the lock is lost because etcd refuses us; returns the error's text.
async fn denied(held: &LockGuard) -> String {
    let body = within("the loss", held.hold(pending::<()>())).await;
    let Err(error @ LockError::Lost { cause, .. }) = body else { panic!("{body:?}") };
    assert_eq!(cause, LossCause::Denied);
    chain(&error)
}

/// Awaits that the name is served again.
async fn served(what: &str, locks: &Locks, name: &str) {
    let served = async {
        while locks.lock(name).wait_forever().await.is_err() {
            sleep(Duration::from_millis(20)).await; // not in a busy loop
        }
    };
    within(what, served).await;
}

#[limit::test]
async fn refused_credentials_are_the_cause_of_a_loss() {
    real_etcd_only!("an embedded etcd has no users");
    logs::collect();
    let mut shop = Shop::start("secret").await;
    let locks = connect(shop.config("secret").ttl(TTL)).await;
    let held = take("a free name", locks.lock("reports/today")).await;
    shop.change_password("another").await;
    let error = denied(&held).await;
    assert!(error.contains("credentials"), "{error}");
    let refused = within("a refusal", locks.lock("reports/tomorrow")).await.unwrap_err();
    assert_matches!(refused, LockError::Backend { .. });
    assert!(!refused.is_retryable(), "{refused}");
    logs::until(&["etcd.renewals_denied", "lock.lost", "etcd.refused"]).await;
}

#[limit::test]
async fn certificate_of_another_authority_costs_the_lock_and_is_named() {
    real_etcd_only!("an embedded etcd has no certificates");
    let (authority, another) = (Authority::new(), Authority::new());
    let mut etcd = Etcd::start_with_tls(&authority).await;
    let tls = Tls::new().ca_pem(authority.pem());
    let config = Config::new([etcd.endpoint()]).tls(tls).ttl(TTL);
    let locks = connect(config).await;
    let held = take("a free name", locks.lock("reports/today")).await;
    authority.issue_server(&another);
    etcd.restart().await;
    let error = denied(&held).await;
    assert!(error.contains("certificate"), "{error}");
    drop(held);
    let refused = within("a refusal", locks.lock("reports/tomorrow")).await.unwrap_err();
    assert!(!refused.is_retryable(), "{refused}");
    assert!(chain(&refused).contains("certificate"), "{refused}");

    authority.issue_server(&authority);
    etcd.restart().await;
    served("the refused name", &locks, "reports/tomorrow").await;
    served("the lost name", &locks, "reports/today").await;
}

/// Acquires and releases a free lock; every other round with a single try.
async fn serve<N: Group, M: LockMode>(round: u64, call: Acquire<N, M>) {
    let call = match round % 2 {
        0 => call,
        _ => call.try_once(),
    };
    let guard = within("a lock", call).await;
    guard.expect("a lock").release().await.expect("released");
}

/// The user may use only the two documented ranges, and the token has expired at each renewal.
#[limit::test]
async fn tokens_that_expire_cost_nothing_in_any_mode() {
    real_etcd_only!("an embedded etcd has no users");
    const ROUNDS: u64 = 4;
    // Tokens expire when no request has used them for two seconds.
    let etcd = Etcd::start_with(&["--auth-token-ttl=2".to_owned()]).await;
    let shop = Shop::of(etcd, "secret").await;
    let locks = connect(shop.config("secret").ttl(Duration::from_secs(10))).await;
    let held = take("a free name", locks.lock("reports/today")).await;
    let body = held.hold(async {
        for round in 0..ROUNDS {
            sleep(Duration::from_millis(3_200)).await;
            serve(round, locks.lock("orders/1")).await;
            serve(round, locks.lock("orders/2").shared()).await;
            serve(round, locks.lock("orders/3").permits(2)).await;
            serve(round, locks.lock("orders/4").and("orders/5")).await;
            let fenced = Txn::new().when([held.fence().into()]);
            let mut client = locks.client().await.unwrap();
            assert!(client.txn(fenced).await.unwrap().succeeded());
        }
    });
    body.await.unwrap();
}

/// Newer versions of etcd check permissions at renewals. In others, nothing is lost.
#[limit::test]
async fn role_revoked_under_a_holder_costs_no_lock_or_says_why() {
    real_etcd_only!("an embedded etcd has no users");
    const TTL: Duration = Duration::from_secs(5);
    let mut shop = Shop::start("secret").await;
    let locks = connect(shop.config("secret").ttl(TTL)).await;
    let held = take("a free name", locks.lock("reports/today")).await;
    shop.root.user_revoke_role(USER, USER).await.unwrap();
    let revoked = Instant::now();
    match timeout(Duration::from_secs(11), held.hold(pending::<()>())).await {
        Err(_) => assert!(held.is_held()),
        Ok(body) => {
            let Err(error @ LockError::Lost { cause, .. }) = body else { panic!("{body:?}") };
            assert_eq!(cause, LossCause::Denied, "{error}");
        }
    }
    let refused = within("a refusal", locks.lock("reports/tomorrow")).await.unwrap_err();
    assert_matches!(refused, LockError::PermissionDenied { .. });
    assert!(!refused.is_retryable(), "{refused}");
    sleep(Duration::from_secs(12).saturating_sub(revoked.elapsed())).await;
    shop.root.user_grant_role(USER, USER).await.unwrap();
    drop(held);
    served("the lock again", &locks, "reports/today").await;
    pass("another lock", locks.lock("reports/tomorrow")).await;
}
