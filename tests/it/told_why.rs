//! Reasons: a lock that is lost, or whose release fails in an outage, says why.

use std::future::{Future, pending};
use std::time::Duration;

use etcd_locked::{LockError, LossCause};
use tokio::task::JoinSet;

use crate::corner::{Corner, connect, take};
use crate::etcd::{Etcd, on_embedded};
use crate::limit::{self, within};
use crate::logs;

/// Engines that lose a lock at the same time.
const ENGINES: usize = 20;

/// The cause that each of so many holders is given, the body's and the release's, after an operator has done this to its key.
async fn causes_after<F: Future<Output = ()>>(act: impl Fn(Corner) -> F) -> Vec<LossCause> {
    logs::collect();
    let mut bodies = JoinSet::new();
    let mut corners = Vec::new();
    for _ in 0..ENGINES {
        let corner = Corner::new().await;
        let held = take("a free name", corner.locks().await.lock("orders/7")).await;
        corners.push(corner);
        bodies.spawn(async move {
            let ended = held.hold(pending::<()>()).await;
            let Err(LockError::Lost { cause, .. }) = ended else { panic!("{ended:?}") };
            let released = held.release().await;
            let same = matches!(released, Err(LockError::Lost { cause: of, .. }) if of == cause);
            assert!(same, "{cause:?}, then {released:?}");
            cause
        });
    }
    for corner in corners {
        act(corner).await;
    }
    let causes = within("all losses", bodies.join_all()).await;
    logs::until(&["lock.lost"]).await;
    causes
}

#[limit::test]
async fn revoked_lease_is_always_the_cause() {
    let revoke = async |corner: Corner| {
        corner.revoke("orders/7").await;
    };
    let causes = causes_after(revoke).await;
    assert_eq!(causes, [LossCause::Revoked; ENGINES]);
}

#[limit::test]
async fn key_that_an_operator_deletes_is_always_the_cause() {
    let delete = async |corner: Corner| {
        corner.take_away("orders/7").await;
    };
    let causes = causes_after(delete).await;
    assert_eq!(causes, [LossCause::Deleted; ENGINES]);
}

/// What the release of a lock says whose etcd has gone.
async fn release_after(goes: impl FnOnce(&mut Etcd)) -> String {
    let mut etcd = Etcd::start().await;
    let corner = Corner::of(&etcd).await;
    let config = corner.config().connect_timeout(Duration::from_secs(2));
    let locks = connect(config).await;
    let held = take("a free name", locks.lock("orders/7")).await;
    goes(&mut etcd);
    let error = within("the release's answer", held.release()).await.expect_err("etcd is gone");
    assert_matches!(error, LockError::Backend { .. });
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

#[limit::test]
async fn release_after_etcd_was_killed_says_why() {
    let text = release_after(Etcd::kill).await;
    assert!(text.contains("refused"), "`{text}`");
}

#[limit::test]
async fn release_while_etcd_is_frozen_says_why() {
    let text = release_after(|etcd| etcd.stop()).await;
    assert!(text.contains("no answer"), "`{text}`");
}
