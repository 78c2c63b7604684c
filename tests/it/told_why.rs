//! Reasons: a lock that is lost, or whose release fails in an outage, says why.

use std::future::{Future, pending};
use std::time::Duration;

use etcd_locked::{LockError, LossCause};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::corner::{Corner, connect, take};
use crate::drill::Drill;
use crate::etcd::{Etcd, on_embedded};
use crate::limit::{self, within};

/// Engines that lose a lock at the same time.
const ENGINES: usize = 20;

/// The cause that each of so many holders is given, the body's and the release's, after an operator has done this to its key.
async fn causes_after<F: Future<Output = ()>>(
    what: &str,
    row: &str,
    act: impl Fn(Corner) -> F,
) -> Vec<LossCause> {
    let mut drill = Drill::begin(format!("an operator {what}, of {ENGINES} holders"));
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
    let done = Instant::now();
    let causes = within("all losses", bodies.join_all()).await;
    for cause in &causes {
        drill.got(format!("Lost {{ {cause:?} }}, of the body and of the release"));
    }
    drill.took("the last body had ended, since the last of them", done.elapsed());
    drill.shows(row).await;
    drill.end();
    causes
}

#[limit::test]
async fn revoked_lease_is_always_the_cause() {
    let revoke = async |corner: Corner| {
        corner.revoke("orders/7").await;
    };
    let causes = causes_after("revokes the lease", "an operator revokes a lease", revoke).await;
    assert_eq!(causes, [LossCause::Revoked; ENGINES]);
}

#[limit::test]
async fn key_that_an_operator_deletes_is_always_the_cause() {
    let delete = async |corner: Corner| {
        corner.take_away("orders/7").await;
    };
    let row = "an operator takes a lock away (`etcd-locked kick`, a deleted key)";
    let causes = causes_after("deletes the key", row, delete).await;
    assert_eq!(causes, [LossCause::Deleted; ENGINES]);
}

/// What the release of a lock says whose etcd has gone.
async fn release_after(what: &str, goes: impl FnOnce(&mut Etcd)) -> String {
    let mut drill = Drill::begin(format!("a lock is released after etcd was {what}"));
    let mut etcd = Etcd::start().await;
    let corner = Corner::of(&etcd).await;
    let config = corner.config().connect_timeout(Duration::from_secs(2));
    let locks = connect(config).await;
    let held = take("a free name", locks.lock("orders/7")).await;
    goes(&mut etcd);
    let began = Instant::now();
    let error = within("the release's answer", held.release()).await.expect_err("etcd is gone");
    assert_matches!(error, LockError::Backend { .. });
    assert!(error.is_retryable(), "{error:?}");
    drill.error(&error);
    drill.took("the release was answered, from its begin", began.elapsed());
    drill.end();
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
    let text = release_after("killed", Etcd::kill).await;
    assert!(text.contains("refused"), "`{text}`");
}

#[limit::test]
async fn release_while_etcd_is_frozen_says_why() {
    let text = release_after("frozen", |etcd| etcd.stop()).await;
    assert!(text.contains("no answer"), "`{text}`");
}
