//! Promises of the command line, on real etcd.

use std::future::IntoFuture;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};

use etcd_locked::etcd_client::Txn;
use etcd_locked::{Acquire, Group, LockError, LockGuard, LockMode, Locks, LossCause};
use etcd_locked_devkit::process::text;
use etcd_locked_devkit::until;
use serde_json::Value;
use tokio::task::JoinHandle;

use crate::scene::{NOWHERE, PATIENCE, Scene, await_written, on_terminal, run};

/// Number of kicks that are to hit somebody.
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

    /// Has a call wait for its lock.
    fn queue(&self, call: Acquire) -> JoinHandle<Result<LockGuard, LockError>> {
        self.runtime.spawn(call.into_future())
    }

    /// Awaits the lock of a call that waits, and releases it.
    fn serve<N: Group, M: LockMode>(&self, call: JoinHandle<Result<LockGuard<N, M>, LockError>>) {
        let served = self.runtime.block_on(call).expect("no panic");
        self.release(served.expect("served"));
    }

    /// Waits until a name has so many contenders.
    fn await_contenders(&self, name: &str, many: usize) {
        let below = format!("locks/{name}/");
        until("the contenders", PATIENCE, || {
            let keys = self.etcd.gateway().keys(&below);
            keys.is_ok_and(|keys| keys.len() == many)
        })
        .expect("the contenders");
    }
}

#[test]
fn ls_shows_who_holds_each_name_and_how_many_wait() {
    let scene = Scene::new();
    let (shop, bank) = (scene.service("shop"), scene.service("bank"));
    let held = scene.take(shop.lock("orders/7"));
    let _other = scene.take(bank.lock("accounts/3").shared());
    let waiting = scene.queue(bank.lock("orders/7"));
    scene.await_contenders("orders/7", 2);

    let names = scene.json(&["ls"]);
    assert_eq!(names[0]["name"], "accounts/3");
    assert_eq!(names[0]["holders"][0]["mode"], "shared");
    assert_eq!(names[1]["name"], "orders/7");
    assert_eq!(names[1]["holders"][0]["service"], "shop");
    assert_eq!(names[1]["waiting"], 1);
    assert_eq!(scene.json(&["ls", "orders/"]).len(), 1);

    let plain = scene.run(&["ls", "orders/"]);
    assert!(plain.status.success());
    let line = text(&plain);
    let fields: Vec<&str> = line.trim_end().split('\t').collect();
    assert_eq!((fields.len(), fields[0], fields[1], fields[4]), (6, "orders/7", "exclusive", "1"));

    scene.release(held);
    scene.serve(waiting);
}

/// etcd does not say how many permits there are, so a permit behind others may hold the name or wait.
#[test]
fn ls_counts_permits_apart_that_may_wait() {
    let scene = Scene::new();
    let services = ["one", "two", "three"].map(|name| scene.service(name));
    let call = |service: &Locks| service.lock("imports").permits(2);
    let held = [&services[0], &services[1]].map(|service| scene.take(call(service)));
    let waiting = scene.runtime.spawn(call(&services[2]).into_future());
    scene.await_contenders("imports", 3);
    // A holder writes that it holds its lock after a second.
    until("both holders", PATIENCE, || {
        text(&scene.run(&["ls"])).contains(" and 1 more, 1 may hold it\t")
    })
    .expect("both holders");
    for held in held {
        scene.release(held);
    }
    scene.serve(waiting);
}

#[test]
fn table_breaks_no_cell_that_fits() {
    let scene = Scene::new();
    let service = scene.service("shop");
    let held = scene.take(service.lock("orders/7"));
    let found = scene.json(&["who", "orders/7"]).remove(0);
    let lease = found["contenders"][0]["lease"].as_str().expect("a lease");

    let mut terminal = on_terminal(&scene.command(&["who", "orders/7"]));
    terminal.wait(PATIENCE).expect("it ends");
    let lines = terminal.lines();
    assert_eq!(lines.len(), 2, "{lines:#?}");
    assert!(lines[1].contains(lease), "{lines:#?}");
    scene.release(held);
}

