//! Credentials that etcd refuses while locks are held: the loss names them as its cause.

use std::time::Duration;

use etcd_locked::{LockError, LossCause};
use tokio::time::Instant;

use crate::corner::{Corner, connect, take};
use crate::drill::Drill;
use crate::etcd::Etcd;
use crate::limit::{run, within};
use crate::real_only::real_etcd_only;

/// More than a busy machine takes to restart etcd: the lease must be refused before it expires.
const TTL: Duration = Duration::from_secs(12);

#[test]
fn refused_credentials_are_the_cause_of_a_loss() {
    real_etcd_only!();
    run(async {
        let mut drill = Drill::begin(
            "the password is changed and etcd restarted while a lock is held at a TTL of 12 s",
        );
        let mut etcd = Etcd::start().await;
        let corner = Corner::of(&etcd).await;
        let session_prefix = corner.session_prefix();
        etcd.enable_auth("shop", "secret", &[&corner.prefix, &session_prefix])
            .await;
        let config = corner.config().user("shop", "secret").ttl(TTL);
        let locks = connect(config).await;
        let held = take("a free name", locks.lock("reports/today")).await;
        let mut root = etcd.client_as(Some(("root", "root"))).await;
        root.user_change_password("shop", "another").await.unwrap();
        etcd.restart().await; // tokens that were granted before are not valid any more
        let restarted = Instant::now();
        let body = within("the loss", held.hold(std::future::pending::<()>())).await;
        drill.result("a body to its end", &body);
        drill.took(
            "the loss was told, from etcd's restart",
            restarted.elapsed(),
        );
        match body {
            Err(error @ LockError::Lost { cause, .. }) => {
                assert_eq!(cause, LossCause::Denied);
                assert!(error.to_string().contains("credentials"), "{error}");
            }
            other => panic!("{other:?}"),
        }
        let refused = within("a refusal", locks.lock("reports/tomorrow"))
            .await
            .unwrap_err();
        assert!(matches!(refused, LockError::Backend { .. }), "{refused:?}");
        assert!(!refused.is_retryable(), "{refused}");
        drill.error(&refused);
        drill.end();
    });
}
