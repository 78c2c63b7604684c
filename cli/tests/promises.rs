//! Promises of the command line, on real etcd.

use std::future::IntoFuture;
use std::process::{Command, Output};
use std::time::Duration;

use etcd_locked::etcd_client::Txn;
use etcd_locked::{Config, LockError, Locks, LossCause};
use etcd_locked_devkit::{Gateway, Member, until};
use serde_json::Value;
use tokio::runtime::Runtime;

/// More than anything here takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// An etcd, and services that lock in it.
struct Scene {
    etcd: Member,
    runtime: Runtime,
}

impl Scene {
    fn new() -> Self {
        Self {
            etcd: Member::start().expect("an etcd"),
            runtime: Runtime::new().expect("a runtime"),
        }
    }

    /// A service's locks.
    fn service(&self, name: &str) -> Locks {
        let config = Config::new([self.etcd.endpoint()])
            .service(name)
            .wait_forever();
        let locks = self.runtime.block_on(Locks::connect(config));
        locks.expect("etcd is there")
    }

    /// Runs the command line.
    fn run(&self, args: &[&str]) -> Output {
        run(&self.etcd.endpoint(), args)
    }

    /// Runs it with `--json`, and returns the objects.
    fn json(&self, args: &[&str]) -> Vec<Value> {
        let output = self.run(&[args, &["--json"]].concat());
        let text = String::from_utf8(output.stdout).expect("text");
        let lines = text.lines().map(serde_json::from_str);
        lines.collect::<Result<_, _>>().expect("an object a line")
    }

    fn gateway(&self) -> Gateway {
        self.etcd.gateway()
    }

    /// Waits until a name has so many contenders.
    fn await_contenders(&self, name: &str, many: usize) {
        let below = format!("locks/{name}/");
        until("the contenders", PATIENCE, || {
            self.gateway()
                .keys(&below)
                .is_ok_and(|keys| keys.len() == many)
        })
        .expect("the contenders");
    }
}

fn run(endpoints: &str, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_etcd-locked"));
    command.args(args).args(["--endpoints", endpoints]);
    command.output().expect("the command line runs")
}

fn text(output: &Output) -> String {
    let (out, errors) = (&output.stdout, &output.stderr);
    format!(
        "{}{}",
        String::from_utf8_lossy(out),
        String::from_utf8_lossy(errors)
    )
}

#[test]
fn ls_shows_who_holds_each_name_and_how_many_wait() {
    let scene = Scene::new();
    let (shop, bank) = (scene.service("shop"), scene.service("bank"));
    let held = scene
        .runtime
        .block_on(shop.lock("orders/7").into_future())
        .expect("free");
    let _other = scene
        .runtime
        .block_on(bank.lock("accounts/3").shared().into_future())
        .expect("free");
    let waiting = scene.runtime.spawn(bank.lock("orders/7").into_future());
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
    assert_eq!(
        (fields.len(), fields[0], fields[1], fields[4]),
        (6, "orders/7", "exclusive", "1")
    );

    scene.runtime.block_on(held.release()).expect("released");
    let served = scene
        .runtime
        .block_on(waiting)
        .expect("no panic")
        .expect("served");
    scene.runtime.block_on(served.release()).expect("released");
}

#[test]
fn ls_goes_on_from_page_to_page() {
    let scene = Scene::new();
    let gateway = scene.gateway();
    // Names lie below others, and their keys between theirs.
    for n in 0..450 {
        gateway
            .put(&format!("locks/jobs/{n:03}/1f"), "")
            .expect("a put");
    }
    gateway.put("locks/jobs/1f", "").expect("a put");
    gateway.put("locks/jobs/ff", "").expect("a put");
    let names = scene.json(&["ls"]);
    assert_eq!(names.len(), 451);
    let jobs = names.last().expect("the name above all others");
    assert_eq!(
        (&jobs["name"], &jobs["waiting"]),
        (&"jobs".into(), &1.into())
    );
}

#[test]
fn who_shows_all_contenders_in_their_order() {
    let scene = Scene::new();
    let services = ["one", "two", "three"].map(|name| scene.service(name));
    let call = services[0].lock("orders/7").and("accounts/3");
    let held = scene.runtime.block_on(call.into_future()).expect("free");
    let mut waiting = Vec::new();
    for (many, service) in services.iter().enumerate().skip(1) {
        waiting.push(scene.runtime.spawn(service.lock("orders/7").into_future()));
        scene.await_contenders("orders/7", many + 1);
    }
    let found = scene.json(&["who", "orders/7"]).remove(0);
    let all = found["contenders"].as_array().expect("a list");
    let who: Vec<_> = all
        .iter()
        .map(|it| (it["standing"].as_str(), it["service"].as_str()))
        .collect();
    let expected = [("holds", "one"), ("waits", "two"), ("waits", "three")];
    assert_eq!(
        who,
        expected.map(|(standing, service)| (Some(standing), Some(service)))
    );
    let group = all[0]["group"].as_array().expect("a list");
    assert!(
        group[0]
            .as_str()
            .is_some_and(|key| key.starts_with("locks/accounts/3/"))
    );
    scene.runtime.block_on(held.release()).expect("released");
    for call in waiting {
        let served = scene
            .runtime
            .block_on(call)
            .expect("no panic")
            .expect("served");
        scene.runtime.block_on(served.release()).expect("released");
    }
    let free = scene.run(&["who", "orders/7"]);
    assert_eq!(free.status.code(), Some(1), "{}", text(&free));
}

