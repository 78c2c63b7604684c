//! Tests of `etcd-locked kick`: its promises, on real etcd.

use std::future::IntoFuture;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use etcd_locked::{LockError, LossCause};
use etcd_locked_devkit::{Process, until};
use serde_json::Value;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::scene::{PATIENCE, Scene, await_written, on_terminal, says};

/// Names that are kicked at the same time, and the number of kicks of each.
const NAMES: u64 = 10;
const KICKS: u64 = 2;
/// Time after which a body ends by itself.
const BODY: Duration = Duration::from_secs(3);

impl Scene {
    /// Waits until the record of the holder of `orders/7` has the time of its grant.
    fn await_held(&self) {
        let is_held = || {
            let found = self.json(&["who", "orders/7"]);
            found.first().is_some_and(|it| !it["contenders"][0]["held_since"].is_null())
        };
        until("the holder", PATIENCE, is_held).expect("the holder");
    }
}

/// Kicks come at any moment of a hold, while another process waits: no two bodies run at once, and each kick reports its outcome.
#[test]
fn kick_ends_the_body_before_the_next_one_begins() {
    let scene = Scene::new();
    let services = [scene.service("shop"), scene.service("bank")];
    let kick = |name: u64| {
        let (alone, lost) = <(Arc<Mutex<()>>, Arc<AtomicUsize>)>::default();
        let tasks = services.clone().map(|service| {
            let (alone, lost) = (alone.clone(), lost.clone());
            scene.runtime.spawn(async move {
                loop {
                    let held = service.lock(format!("orders/{name}")).await.expect("its turn");
                    let body = async {
                        let _alone = alone.try_lock().expect("no other body runs");
                        sleep(BODY).await;
                    };
                    match held.hold(body).await {
                        Ok(()) => {}
                        Err(LockError::Lost { cause: LossCause::Kicked, .. }) => {
                            lost.fetch_add(1, Ordering::SeqCst);
                        }
                        Err(other) => panic!("{other}"),
                    }
                }
            })
        });
        let mut taken = 0;
        for round in 0..KICKS {
            // Each kick comes at another moment of a hold.
            thread::sleep(Duration::from_millis((name * 379 + round * 1_171) % 3_000));
            for kicked in scene.json(&["kick", &format!("orders/{name}"), "--yes"]) {
                let outcomes = ["ended", "not held"].map(Value::from);
                assert!(outcomes.contains(&kicked["outcome"]), "{kicked}");
                taken += usize::from(kicked["taken"] == true);
            }
        }
        until("the losses", PATIENCE, || lost.load(Ordering::SeqCst) == taken).expect("as it says");
        assert!(!tasks.iter().any(JoinHandle::is_finished), "a service fails");
        taken
    };
    let kick = &kick;
    let taken: usize = thread::scope(|scope| {
        let all: Vec<_> = (0..NAMES).map(|name| scope.spawn(move || kick(name))).collect();
        all.into_iter().map(|it| it.join().expect("no panic")).sum()
    });
    assert!(taken > (NAMES * KICKS) as usize / 2, "few are hit: {taken}");
}

/// A process passes its key to its next call without a write: the key stays the same, but another call holds the lock.
#[test]
fn kick_spares_a_later_call_of_the_same_process() {
    let scene = Scene::new();
    let service = scene.service("shop");
    let first = scene.take(service.lock("orders/7"));
    let next = scene.runtime.spawn(service.lock("orders/7").into_future());
    scene.await_held();
    let mut kick = on_terminal(&scene.command(&["kick", "orders/7"]));
    await_written(&kick, "away?", 1);
    scene.release(first);
    let next = scene.runtime.block_on(next).expect("no panic");
    let next = next.expect("its turn");
    kick.press(b"y\r").expect("it reads keys");
    await_written(&kick, "to another of its calls", 1);
    assert!(next.is_held());
    scene.release(next);
}

/// A stopped holder's process does not respond, so only `--force` takes its lock away.
#[test]
fn kick_says_that_a_stopped_process_does_not_answer() {
    let scene = Scene::new();
    let mut holder = scene.command(&["exec", "orders/7", "--", "sleep", "600"]);
    let mut holder = Process::start("a holder", &mut holder).expect("it runs");
    scene.await_held();
    let next = scene.runtime.spawn(scene.service("bank").lock("orders/7").into_future());
    let keys = || scene.etcd.gateway().keys("locks/orders/7/").expect("keys").len();
    until("the waiter", PATIENCE, || keys() == 2).expect("the waiter");
    holder.stop().expect("it stops");
    scene.ends(&["kick", "orders/7"], 2); // no terminal to ask on
    let asked = scene.ends(&["kick", "orders/7", "--yes"], 1);
    says(&asked, &["next is bank", "does not answer"]);
    let forced = scene.json(&["kick", "orders/7", "--yes", "--force"]);
    assert_eq!(forced[0]["outcome"], "deleted", "{forced:?}");
    let next = scene.runtime.block_on(next).expect("no panic");
    scene.release(next.expect("its turn"));
    holder.cont();
    holder.wait(PATIENCE).expect("it ends");
}
