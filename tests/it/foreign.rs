//! Locks of other clients: `etcdctl lock`, which is Go's `concurrency.Mutex`, and clients that put keys below a name.

use std::process::Command;
use std::time::Duration;

use etcd_client::PutOptions;
use etcd_locked::{Acquire, LockError, LockMode, Locks, Name};
use tokio::time::sleep;

use crate::corner::{Corner, pass, served, spawn, take};
use crate::etcd::etcdctl;
use crate::limit;
use crate::worker::Worker;

/// Long enough to catch a call that is admitted wrongly.
const A_WHILE: Duration = Duration::from_millis(400);

/// Starts `etcdctl lock` on this name. It prints its key once it has the lock and releases on SIGTERM, or it runs a command.
fn etcdctl_lock(corner: &Corner, name: &str, command: &[&str]) -> Worker {
    let mut etcdctl = Command::new(etcdctl());
    etcdctl
        // etcdctl complains about every `ETCD…` variable that is not its own.
        .env_clear()
        .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
        .args(["--endpoints", &corner.endpoint, "lock", &format!("{}{name}", corner.prefix)])
        .args(command);
    Worker::of(etcdctl)
}

/// Makes etcdctl queue between two calls of this mode.
async fn etcdctl_is_alone<M: LockMode>(call: impl Fn(&Locks) -> Acquire<Name, M>) {
    let (corner, [mine, theirs]) = Corner::with_engines().await;
    let held = take("a free name", call(&mine)).await;
    let mut etcdctl = etcdctl_lock(&corner, "orders/42", &[]);
    let keys = corner.until_contenders("orders/42", 2).await;
    let after = spawn(call(&theirs).wait_forever());
    corner.until_contenders("orders/42", 3).await;
    // The holder works, long enough to catch an etcdctl that does not wait.
    sleep(A_WHILE).await;
    assert_eq!(etcdctl.unread(), Vec::<String>::new(), "etcdctl has the lock while we hold it");
    assert!(!after.is_finished(), "a later call overtook etcdctl");
    held.release().await.expect("released");
    assert_eq!(etcdctl.line().await, keys[1].text);
    // etcdctl does not write a record, so the error cannot name the holder.
    let refused = call(&mine).try_once().await;
    assert_matches!(refused, Err(LockError::Held { holder: None, .. }));
    // Our waiter is admitted only after etcdctl has finished.
    sleep(A_WHILE).await;
    assert!(!after.is_finished(), "we overtook etcdctl");
    etcdctl.terminate();
    served("our admission", after).await;
    corner.until_empty().await;
}

#[limit::test]
async fn etcdctl_and_we_share_one_queue() {
    etcdctl_is_alone(|locks| locks.lock("orders/42")).await;
}

#[limit::test]
async fn etcdctl_and_readers_exclude_each_other() {
    etcdctl_is_alone(|locks| locks.lock("orders/42").shared()).await;
}

#[limit::test]
async fn etcdctl_and_permits_exclude_each_other() {
    etcdctl_is_alone(|locks| locks.lock("orders/42").permits(3)).await;
}

#[limit::test]
async fn tokens_increase_across_languages() {
    let (corner, [locks]) = Corner::with_engines().await;
    let before = take("a free name", locks.lock("orders/42")).await;
    let mut etcdctl = etcdctl_lock(&corner, "orders/42", &["env"]);
    corner.until_contenders("orders/42", 2).await;
    let token = before.token().revision();
    before.release().await.unwrap();
    let theirs = loop {
        let line = etcdctl.line().await;
        if let Some(revision) = line.strip_prefix("ETCD_LOCK_REV=") {
            break revision.parse::<i64>().unwrap();
        }
    };
    assert!(theirs > token, "etcdctl's {theirs} after our {token}");
    corner.until_empty().await;
    let after = take("the lock again", locks.lock("orders/42")).await.token().revision();
    assert!(after > theirs, "our {after} after etcdctl's {theirs}");
}

#[limit::test]
async fn deeper_keys_do_not_block() {
    let (corner, [locks]) = Corner::with_engines().await;
    let mut client = corner.client.clone();
    // Several keys, all older than any of ours.
    for deeper in ["lines/1", "lines/2", "a/b/c"] {
        client.put(format!("{}{deeper}", corner.below("orders/42")), "", None).await.unwrap();
    }
    pass("a try, which is not blocked", locks.lock("orders/42").try_once()).await;
    let held = take("a lock above them", locks.lock("orders/42")).await;
    // A key directly below the name still blocks.
    let refused = corner.locks().await.lock("orders/42").try_once().await;
    assert_matches!(&refused, Err(LockError::Held { holder, .. }) if holder.is_some());
    held.release().await.unwrap();
}

#[limit::test]
async fn a_younger_foreign_key_does_not_disturb_the_holder() {
    let corner = Corner::new().await;
    let held = corner.locks().await.lock("orders/42").await.unwrap();
    let mut client = corner.client.clone();
    let lease = client.lease_grant(60, None).await.unwrap().id();
    let key = format!("{}{lease:x}", corner.below("orders/42"));
    client.put(key.clone(), "", Some(PutOptions::new().with_lease(lease))).await.unwrap();
    // The holder works, long enough for its engine to watch its key and write its record.
    held.hold(sleep(Duration::from_secs(2))).await.unwrap();
    assert!(held.is_held());
    held.release().await.unwrap();
    let left = corner.contenders("orders/42").await;
    assert_eq!(
        left.iter().map(|it| &it.text).collect::<Vec<_>>(),
        [&key],
        "a release took a foreign key along"
    );
}
