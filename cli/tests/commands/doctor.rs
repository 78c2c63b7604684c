//! Findings of `doctor`, on real etcd with real faults.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Stdio;

use etcd_locked::etcd_client::Client;
use etcd_locked_devkit::process::text;
use etcd_locked_devkit::{Cluster, Setup};
use serde_json::json;
use tokio::runtime::Runtime;
use tokio::task::yield_now;

use crate::scene::{Scene, run};

/// Asserts that all of these are said.
#[track_caller]
fn says(found: &str, all: &[&str]) {
    for it in all {
        assert!(found.contains(it), "`{it}` is not in\n{found}");
    }
}

#[test]
fn names_keys_that_close_a_name_for_ever() {
    let scene = Scene::new();
    let well = [
        "no alarm",
        "ok  3 s of etcd's clock were",
        "may read the locks",
        "may write the session keys",
        "0 names locked",
    ];
    says(&text(&scene.run(&["doctor"])), &well);
    scene.put("locks/orders/7/operator");
    // It is directly below the prefix.
    scene.put("locks/orders");
    let sick = scene.run(&["doctor"]);
    assert_eq!(sick.status.code(), Some(1));
    let bad = [
        "1 name locked, with 1 contender",
        "BAD 1 key without a lease",
        "locks/orders/7/operator",
        "BAD 1 key directly below the prefix, which locks no name: locks/orders\n",
    ];
    says(&text(&sick), &bad);
}

#[test]
fn takes_a_full_etcd_for_no_missing_right() {
    let scene = Scene::new();
    let alarm = scene.etcd.gateway().no_space(true);
    alarm.expect("an alarm");
    let found = text(&scene.run(&["doctor"]));
    assert!(found.contains("BAD alarm NOSPACE"), "{found}");
    assert!(!found.contains("may not"), "{found}");
    assert!(!found.contains("grant-permission"), "{found}");
}

#[test]
fn blames_a_stopped_member_and_no_other() {
    let cluster = Cluster::start_with(3, Setup::default().direct()).expect("a cluster");
    let leader = cluster.await_leader().expect("a leader");
    let stopped = &cluster.members()[(leader + 1) % 3];
    stopped.stop().expect("it stops");
    let found = text(&run(&cluster.endpoints().join(","), &["doctor"]));
    let blamed = format!("BAD {}: etcd does not answer", stopped.endpoint());
    let well = ["no alarm", "writes confirmed", "0 names locked"];
    says(&found, &[&blamed]);
    says(&found, &well);
}

/// Runs `doctor` as a user who may read and write the keys that begin with one of these.
fn found_by_a_user(prefixes: &[&str]) -> String {
    let mut cluster = Cluster::start(1).expect("an etcd");
    let access = cluster.enable_auth("shop", "secret", prefixes);
    access.expect("access control");
    let endpoints = cluster.endpoints().join(",");
    text(&run(&endpoints, &["doctor", "--user", "shop:secret"]))
}

#[test]
fn looks_at_what_a_user_who_is_not_root_may_see() {
    let found = found_by_a_user(&["locks/", "locks%s/"]);
    says(&found, &["may write the session keys", "0 names locked"]);
}

#[test]
fn names_every_right_that_is_missing() {
    let found = found_by_a_user(&["shop/"]);
    let missing = [
        "BAD this user may not read the locks",
        "BAD this user may not write the locks",
        "--prefix=true locks/",
        "BAD this user may not read the session keys",
        "BAD this user may not write the session keys",
        "--prefix=true locks%s/",
    ];
    says(&found, &missing);
    assert!(!found.contains("etcd-locked:"), "it fails:\n{found}");
}

/// Puts keys as fast as etcd takes them, as long as the runtime lives.
fn keep_busy(runtime: &Runtime, endpoint: &str) {
    let client = runtime.block_on(Client::connect([endpoint], None));
    let client = client.expect("etcd is there");
    for writer in 0..64 {
        let mut client = client.clone();
        runtime.spawn(async move {
            loop {
                // Faults are none of its business, but for the end of the runtime: then a put fails without a wait, and only a wait
                // lets the runtime end this task.
                if client.put(format!("load/{writer}"), "", None).await.is_err() {
                    yield_now().await;
                }
            }
        });
    }
}

