//! Readers and permits beside etcdctl: each excludes the other, and no later call overtakes etcdctl.

use std::time::Duration;

use etcd_locked::{Acquire, LockMode, Locks, Name};
use tokio::time::sleep;

use crate::corner::{Corner, served, spawn, take};
use crate::foreign::etcdctl_lock;
use crate::limit;

const NAME: &str = "reports/monday";

/// Long enough to catch a call that is admitted wrongly.
const A_WHILE: Duration = Duration::from_millis(400);

/// Lets etcdctl queue between two calls of this mode.
async fn etcdctl_is_alone<M: LockMode>(call: impl Fn(&Locks) -> Acquire<Name, M>) {
    let (corner, [locks, other]) = Corner::with_engines().await;
    let held = take("a free name", call(&locks)).await;
    let mut etcdctl = etcdctl_lock(&corner, NAME, &[]);
    let keys = corner.until_contenders(NAME, 2).await;
    let later = spawn(call(&other).wait_forever());
    corner.until_contenders(NAME, 3).await;
    sleep(A_WHILE).await;
    let said = etcdctl.unread();
    assert!(said.is_empty(), "etcdctl is in beside us: {said:?}");
    assert!(!later.is_finished(), "a later call overtakes etcdctl");
    held.release().await.expect("released");
    assert_eq!(etcdctl.line().await, keys[1].text);
    sleep(A_WHILE).await;
    assert!(!later.is_finished(), "a later call is in beside etcdctl");
    etcdctl.terminate();
    served("the later call's admission", later).await;
    corner.until_empty().await;
}

#[limit::test]
async fn etcdctl_and_readers_exclude_each_other() {
    etcdctl_is_alone(|locks| locks.lock(NAME).shared()).await;
}

#[limit::test]
async fn etcdctl_and_permits_exclude_each_other() {
    etcdctl_is_alone(|locks| locks.lock(NAME).permits(3)).await;
}
