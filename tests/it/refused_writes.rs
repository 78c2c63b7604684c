//! Deletes and barriers that etcd refuses for four seconds: they are tried again, the key goes, and one warning is logged.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use etcd_client::Client;
use etcd_locked::{LockError, LockGuard, Locks};
use etcd_locked_devkit::{Direction, Proxy};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::corner::{Corner, connect, pass, spawn, take};
use crate::etcd::{Etcd, ROOT};
use crate::limit::{self, within, within_time};
use crate::logs;
use crate::no_space::{QUOTA, fill, make_room};
use crate::real_only::real_etcd_only;

const USER: &str = "shop";
const PASSWORD: &str = "secret";
/// No key goes by the end of its lease, within a test.
const TTL: Duration = Duration::from_secs(60);
/// How long etcd refuses.
const LASTS: Duration = Duration::from_secs(4);
/// How long after that the key may be there.
const SOON: Duration = Duration::from_secs(5);

/// Why etcd refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// The engine's password is wrong, and its token void.
    Password,
    /// The engine's user has no role.
    Role,
    /// etcd is at its quota.
    Space,
}

/// An engine behind a proxy, and one that etcd never refuses anything.
struct Scene {
    corner: Corner,
    etcd: Etcd,
    proxy: Proxy,
    root: Client,
    mine: Locks,
    theirs: Locks,
    /// A lock of `mine`, whose body keeps the lease.
    kept: LockGuard,
}

impl Scene {
    /// Returns what is logged about the engine behind the proxy, but for the version of the etcd there, and for silence: the proxy is
    /// frozen, for long on a busy machine.
    fn lines(&self) -> Vec<String> {
        let mut lines = logs::about(&self.proxy.endpoint());
        let others = ["etcd.version", "etcd.lost", "etcd.back"];
        lines.retain(|line| !others.iter().any(|code| line.contains(code)));
        lines
    }

    async fn new() -> Scene {
        logs::collect();
        let etcd = Etcd::start_with_quota(QUOTA).await;
        let mut corner = Corner::of(&etcd).await;
        let ranges = [corner.prefix.clone(), corner.session_prefix()];
        etcd.enable_auth(USER, PASSWORD, &[&ranges[0], &ranges[1]]).await;
        let root = etcd.client_as(Some(ROOT)).await;
        corner.client = root.clone();
        let proxy = Proxy::start(etcd.address()).expect("a proxy");
        let config = corner.config_via([proxy.endpoint()]).ttl(TTL);
        let mine = connect(config.user(USER, PASSWORD)).await;
        let theirs = connect(corner.config().user(ROOT.0, ROOT.1)).await;
        pass("a free name", theirs.lock("first")).await;
        let kept = take("a free name", mine.lock("kept")).await;
        Scene { corner, etcd, proxy, root, mine, theirs, kept }
    }

    /// etcd refuses from now on.
    async fn begin(&mut self, fault: Fault) {
        match fault {
            Fault::Password => {
                let changed = self.root.user_change_password(USER, "another").await;
                changed.expect("another password");
            }
            Fault::Role => {
                let revoked = self.root.user_revoke_role(USER, USER).await;
                revoked.expect("the role revoked");
            }
            Fault::Space => {
                let mut fills = JoinSet::new();
                let next = Arc::new(AtomicU64::new(0));
                fills.spawn(fill(self.root.clone(), next));
                let refused = within("a full etcd", fills.join_next()).await;
                let refused = refused.expect("a task").expect("no panic").to_string();
                assert!(refused.contains("database space exceeded"), "{refused}");
            }
        }
    }

    /// etcd refuses no longer.
    async fn end(&mut self, fault: Fault) {
        match fault {
            Fault::Password => {
                let changed = self.root.user_change_password(USER, PASSWORD).await;
                changed.expect("the password as it was");
            }
            Fault::Role => {
                let granted = self.root.user_grant_role(USER, USER).await;
                granted.expect("the role granted");
            }
            Fault::Space => make_room(&mut self.root).await,
        }
    }