#[test]
fn busy_etcd_is_not_taken_for_members_behind() {
    let cluster = Cluster::start_with(3, Setup::default().direct()).expect("a cluster");
    let leader = cluster.await_leader().expect("a leader");
    let [first, stopped, last] = [0, 1, 2].map(|at| &cluster.members()[(leader + at) % 3]);
    let runtime = Runtime::new().expect("a runtime");
    keep_busy(&runtime, &first.endpoint());
    stopped.stop().expect("it stops");
    let revision = || first.gateway().status().expect("a status").revision;
    let before = revision();
    let endpoints = [first, stopped, last].map(|member| member.endpoint());
    let found = text(&run(&endpoints.join(","), &["doctor"]));
    // It waited for five seconds for the one that is stopped, and etcd had enough to do meanwhile.
    assert!(revision() > before + 1_000, "etcd was not busy");
    assert!(!found.contains("entries behind"), "{found}");
    assert!(found.contains(&last.endpoint()), "{found}");
}

#[test]
fn wrong_password_is_no_etcd_out_of_reach() {
    let mut cluster = Cluster::start(1).expect("an etcd");
    let access = cluster.enable_auth("shop", "secret", &["locks/", "locks%s/"]);
    access.expect("access control");
    let endpoint = cluster.endpoints().join(",");
    let refused = run(&endpoint, &["doctor", "--user", "shop:tiger7"]);
    let found = text(&refused);
    assert_eq!(refused.status.code(), Some(1), "{found}");
    assert!(found.contains("BAD etcd refuses this user"), "{found}");
    assert!(found.contains("the password in --user"), "{found}");
    assert!(!found.contains("no endpoint"), "{found}");

    let unknown = run(&endpoint, &["doctor"]);
    assert_eq!(unknown.status.code(), Some(1), "{}", text(&unknown));
    assert!(text(&unknown).contains("BAD etcd wants a user"));
}

#[test]
fn what_is_timed_goes_through_the_log_of_etcd() {
    let scene = Scene::new();
    let gateway = scene.etcd.gateway();
    let logged = || {
        let status = gateway.call("maintenance/status", &json!({}));
        let index = status.expect("a status")["raftIndex"].clone();
        let index = index.as_str().and_then(|index| index.parse::<u64>().ok());
        index.expect("a number")
    };
    let before = logged();
    scene.run(&["doctor", "--probes", "300"]);
    assert!(logged() >= before + 600, "{before}, then {}", logged());
}

#[test]
fn leaves_nothing() {
    let scene = Scene::new();
    let gateway = scene.etcd.gateway();
    let before = gateway.status().expect("a status").revision;
    scene.run(&["doctor"]);
    let after = gateway.status().expect("a status").revision;
    assert_eq!(after, before);
    assert_eq!(gateway.leases().expect("leases"), [0; 0]);
}

#[test]
fn sessions_without_a_holder_are_counted() {
    let scene = Scene::new();
    let (holds, idle) = (scene.service("holds"), scene.service("idle"));
    let held = scene.take(holds.lock("orders/7"));
    scene.release(scene.take(idle.lock("orders/8")));
    let found = text(&scene.run(&["doctor"]));
    let counted = "ok  2 sessions, 1 of them without a holder or waiter";
    says(&found, &[counted]);
    scene.put("locks%s/jo");
    let found = text(&scene.run(&["doctor"]));
    let unleased = "BAD 1 key without a lease among the session keys";
    says(&found, &[unleased]);
    scene.release(held);
}

#[test]
fn reader_that_goes_does_not_make_it_well() {
    let scene = Scene::new();
    scene.put("locks/orders/7/operator");
    let mut doctor =
        scene.command(&["doctor"]).stdout(Stdio::piped()).spawn().expect("the command line runs");
    drop(doctor.stdout.take());
    assert_eq!(doctor.wait().expect("its end").code(), Some(1));
}

/// The codes that stand in the sources.
fn codes() -> BTreeSet<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/doctor");
    let mut codes = BTreeSet::new();
    for file in fs::read_dir(folder).expect("the sources") {
        let source = fs::read_to_string(file.expect("a file").path()).expect("text");
        let findings = source.split("Finding::").skip(1);
        let first = findings.filter_map(|finding| finding.split_once('(')?.1.split('"').nth(1));
        codes.extend(first.filter(|it| it.contains('.') && !it.contains(' ')).map(String::from));
    }
    codes
}

#[test]
fn every_finding_has_a_code_that_is_documented() {
    let codes = codes();
    assert!(codes.contains("member.behind"), "{codes:?}");
    let page = include_str!("../../JSON.md");
    let unknown = codes.iter().filter(|code| !page.contains(&format!("| `{code}` |")));
    assert_eq!(unknown.count(), 0, "of {codes:?}");

    for object in Scene::new().json(&["doctor"]) {
        let code = object["code"].as_str().expect("a code");
        assert!(codes.contains(code), "{object}");
    }
}
