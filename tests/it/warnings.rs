//! Warnings in the log: a fault of etcd or of many locks is one line, and its end another.

use std::time::Duration;

use etcd_locked::{LockError, Locks, LossCause, etcd_locked};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::corner::{Corner, connect, take};
use crate::limit::{self, within};
use crate::logs::{self, logged};

const TOGETHER: usize = 300;
const TTL: Duration = Duration::from_secs(5);

#[etcd_locked("lost-together/<id>", locks = &locks, wait = "forever")]
async fn lost(locks: Locks, id: usize, inside: watch::Sender<usize>) -> Result<(), LockError> {
    inside.send_modify(|inside| *inside += 1);
    std::future::pending().await
}

#[etcd_locked("limited-differently/<id>", locks = locks, wait = "none", permits = 1)]
async fn limited(locks: &Locks, id: u64) -> Result<(), LockError> {
    Ok(())
}

#[limit::test]
async fn locks_lost_in_an_outage_are_one_line() {
    logs::collect();
    // The address of its proxy identifies the lines of its engine.
    let (corner, proxy) = Corner::with_proxy().await;
    let locks = connect(corner.config_via([proxy.endpoint()]).ttl(TTL)).await;
    let begun = watch::Sender::new(0);
    let mut bodies = JoinSet::new();
    for id in 0..TOGETHER {
        bodies.spawn(lost(locks.clone(), id, begun.clone()));
    }
    let mut inside = begun.subscribe();
    let all = inside.wait_for(|inside| *inside == TOGETHER);
    within("every body inside", all).await.expect("the sender");
    proxy.refuse();
    proxy.reset_all();
    for end in within("the bodies' ends", bodies.join_all()).await {
        assert_matches!(end, Err(LockError::Lost { cause: LossCause::Expired, .. }));
    }
    let lost = logged("lost-together/<id>", "lock.lost").await;
    assert_eq!(lost.len(), 1, "{lost:#?}");
    logged(&proxy.endpoint(), "etcd.lost").await;
    for _ in 0..3 {
        let refused = within("a refusal", locks.lock("refused")).await;
        refused.expect_err("etcd is out of reach");
    }
    proxy.accept_again().expect("the same port");
    let back = logged(&proxy.endpoint(), "etcd.back").await;
    assert!(back[0].contains("refused=3"), "{back:?}");
    assert!(back[0].contains("lasted="), "{back:?}");
    let lines = logs::about(&proxy.endpoint());
    let outage = lines.iter().filter(|line| !line.contains("etcd.version"));
    assert_eq!(outage.count(), 2, "{lines:#?}");
}

#[limit::test]
async fn numbers_of_permits_that_differ_are_one_line() {
    logs::collect();
    let (_, [ours, other]) = Corner::with_engines().await;
    let held = other.lock("limited-differently/7").permits(8);
    let _held = take("a permit", held).await;
    for _ in 0..2 {
        let refused = within("one try", limited(&ours, 7)).await;
        assert_matches!(refused, Err(LockError::Held { .. }));
    }
    let lines = logged("limited-differently/<id>", "lock.permits_differ").await;
    assert_eq!(lines.len(), 1, "{lines:?}");
    for part in ["permits=1", "theirs=8", "::limited"] {
        assert!(lines[0].contains(part), "no `{part}` in {}", lines[0]);
    }
}
