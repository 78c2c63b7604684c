//! Tests of `etcd-locked doctor`: its findings, on real etcd with real faults.

use etcd_locked::etcd_client::Client;
use etcd_locked_devkit::process::text;
use etcd_locked_devkit::{Cluster, Setup};
use serde_json::json;
use tokio::runtime::Runtime;

use crate::scene::{Scene, ends, says};

#[test]
fn takes_a_full_etcd_for_no_missing_right() {
    let scene = Scene::new();
    scene.etcd.gateway().no_space(true).expect("an alarm");
    let found = scene.ends(&["doctor"], 1);
    says(&found, &["BAD alarms: NOSPACE"]);
    assert!(!found.contains("may not"), "{found}");
}

/// Starts an etcd with the user `shop`, who may use these prefixes.
fn closed(prefixes: &[&str]) -> Cluster {
    let mut cluster = Cluster::start(1).expect("an etcd");
    let access = cluster.enable_auth("shop", "secret", prefixes);
    access.expect("access control");
    cluster
}

#[test]
fn names_every_right_that_is_missing() {
    let said_to_a_user = |prefixes: &[&str], command: &str, status| {
        let cluster = closed(prefixes);
        let mut run = std::process::Command::new(env!("CARGO_BIN_EXE_etcd-locked"));
        run.env("ETCDCTL_ENDPOINTS", &cluster.endpoints()[0]);
        let run = run.env("ETCDCTL_USER", "shop").env("ETCDCTL_PASSWORD", "secret").arg(command);
        let output = run.output().expect("the command line runs");
        assert_eq!(output.status.code(), Some(status), "{output:?}");
        text(&output)
    };
    let missing = [
        "BAD rights: this user may not read locks",
        "BAD rights: this user may not write locks",
        "--prefix=true locks/",
        "BAD rights: this user may not read session keys",
        "BAD rights: this user may not write session keys",
        "--prefix=true locks%s/",
    ];
    says(&said_to_a_user(&["shop/"], "doctor", 1), &missing);
    let found = said_to_a_user(&["locks/", "locks%s/"], "doctor", 0);
    says(&found, &["may write session keys", "names: 0 locked"]);
    let denied = said_to_a_user(&["shop/"], "ls", 3);
    says(&denied, &["permission denied", "`etcd-locked doctor`"]);
}

/// Before the command gives up a stopped member, the log of a busy etcd grows by thousands of entries.
#[test]
fn blames_a_stopped_member_and_no_other() {
    let cluster = Cluster::start_with(3, Setup::default().direct()).expect("a cluster");
    let leader = cluster.await_leader().expect("a leader");
    let [first, stopped, last] = [0, 1, 2].map(|at| &cluster.members()[(leader + at) % 3]);
    let runtime = Runtime::new().expect("a runtime");
    let client = runtime.block_on(Client::connect([first.endpoint()], None));
    let client = client.expect("etcd is there");
    for writer in 0..64 {
        let mut client = client.clone();
        runtime.spawn(async move {
            // Puts as fast as etcd takes them, until the runtime ends.
            while client.put(format!("load/{writer}"), "", None).await.is_ok() {}
        });
    }
    stopped.stop().expect("it stops");
    let revision = || first.gateway().status().expect("a status").revision;
    let before = revision();
    let endpoints = [first, stopped, last].map(|member| member.endpoint());
    let found = ends(&endpoints.join(","), &["doctor"], 1);
    assert!(revision() > before + 1_000, "etcd was not busy");
    let blamed = format!("BAD member {}: etcd does not answer", stopped.endpoint());
    says(&found, &[&blamed, &last.endpoint(), "alarms: none", "writes: ", "names: 0 locked"]);
    assert!(!found.contains("entries behind"), "{found}");
}

#[test]
fn wrong_password_is_no_etcd_out_of_reach() {
    let cluster = closed(&["locks/", "locks%s/"]);
    for (options, said) in [
        (&["--user", "shop:tiger7"][..], &["BAD login: etcd refuses this user", "in --user"][..]),
        (&[], &["BAD login: etcd requires a user"]),
    ] {
        let found = ends(&cluster.endpoints()[0], &[&["doctor"], options].concat(), 1);
        says(&found, said);
        assert!(!found.contains("no endpoint"), "{found}");
    }
}

#[test]
fn times_the_log_of_etcd_and_leaves_nothing() {
    let scene = Scene::new();
    let gateway = scene.etcd.gateway();
    let logged = || {
        let status = gateway.call("maintenance/status", &json!({})).expect("a status");
        let index = status["raftIndex"].as_str().and_then(|index| index.parse::<u64>().ok());
        index.expect("a number")
    };
    let (before, revision) = (logged(), gateway.status().expect("a status").revision);
    scene.run(&["doctor", "--probes", "300"]);
    assert!(logged() >= before + 600, "{before}, then {}", logged());
    assert_eq!(gateway.status().expect("a status").revision, revision);
    assert_eq!(gateway.leases().expect("leases"), [0; 0]);
}