#[test]
fn watch_ends_each_round_of_objects_with_an_empty_line() {
    let scene = Scene::new();
    scene.put("locks/orders/7/1f");
    let mut watch = scene
        .command(&["ls", "--watch=100ms", "--json"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the command line runs");
    let lines = BufReader::new(watch.stdout.take().expect("a pipe")).lines();
    let lines: Vec<String> = lines.take(4).map(|line| line.expect("text")).collect();
    watch.kill().expect("it ends");
    watch.wait().expect("its end");
    let is_empty: Vec<bool> = lines.iter().map(String::is_empty).collect();
    assert_eq!(is_empty, [false, true, false, true], "{lines:#?}");
}

#[test]
fn who_shows_all_contenders_in_their_order() {
    let scene = Scene::new();
    let services = ["one", "two", "three"].map(|name| scene.service(name));
    let held = scene.take(services[0].lock("orders/7").and("accounts/3"));
    let mut waiting = Vec::new();
    for (many, service) in services.iter().enumerate().skip(1) {
        waiting.push(scene.queue(service.lock("orders/7")));
        scene.await_contenders("orders/7", many + 1);
    }
    let found = scene.json(&["who", "orders/7"]).remove(0);
    let all = found["contenders"].as_array().expect("a list");
    let who: Vec<_> =
        all.iter().map(|it| (it["standing"].as_str(), it["service"].as_str())).collect();
    let expected = [("holds", "one"), ("waits", "two"), ("waits", "three")];
    assert_eq!(who, expected.map(|(standing, service)| (Some(standing), Some(service))));
    let group = all[0]["group"].as_array().expect("a list");
    assert!(group[0].as_str().is_some_and(|key| key.starts_with("locks/accounts/3/")));
    scene.release(held);
    for call in waiting {
        scene.serve(call);
    }
    let free = scene.run(&["who", "orders/7"]);
    assert_eq!(free.status.code(), Some(1), "{}", text(&free));
}

#[test]
fn kick_takes_a_lock_from_its_holder_and_the_next_one_gets_it() {
    let scene = Scene::new();
    let (shop, bank) = (scene.service("shop"), scene.service("bank"));
    let held = scene.take(shop.lock("orders/7"));
    let body = scene.runtime.spawn(async move { held.hold(std::future::pending::<()>()).await });
    let next = scene.queue(bank.lock("orders/7"));
    scene.await_contenders("orders/7", 2);

    let asked = scene.run(&["kick", "orders/7"]);
    assert_eq!(asked.status.code(), Some(2), "{}", text(&asked));
    let kicked = scene.run(&["kick", "orders/7", "--yes"]);
    assert!(kicked.status.success(), "{}", text(&kicked));
    assert!(text(&kicked).contains("next is bank"), "{}", text(&kicked));
    let lost = scene.runtime.block_on(body).expect("no panic").expect_err("its lock is gone");
    let LockError::Lost { cause, .. } = lost else {
        panic!("{lost:?}");
    };
    assert_eq!(cause, LossCause::Deleted);
    scene.serve(next);
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

/// A process hands its key on to its next call without a write: the key is the same, and yet another call has the lock.
#[test]
fn kick_spares_a_later_call_of_the_same_process() {
    let scene = Scene::new();
    let service = scene.service("shop");
    let first = scene.take(service.lock("orders/7"));
    let next = scene.queue(service.lock("orders/7"));
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

#[test]
fn kick_takes_no_permit_that_may_be_waited_for() {
    let scene = Scene::new();
    let (shop, bank) = (scene.service("shop"), scene.service("bank"));
    let permit = |service: &Locks| service.lock("smtp").permits(1).wait_forever();
    let held = scene.take(permit(&shop));
    let waiting = scene.runtime.spawn(permit(&bank).into_future());
    scene.await_contenders("smtp", 2);
    let kicked = scene.json(&["kick", "smtp", "--yes"]);
    let hit: Vec<_> = kicked.iter().map(|it| it["holder"]["service"].as_str()).collect();
    assert_eq!(hit, [Some("shop")]);
    drop(held);
    let served = scene.runtime.block_on(waiting).expect("no panic");
    assert!(served.expect("the permit that was taken away").is_held());
}

#[test]
fn top_without_a_terminal_says_what_to_use() {
    let scene = Scene::new();
    let output = scene.run(&["top"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output).contains("ls --watch"), "{}", text(&output));
}

#[test]
fn exit_status_tells_wrong_use_from_an_etcd_out_of_reach() {
    let away = run(NOWHERE, &["ls"]);
    assert_eq!(away.status.code(), Some(3), "{}", text(&away));
    let wrong = run("http://me:secret@127.0.0.1:1", &["ls"]);
    assert_eq!(wrong.status.code(), Some(2), "{}", text(&wrong));
    assert!(!text(&wrong).contains("secret"), "{}", text(&wrong));
    assert_eq!(run(NOWHERE, &["look"]).status.code(), Some(2));
}

#[test]
fn completions_and_the_man_page_know_every_command() {
    for args in [&["completions", "bash"][..], &["man"]] {
        let printed = text(&run(NOWHERE, args));
        for command in ["ls", "who", "kick", "top", "exec", "doctor"] {
            assert!(printed.contains(command), "no `{command}` from {args:?}");
        }
    }
}

/// It is not free: it is another name than what was meant.
#[test]
fn name_that_nobody_can_lock_is_refused() {
    let scene = Scene::new();
    for command in ["who", "kick"] {
        for name in ["orders/7/", "/orders/7", "orders//7", "orders/<id>", ""] {
            let output = scene.run(&[command, name]);
            assert_eq!(output.status.code(), Some(2), "{name}: {}", text(&output));
            assert!(text(&output).contains("is no name"), "{}", text(&output));
        }
        let output = scene.run(&[command, "locks/orders/7"]);
        assert_eq!(output.status.code(), Some(1), "{}", text(&output));
        let meant = "did you mean `orders/7`?";
        assert!(text(&output).contains(meant), "{}", text(&output));
    }
}
