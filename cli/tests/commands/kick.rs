//! Promises of `etcd-locked kick`, on real etcd.

use std::future::IntoFuture;
use std::time::{Duration, Instant};

use etcd_locked::etcd_client::Txn;
use etcd_locked::{LockError, LossCause};
use etcd_locked_devkit::process::text;
use etcd_locked_devkit::until;
use serde_json::Value;

use crate::scene::{PATIENCE, Scene, await_written, on_terminal};

const KICKS: usize = 20;

impl Scene {
    /// Waits until `orders/7` is said to be held since another time than this one, which it returns.
    fn await_held_since(&self, before: &Value) -> Value {
        let mut since = Value::Null;
        until("the time", PATIENCE, || {
            let found = self.json(&["who", "orders/7"]);
            since = found[0]["contenders"][0]["held_since"].clone();
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
    let body = scene.runtime.spawn(async move { held.hold(std::future::pending::<()>()).await });
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
    assert_eq!(cause, LossCause::Gone);
    let served = scene.runtime.block_on(next).expect("no panic");
    scene.release(served.expect("served"));
}

/// A holder that has gone, and the one after it, are hit by no kick that was meant for another.
#[test]
fn kick_never_hits_a_later_holder() {
    let scene = Scene::new();
    let service = scene.service("shop");
    let client = scene.runtime.block_on(service.client());
    let mut client = client.expect("etcd is there");
    let churn = scene.runtime.spawn(async move {
        let mut lost = Vec::new();
        while lost.len() < KICKS {
            let held = service.lock("orders/7").await.expect("free");
            let created = held.token().as_i64() >> 16;
            // As long as a kick takes, more or less.
            let time = Duration::from_millis(created.unsigned_abs() * 7 % 100);
            tokio::time::sleep(time).await;
            let is_there = Txn::new().when([held.fence()]);
            let is_there = client.txn(is_there).await.expect("an answer");
            if !is_there.succeeded() {
                lost.push(created);
            }
            // It may be lost.
            let _ = held.release().await;
        }
        lost
    });
    let mut taken = Vec::new();
    let begun = Instant::now();
    while !churn.is_finished() {
        assert!(begun.elapsed() < 3 * PATIENCE, "few are hit: {taken:?}");
        let kicked = scene.json(&["kick", "orders/7", "--yes"]);
        let hit = kicked.iter().filter(|it| it["taken"] == true);
        taken.extend(hit.filter_map(|it| it["holder"]["create_revision"].as_i64()));
    }
    let lost = scene.runtime.block_on(churn).expect("no panic");
    let strays: Vec<_> = lost.iter().filter(|created| !taken.contains(created)).collect();
    assert!(strays.is_empty(), "{strays:?} were lost, and {taken:?} were meant");
}

/// A process hands its key on to its next call without a write: the key stays the same, but another call holds the lock.
#[test]
fn kick_spares_a_later_call_of_the_same_process() {
    let scene = Scene::new();
    let service = scene.service("shop");
    let first = scene.take(service.lock("orders/7"));
    let next = scene.runtime.spawn(service.lock("orders/7").into_future());
    let since = scene.await_held_since(&Value::Null);
    let mut kick = on_terminal(&scene.command(&["kick", "orders/7"]));
    await_written(&kick, "away?", 1);
    scene.release(first);
    let next = scene.runtime.block_on(next).expect("no panic");
    let next = next.expect("its turn");
    scene.await_held_since(&since);
    kick.press(b"y\r").expect("it reads keys");
    await_written(&kick, "to another of its calls", 1);
    assert!(next.is_held());
    scene.release(next);
}
