//! Refused writes: etcd refuses deletes and barriers for four seconds. They are retried, the key goes, and one warning is logged.

use std::time::Duration;

use etcd_client::Client;
use etcd_locked::{LockError, LockGuard, Locks};
use etcd_locked_devkit::{Direction, Proxy};
use tokio::time::sleep;

use crate::corner::{Corner, connect, pass, spawn, take};
use crate::etcd::{Etcd, ROOT};
use crate::limit::{self, run, within, within_time};
use crate::logs::{about, collect};
use crate::no_space::{QUOTA, fill, make_room};
use crate::real_only::real_etcd_only;

const USER: &str = "shop";
const PASSWORD: &str = "secret";
/// So long that no lease expires within a test.
const TTL: Duration = Duration::from_secs(60);
/// How long etcd refuses.
const LASTS: Duration = Duration::from_secs(4);
/// How long after that the key may still exist.
const SOON: Duration = Duration::from_secs(5);

/// Reason why etcd refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// The engine's password is wrong, and its token invalid.
    Password,
    /// The engine's user has no role.
    Role,
    /// etcd is at its quota.
    Space,
}

/// Two engines: one behind a proxy, and one that etcd never refuses.
struct Scene {
    corner: Corner,
    proxy: Proxy,
    root: Client,
    mine: Locks,
    theirs: Locks,
    /// Lock of `mine`, whose body keeps the lease.
    kept: LockGuard,
    /// Server, which outlives the engines.
    _etcd: Etcd,
}

impl Scene {
    async fn new() -> Scene {
        collect();
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
        Scene { corner, proxy, root, mine, theirs, kept, _etcd: etcd }
    }

    /// Returns the lines about the engine behind the proxy. Leaves out those about etcd's version, about silence (the proxy is
    /// frozen, on a busy machine for long), and about renewals, which a new connection sends at once.
    fn lines(&self) -> Vec<String> {
        let mut lines = about(&self.proxy.endpoint());
        let others = ["etcd.version", "etcd.lost", "etcd.back", "etcd.renewals_denied"];
        lines.retain(|line| !others.iter().any(|code| line.contains(code)));
        lines
    }

    /// Makes etcd refuse.
    async fn begin(&mut self, fault: Fault) {
        let begun = match fault {
            Fault::Password => self.root.user_change_password(USER, "another").await.map(drop),
            Fault::Role => self.root.user_revoke_role(USER, USER).await.map(drop),
            Fault::Space => {
                fill(&self.root, 1).await;
                Ok(())
            }
        };
        begun.expect("the fault");
    }

    /// Ends the refusal.
    async fn end(&mut self, fault: Fault) {
        let ended = match fault {
            Fault::Password => self.root.user_change_password(USER, PASSWORD).await.map(drop),
            Fault::Role => self.root.user_grant_role(USER, USER).await.map(drop),
            Fault::Space => {
                make_room(&mut self.root).await;
                Ok(())
            }
        };
        ended.expect("the end of the fault");
    }

    /// Checks that the key exists while etcd refuses, that it goes soon after, and that one warning was logged.
    async fn key_goes(mut self, fault: Fault) {
        let lease = self.corner.leases("kept").await;
        sleep(LASTS).await;
        assert_eq!(self.corner.contenders("given").await.len(), 1, "the key is gone already");
        self.end(fault).await;
        let gone = self.corner.until_contenders("given", 0);
        within_time(SOON, "the end of the key", gone).await;
        assert!(self.kept.is_held(), "{:?}", self.kept.lost().await);
        assert_eq!(self.corner.leases("kept").await, lease);
        for locks in [&self.theirs, &self.mine] {
            pass("the name", locks.lock("given")).await;
        }
        let lines = self.lines();
        assert_eq!(lines.len(), 1, "{lines:#?}");
        within("a release", self.kept.release()).await.expect("released");
        self.corner.until_empty().await;
    }
}

/// Checks a release whose delete is refused.
async fn refused_delete(fault: Fault) {
    let mut scene = Scene::new().await;
    let given = take("a free name", scene.mine.lock("given")).await;
    scene.begin(fault).await;
    let refused = within("the release's answer", given.release()).await;
    assert_matches!(refused, Err(LockError::Backend { .. } | LockError::PermissionDenied { .. }));
    scene.key_goes(fault).await;
}

/// Checks a put without a response, whose caller is gone, and whose barrier is refused.
async fn refused_barrier(fault: Fault) {
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
    scene.key_goes(fault).await;
}

/// Makes a test for each case: they take seconds, and run in parallel.
macro_rules! repeated {
    ($($test:ident: $refused:ident($fault:ident);)*) => {$(
        #[test]
        fn $test() {
            real_etcd_only!("an embedded etcd has neither users nor a quota");
            run($refused(Fault::$fault));
        }
    )*};
}

repeated! {
    delete_is_repeated_after_a_wrong_password: refused_delete(Password);
    delete_is_repeated_after_a_revoked_role: refused_delete(Role);
    barrier_is_repeated_after_a_wrong_password: refused_barrier(Password);
    barrier_is_repeated_after_a_revoked_role: refused_barrier(Role);
    barrier_is_repeated_after_a_full_etcd: refused_barrier(Space);
}

#[limit::test]
async fn delete_is_carried_out_by_a_full_etcd() {
    real_etcd_only!("an embedded etcd has no space quota");
    let mut scene = Scene::new().await;
    let given = take("a free name", scene.mine.lock("given")).await;
    scene.begin(Fault::Space).await;
    within("the release's answer", given.release()).await.expect("a delete needs no space");
    assert_eq!(scene.corner.contenders("given").await, []);
    assert!(scene.kept.is_held());
    assert_eq!(scene.lines(), [""; 0]);
}
