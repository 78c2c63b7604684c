//! Promises of `etcd-locked kick`, on real etcd.

use std::future::{IntoFuture, pending};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use etcd_locked::{LockError, LossCause};
use etcd_locked_devkit::process::text;
use etcd_locked_devkit::until;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::time::sleep;

use crate::scene::{PATIENCE, Scene, await_written, on_terminal};

/// Names that are kicked at the same time, and how often each.
const NAMES: u64 = 10;
const KICKS: u64 = 2;
/// A body ends by itself after this.
const BODY: Duration = Duration::from_secs(3);

impl Scene {
    /// Waits until `orders/7` is said to be held since another time than this one, which it returns.
    fn await_held_since(&self, before: &Value) -> Value {
        let mut since = Value::Null;
        until("the time", PATIENCE, || {
            let found = self.json(&["who", "orders/7"]);
            let first = found.first().map(|it| it["contenders"][0]["held_since"].clone());
            since = first.unwrap_or_default();
            !since.is_null() && since != *before
        })
        .expect("the time");
        since
    }
}

#[test]
fn kick_takes_a_lock_from_its_holder_and_the_next_one_gets_it() {
    let scene = Scene::new();
    let (shop, bank) = (scene.service("shop"), scene.service("bank"));
    let held = scene.take(shop.lock("orders/7"));
    let body = scene.runtime.spawn(async move { held.hold(pending::<()>()).await });
    let next = scene.runtime.spawn(bank.lock("orders/7").into_future());
    let keys = || scene.etcd.gateway().keys("locks/orders/7/");
    until("the waiter", PATIENCE, || keys().is_ok_and(|keys| keys.len() == 2)).expect("the waiter");

    let asked = scene.run(&["kick", "orders/7"]);
    assert_eq!(asked.status.code(), Some(2), "{}", text(&asked));
    let kicked = scene.run(&["kick", "orders/7", "--yes"]);
    assert!(kicked.status.success(), "{}", text(&kicked));
    assert!(text(&kicked).contains("next is bank"), "{}", text(&kicked));
    let lost = scene.runtime.block_on(body).expect("no panic").expect_err("its lock is gone");
    let LockError::Lost { cause, .. } = lost else {
        panic!("{lost:?}");
    };
    assert_eq!(cause, LossCause::Kicked);
    let served = scene.runtime.block_on(next).expect("no panic");
    scene.release(served.expect("served"));
}

/// How many bodies of a name run, counted by those that run.
struct Inside<'a>(&'a AtomicUsize);

impl<'a> Inside<'a> {
    fn enter(bodies: &'a AtomicUsize) -> Self {
        assert_eq!(bodies.fetch_add(1, Ordering::SeqCst), 0, "two bodies at once");
        Self(bodies)
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Kicks at any moment of a hold, while another process waits: no two bodies run at once, and each kick says what it does.
#[test]
fn kick_ends_the_body_before_the_next_one_begins() {
    let scene = Scene::new();
    let services = [scene.service("shop"), scene.service("bank")];
    let kick = |name: u64| {
        let (bodies, lost) = <(Arc<AtomicUsize>, Arc<AtomicUsize>)>::default();
        for service in services.clone() {
            let (bodies, lost) = (bodies.clone(), lost.clone());
            scene.runtime.spawn(async move {
                loop {
                    let held = service.lock(format!("orders/{name}")).await.expect("its turn");
                    let body = async {
                        let _inside = Inside::enter(&bodies);
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
            });
        }
        let mut taken = 0;
        for round in 0..KICKS {
            // Each comes at another moment of a hold.
            thread::sleep(Duration::from_millis((name * 379 + round * 1_171) % 3_000));
            for kicked in scene.json(&["kick", &format!("orders/{name}"), "--yes"]) {
                assert!(
                    ["ended", "not held"].map(Value::from).contains(&kicked["outcome"]),
                    "{kicked}"
                );
                taken += usize::from(kicked["taken"] == true);
            }
        }
        until("the losses", PATIENCE, || lost.load(Ordering::SeqCst) == taken).expect("as it says");
        taken
    };
    let kick = &kick;
    let taken: usize = thread::scope(|scope| {
        let all: Vec<_> = (0..NAMES).map(|name| scope.spawn(move || kick(name))).collect();
        all.into_iter().map(|it| it.join().expect("no panic")).sum()
    });
    assert!(taken > (NAMES * KICKS) as usize / 2, "few are hit: {taken}");
}

/// A process hands its key on to its next call without a write: the key stays the same, but another call holds the lock.
#[test]
fn kick_spares_a_later_call_of_the_same_process() {
    let scene = Scene::new();
    let service = scene.service("shop");
    let first = scene.take(service.lock("orders/7"));
    let next = scene.runtime.spawn(service.lock("orders/7").into_future());
    scene.await_held_since(&Value::Null);
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

/// The process of a holder that is stopped does not answer: only `--force` takes its lock away.
#[test]
fn kick_says_that_a_stopped_process_does_not_answer() {
    let scene = Scene::new();
    let mut holder = scene.command(&["exec", "orders/7", "--", "sleep", "600"]);
    let mut holder = holder.spawn().expect("it runs");
    scene.await_held_since(&Value::Null);
    let signal = |signal| {
        let pid = Pid::from_child(&holder);
        kill_process(pid, signal).expect("a signal");
    };
    signal(Signal::STOP);
    let asked = scene.run(&["kick", "orders/7", "--yes"]);
    assert_eq!(asked.status.code(), Some(1), "{}", text(&asked));
    assert!(text(&asked).contains("does not answer"), "{}", text(&asked));
    let forced = scene.json(&["kick", "orders/7", "--yes", "--force"]);
    assert_eq!(forced[0]["outcome"], "deleted", "{forced:?}");
    let next = scene.take(scene.service("bank").lock("orders/7"));
    scene.release(next);
    signal(Signal::CONT);
    holder.wait().expect("it ends");
}