#[test]
fn kick_takes_a_lock_from_its_holder_and_the_next_one_gets_it() {
    let scene = Scene::new();
    let (shop, bank) = (scene.service("shop"), scene.service("bank"));
    let held = scene
        .runtime
        .block_on(shop.lock("orders/7").into_future())
        .expect("free");
    let body = scene
        .runtime
        .spawn(async move { held.hold(std::future::pending::<()>()).await });
    let next = scene.runtime.spawn(bank.lock("orders/7").into_future());
    scene.await_contenders("orders/7", 2);

    let asked = scene.run(&["kick", "orders/7"]);
    assert_eq!(asked.status.code(), Some(2), "{}", text(&asked));
    let kicked = scene.run(&["kick", "orders/7", "--yes"]);
    assert!(kicked.status.success(), "{}", text(&kicked));
    assert!(text(&kicked).contains("next is bank"), "{}", text(&kicked));
    let lost = scene
        .runtime
        .block_on(body)
        .expect("no panic")
        .expect_err("its lock is gone");
    let LockError::Lost { cause, .. } = lost else {
        panic!("{lost:?}");
    };
    assert_eq!(cause, LossCause::Deleted);
    let served = scene
        .runtime
        .block_on(next)
        .expect("no panic")
        .expect("the next one has it");
    scene.runtime.block_on(served.release()).expect("released");
}

/// A holder that has gone, and the one after it, are hit by no kick that was meant for another.
#[test]
fn kick_never_hits_a_later_holder() {
    let times = std::env::var("KICKS").map_or(20, |times| times.parse().expect("a number"));
    let scene = Scene::new();
    let service = scene.service("shop");
    let client = scene.runtime.block_on(service.client());
    let mut client = client.expect("etcd is there");
    let churn = scene.runtime.spawn(async move {
        let mut lost = Vec::new();
        while lost.len() < times {
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
    while !churn.is_finished() {
        let kicked = scene.json(&["kick", "orders/7", "--yes"]);
        let hit = kicked.iter().filter(|it| it["taken"] == true);
        taken.extend(hit.filter_map(|it| it["holder"]["create_revision"].as_i64()));
    }
    let lost = scene.runtime.block_on(churn).expect("no panic");
    let strays: Vec<_> = lost
        .iter()
        .filter(|created| !taken.contains(created))
        .collect();
    assert!(
        strays.is_empty(),
        "{strays:?} were lost, and {taken:?} were meant"
    );
}

#[test]
fn top_without_a_terminal_says_what_to_use() {
    let scene = Scene::new();
    let output = scene.run(&["top"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output).contains("ls --watch"), "{}", text(&output));
}

#[test]
fn doctor_names_keys_that_close_a_name_for_ever() {
    let scene = Scene::new();
    let found = text(&scene.run(&["doctor"]));
    for well in [
        "no alarm",
        "may read the locks",
        "may write the session keys",
        "0 names are locked",
    ] {
        assert!(found.contains(well), "`{well}` is not in\n{found}");
    }
    scene
        .gateway()
        .put("locks/orders/7/operator", "")
        .expect("a put");
    let sick = scene.run(&["doctor"]);
    assert_eq!(sick.status.code(), Some(1));
    let found = text(&sick);
    assert!(found.contains("BAD 1 keys hang on no lease"), "{found}");
    assert!(found.contains("locks/orders/7/operator"), "{found}");
}

#[test]
fn doctor_tells_that_etcd_is_full() {
    let scene = Scene::new();
    scene.gateway().no_space(true).expect("an alarm");
    let full = scene.run(&["doctor"]);
    assert!(
        text(&full).contains("BAD alarm: etcd is at its quota"),
        "{}",
        text(&full)
    );
}

#[test]
fn doctor_writes_nothing() {
    let scene = Scene::new();
    let before = scene.gateway().status().expect("a status").revision;
    scene.run(&["doctor"]);
    assert_eq!(scene.gateway().status().expect("a status").revision, before);
    assert_eq!(scene.gateway().leases().expect("leases"), [0; 0]);
}

#[test]
fn exit_status_tells_wrong_use_from_an_etcd_out_of_reach() {
    let nowhere = "http://127.0.0.1:1";
    let away = run(nowhere, &["ls"]);
    assert_eq!(away.status.code(), Some(3), "{}", text(&away));
    let wrong = run("http://me:secret@127.0.0.1:1", &["ls"]);
    assert_eq!(wrong.status.code(), Some(2), "{}", text(&wrong));
    assert!(!text(&wrong).contains("secret"), "{}", text(&wrong));
    assert_eq!(run(nowhere, &["look"]).status.code(), Some(2));
}

#[test]
fn completions_and_the_man_page_know_every_command() {
    for args in [&["completions", "bash"][..], &["man"]] {
        let printed = text(&run("http://127.0.0.1:1", args));
        for command in ["ls", "who", "kick", "top", "exec", "doctor"] {
            assert!(printed.contains(command), "no `{command}` from {args:?}");
        }
    }
}
