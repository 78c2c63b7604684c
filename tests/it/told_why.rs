//! Reasons: a release that fails in an outage says why.

use std::time::Duration;

use etcd_locked::LockError;

use crate::corner::{Corner, connect, take};
use crate::etcd::{Etcd, on_embedded};
use crate::limit::{run, within};

/// What the release of a lock says whose etcd has gone.
async fn release_after(goes: impl FnOnce(&mut Etcd)) -> String {
    let mut etcd = Etcd::start().await;
    let corner = Corner::of(&etcd).await;
    let config = corner.config().connect_timeout(Duration::from_secs(2));
    let locks = connect(config).await;
    let held = take("a free name", locks.lock("orders/7")).await;
    goes(&mut etcd);
    let error = within("the release's answer", held.release())
        .await
        .expect_err("etcd is gone");
    assert!(matches!(error, LockError::Backend { .. }), "{error:?}");
    assert!(error.is_retryable(), "{error:?}");
    let text = error.to_string();
    println!("{text}");
    let endpoint = match on_embedded() {
        true => "connect_with".to_owned(),
        false => etcd.address(),
    };
    assert!(text.contains(&endpoint), "no endpoint in `{text}`");
    text
}

#[test]
fn release_after_etcd_was_killed_says_why() {
    run(async {
        let text = release_after(Etcd::kill).await;
        assert!(text.contains("refused"), "`{text}`");
    });
}

#[test]
fn release_while_etcd_is_frozen_says_why() {
    run(async {
        let text = release_after(|etcd| etcd.stop()).await;
        assert!(text.contains("no answer"), "`{text}`");
    });
}
