//! Ambiguous outcomes: requests that etcd may have applied, or may apply later. They never give a lock to two holders, and
//! never leave a key behind.

use std::time::Duration;

use etcd_locked::Locks;
use etcd_locked_devkit::{Direction, Proxy};
use tokio::time::sleep;

use crate::corner::{Corner, admitted, connect, pass, served, spawn, take};
use crate::limit::{self, within};

/// Two engines, one of them behind a proxy. Both have locked a name, so their leases and connections exist.
struct Scene {
    corner: Corner,
    proxy: Proxy,
    mine: Locks,
    theirs: Locks,
}

impl Scene {
    async fn new() -> Scene {
        let (corner, proxy) = Corner::with_proxy().await;
        let mine = connect(corner.config_via([proxy.endpoint()])).await;
        let theirs = corner.locks().await;
        for locks in [&mine, &theirs] {
            pass("a free name", locks.lock("orders/1")).await;
        }
        Scene { corner, proxy, mine, theirs }
    }

    /// Awaits that the proxy has passed on everything that waited in it.
    async fn until_drained(&self) {
        within("the delayed requests", async {
            while !self.proxy.is_drained() {
                sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
    }

    /// Asserts that both engines can take the name, and that no key of an earlier request is left afterwards.
    async fn is_clean(&self) {
        for locks in [&self.theirs, &self.mine] {
            let held = take("the name free again", locks.lock("orders/7").wait_forever()).await;
            assert_eq!(self.corner.contenders("orders/7").await.len(), 1);
            held.release().await.expect("a release that is confirmed");
        }
        self.corner.until_empty().await;
    }
}

/// A request that arrives after its sender gave up must not be applied, or must be harmless.
#[limit::test]
async fn an_acquisition_that_arrives_late_makes_no_ghost() {
    for released in [false, true] {
        let scene = Scene::new().await;
        scene.proxy.freeze_existing(Direction::Requests);
        let call = spawn(scene.mine.lock("orders/7").wait_forever());
        // The call is admitted over a new connection, after the engine has given up the frozen one.
        let mut held = Some(admitted("the waiter", call).await);
        if released {
            held.take().unwrap().release().await.unwrap();
        }
        let keys = scene.corner.contenders("orders/7").await;
        scene.proxy.thaw();
        scene.until_drained().await;
        assert_eq!(
            scene.corner.contenders("orders/7").await,
            keys,
            "a delayed request changed the key of a held lock, or put one"
        );
        if let Some(held) = held {
            assert!(held.is_held());
            held.release().await.unwrap();
        }
        scene.is_clean().await;
    }
}

#[limit::test]
async fn a_release_whose_answer_is_lost_is_resolved() {
    let scene = Scene::new().await;
    let held = scene.mine.lock("orders/7").await.unwrap();
    let next = spawn(scene.theirs.lock("orders/7").wait_forever());
    scene.corner.until_contenders("orders/7", 2).await;
    scene.proxy.freeze(Direction::Answers);
    drop(held);
    let next = admitted("the waiter", next).await;
    // This process queues again before it knows the outcome of its own release.
    let again = spawn(scene.mine.lock("orders/7").wait_forever());
    scene.proxy.reset_all();
    scene.proxy.thaw();
    scene.corner.until_contenders("orders/7", 2).await;
    next.release().await.unwrap();
    served("the waiter", again).await;
    scene.is_clean().await;
}
