//! Findings of `doctor`, on real etcd with real faults.

use std::collections::BTreeSet;
use std::fs;
use std::future::IntoFuture;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use etcd_locked::etcd_client::Client;
use etcd_locked::{Config, Locks};
use etcd_locked_devkit::process::text;
use etcd_locked_devkit::{Cluster, Member, Setup};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::task::yield_now;

fn command(endpoints: &str, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_etcd-locked"));
    command
        .args(["doctor", "--endpoints", endpoints])
        .args(args);
    command
}

fn doctor(endpoints: &str, args: &[&str]) -> Output {
    let output = command(endpoints, args).output();
    output.expect("the command line runs")
}

#[test]
fn names_keys_that_close_a_name_for_ever() {
    let etcd = Member::start().expect("an etcd");
    let found = text(&doctor(&etcd.endpoint(), &[]));
    for well in [
        "no alarm",
        "may read the locks",
        "may write the session keys",
        "0 names locked",
    ] {
        assert!(found.contains(well), "`{well}` is not in\n{found}");
    }
    etcd.gateway()
        .put("locks/orders/7/operator", "")
        .expect("a put");
    let sick = doctor(&etcd.endpoint(), &[]);
    assert_eq!(sick.status.code(), Some(1));
    let found = text(&sick);
    assert!(found.contains("BAD 1 key without a lease"), "{found}");
    assert!(found.contains("locks/orders/7/operator"), "{found}");
}

#[test]
fn takes_a_full_etcd_for_no_missing_right() {
    let etcd = Member::start().expect("an etcd");
    etcd.gateway().no_space(true).expect("an alarm");
    let found = text(&doctor(&etcd.endpoint(), &[]));
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
    let found = text(&doctor(&cluster.endpoints().join(","), &[]));
    let blamed = format!("BAD {}: etcd does not answer", stopped.endpoint());
    assert!(found.contains(&blamed), "{found}");
    for well in ["no alarm", "writes confirmed", "0 names locked"] {
        assert!(found.contains(well), "`{well}` is not in\n{found}");
    }
}

/// Runs `doctor` as a user who may read and write the keys that begin with one of these.
fn found_by_a_user(prefixes: &[&str]) -> String {
    let mut cluster = Cluster::start(1).expect("an etcd");
    let access = cluster.enable_auth("shop", "secret", prefixes);
    access.expect("access control");
    let endpoints = cluster.endpoints().join(",");
    text(&doctor(&endpoints, &["--user", "shop:secret"]))
}

#[test]
fn looks_at_what_a_user_who_is_not_root_may_see() {
    let found = found_by_a_user(&["locks/", "locks%s/"]);
    for well in ["may write the session keys", "0 names locked"] {
        assert!(found.contains(well), "`{well}` is not in\n{found}");
    }
}