    /// The key is there while etcd refuses, and goes soon after; meanwhile one warning was logged. Returns the etcd too, which
    /// outlives the engines.
    async fn key_goes(mut self, fault: Fault) -> Etcd {
        let lease = self.corner.leases("kept").await;
        sleep(LASTS).await;
        let there = self.corner.contenders("given").await;
        assert_eq!(there.len(), 1, "{fault:?}: the key is gone already");
        self.end(fault).await;
        let gone = self.corner.until_contenders("given", 0);
        within_time(SOON, "the end of the key", gone).await;
        assert!(self.kept.is_held(), "{fault:?}: {:?}", self.kept.lost().await);
        assert_eq!(self.corner.leases("kept").await, lease, "{fault:?}");
        for locks in [&self.theirs, &self.mine] {
            pass("the name", locks.lock("given")).await;
        }
        let lines = self.lines();
        println!("{fault:?}: {lines:#?}");
        assert_eq!(lines.len(), 1, "{fault:?}: {lines:#?}");
        within("a release", self.kept.release()).await.expect("released");
        self.corner.until_empty().await;
        self.etcd
    }
}

/// A release whose delete is refused.
async fn refused_delete(fault: Fault) -> Etcd {
    let mut scene = Scene::new().await;
    let given = take("a free name", scene.mine.lock("given")).await;
    scene.begin(fault).await;
    let refused = within("the release's answer", given.release()).await;
    println!("{fault:?}, release: {refused:?}");
    assert!(
        matches!(refused, Err(LockError::Backend { .. } | LockError::PermissionDenied { .. })),
        "{fault:?}: {refused:?}"
    );
    scene.key_goes(fault).await
}

/// A put without an answer, whose caller is gone, and whose barrier is refused.
async fn refused_barrier(fault: Fault) -> Etcd {
    let mut scene = Scene::new().await;
    scene.proxy.freeze(Direction::Answers);
    let call = spawn(scene.mine.lock("given").wait_forever());
    scene.corner.until_contenders("given", 1).await;
    call.abort();
    let aborted = within("the caller's end", call).await;
    assert!(aborted.is_err_and(|it| it.is_cancelled()));
    scene.begin(fault).await;
    scene.proxy.reset_all();
    scene.proxy.thaw();
    scene.key_goes(fault).await
}

#[limit::test]
async fn delete_is_repeated_after_a_wrong_password() {
    real_etcd_only!("an embedded etcd has no users");
    refused_delete(Fault::Password).await;
}

#[limit::test]
async fn delete_is_repeated_after_a_revoked_role() {
    real_etcd_only!("an embedded etcd has no users");
    let _etcd = refused_delete(Fault::Role).await;
    logs::until(&["etcd.watches_denied", "etcd.releases_denied"]).await;
}

#[limit::test]
async fn barrier_is_repeated_after_a_wrong_password() {
    real_etcd_only!("an embedded etcd has no users");
    refused_barrier(Fault::Password).await;
}

#[limit::test]
async fn barrier_is_repeated_after_a_revoked_role() {
    real_etcd_only!("an embedded etcd has no users");
    refused_barrier(Fault::Role).await;
}

#[limit::test]
async fn barrier_is_repeated_after_a_full_etcd() {
    real_etcd_only!("an embedded etcd has no space quota");
    refused_barrier(Fault::Space).await;
}

#[limit::test]
async fn delete_is_carried_out_by_a_full_etcd() {
    real_etcd_only!("an embedded etcd has no space quota");
    let mut scene = Scene::new().await;
    let given = take("a free name", scene.mine.lock("given")).await;
    scene.begin(Fault::Space).await;
    let released = within("the release's answer", given.release()).await;
    released.expect("a delete needs no space");
    assert_eq!(scene.corner.contenders("given").await, []);
    assert!(scene.kept.is_held());
    assert_eq!(scene.lines(), [""; 0]);
}
