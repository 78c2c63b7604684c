//! Keys below a lock that have no lease: the error names such a key and says that it will never expire.

use std::time::Duration;

use etcd_locked::LockError;

use crate::corner::Corner;
use crate::limit::{self, within};

fn names_the_key(error: &LockError, key: &str) {
    let (text, debug) = (error.to_string(), format!("{error:?}"));
    assert!(debug.contains(key), "no `{key}` in {debug}");
    assert!(text.contains("never expire"), "`{text}`");
    // The name's values may be personal data.
    assert!(!text.contains("4711"), "`{text}`");
}

#[limit::test]
async fn a_key_without_a_lease_is_named() {
    let (corner, [locks]) = Corner::with_engines().await;
    let key = format!("{}operator", corner.below("orders/4711"));
    let mut client = corner.client.clone();
    client.put(&*key, "", None).await.expect("etcd takes a put");
    let tried = within("a try", locks.lock("orders/4711").try_once()).await;
    let error = tried.expect_err("the name is taken");
    assert_matches!(error, LockError::Held { .. });
    names_the_key(&error, &key);
    let call = locks.lock("orders/4711").wait(Duration::from_secs(3));
    let error = within("a wait", call).await.expect_err("the name is taken");
    assert_matches!(error, LockError::Timeout { .. });
    names_the_key(&error, &key);
}

/// An operator's put without a lease outlives the process whose key it was.
#[limit::test]
async fn a_key_that_was_detached_from_its_lease_is_named() {
    let (corner, [mine, theirs]) = Corner::with_engines().await;
    let held = theirs.lock("orders/4711").await.expect("a free name");
    let key = corner.owner("orders/4711").await;
    let mut client = corner.client.clone();
    let put = client.put(&*key.text, &*key.value, None).await;
    put.expect("etcd takes a put");
    let tried = within("a try", mine.lock("orders/4711").try_once()).await;
    let error = tried.expect_err("the name is taken");
    names_the_key(&error, &key.text);
    drop(held);
}