#[test]
fn names_every_right_that_is_missing() {
    let found = found_by_a_user(&["shop/"]);
    for missing in [
        "BAD this user may not read the locks",
        "BAD this user may not write the locks",
        "--prefix=true locks/",
        "BAD this user may not read the session keys",
        "BAD this user may not write the session keys",
        "--prefix=true locks%s/",
    ] {
        assert!(found.contains(missing), "`{missing}` is not in\n{found}");
    }
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
                if client
                    .put(format!("load/{writer}"), "", None)
                    .await
                    .is_err()
                {
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
    let found = text(&doctor(&endpoints.join(","), &[]));
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
    let refused = doctor(&endpoint, &["--user", "shop:tiger7"]);
    let found = text(&refused);
    assert_eq!(refused.status.code(), Some(1), "{found}");
    assert!(found.contains("BAD etcd refuses this user"), "{found}");
    assert!(found.contains("the password in --user"), "{found}");
    assert!(!found.contains("no endpoint"), "{found}");

    let unknown = doctor(&endpoint, &[]);
    assert_eq!(unknown.status.code(), Some(1), "{}", text(&unknown));
    assert!(text(&unknown).contains("BAD etcd wants a user"));
}

#[test]
fn what_is_timed_goes_through_the_log_of_etcd() {
    let etcd = Member::start().expect("an etcd");
    let logged = || {
        let status = etcd.gateway().call("maintenance/status", &json!({}));
        let index = status.expect("a status")["raftIndex"].clone();
        let index = index.as_str().and_then(|index| index.parse::<u64>().ok());
        index.expect("a number")
    };
    let before = logged();
    doctor(&etcd.endpoint(), &["--probes", "300"]);
    assert!(logged() >= before + 600, "{before}, then {}", logged());
}

#[test]
fn leaves_nothing() {
    let etcd = Member::start().expect("an etcd");
    let before = etcd.gateway().status().expect("a status").revision;
    doctor(&etcd.endpoint(), &[]);
    let after = etcd.gateway().status().expect("a status").revision;
    assert_eq!(after, before);
    assert_eq!(etcd.gateway().leases().expect("leases"), [0; 0]);
}

#[test]
fn clock_of_etcd_is_compared_with_the_own_one() {
    let etcd = Member::start().expect("an etcd");
    let found = text(&doctor(&etcd.endpoint(), &[]));
    assert!(found.contains("ok  3 s of etcd's clock were"), "{found}");
}

#[test]
fn keys_directly_below_the_prefix_are_named() {
    let etcd = Member::start().expect("an etcd");
    etcd.gateway().put("locks/orders", "").expect("a put");
    let found = text(&doctor(&etcd.endpoint(), &[]));
    assert!(
        found.contains("BAD 1 key directly below the prefix, which locks no name: locks/orders\n"),
        "{found}"
    );
    assert!(found.contains("0 names locked"), "{found}");
}

#[test]
fn sessions_without_a_holder_are_counted() {
    let etcd = Member::start().expect("an etcd");
    let runtime = Runtime::new().expect("a runtime");
    let service = || {
        let locks = Locks::connect(Config::new([etcd.endpoint()]));
        runtime.block_on(locks).expect("etcd is there")
    };
    let (holds, idle) = (service(), service());
    let lock = |service: &Locks, name: &'static str| {
        let call = service.lock(name).into_future();
        runtime.block_on(call).expect("free")
    };
    let held = lock(&holds, "orders/7");
    let released = lock(&idle, "orders/8");
    runtime.block_on(released.release()).expect("released");
    let found = text(&doctor(&etcd.endpoint(), &[]));
    assert!(
        found.contains("ok  2 sessions, 1 of them without a holder or waiter"),
        "{found}"
    );
    etcd.gateway().put("locks%s/jo", "").expect("a put");
    let found = text(&doctor(&etcd.endpoint(), &[]));
    assert!(
        found.contains("BAD 1 key without a lease among the session keys"),
        "{found}"
    );
    runtime.block_on(held.release()).expect("released");
}

#[test]
fn reader_that_goes_does_not_make_it_well() {
    let etcd = Member::start().expect("an etcd");
    etcd.gateway()
        .put("locks/orders/7/operator", "")
        .expect("a put");
    let mut doctor = command(&etcd.endpoint(), &[])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the command line runs");
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
        codes.extend(
            first
                .filter(|it| it.contains('.') && !it.contains(' '))
                .map(String::from),
        );
    }
    codes
}

#[test]
fn every_finding_has_a_code_that_is_documented() {
    let codes = codes();
    assert!(codes.contains("member.behind"), "{codes:?}");
    let page = include_str!("../JSON.md");
    let unknown = codes
        .iter()
        .filter(|code| !page.contains(&format!("| `{code}` |")));
    assert_eq!(unknown.count(), 0, "of {codes:?}");

    let etcd = Member::start().expect("an etcd");
    let found = text(&doctor(&etcd.endpoint(), &["--json"]));
    for line in found.lines() {
        let object: Value = serde_json::from_str(line).expect("an object a line");
        let code = object["code"].as_str().expect("a code");
        assert!(codes.contains(code), "{object}");
    }
}
