//! A member on its own: life, death, data; and that it goes with the process that started it.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use etcd_locked_devkit::{Member, Setup, binary, until};
use serde_json::json;

const LIMIT: Duration = Duration::from_secs(20);

#[test]
fn data_outlive_a_kill_and_not_a_wipe() {
    let member = Member::start().unwrap();
    let gateway = member.gateway();
    gateway.put("a", "1").unwrap();
    gateway.put("ab", "2").unwrap();
    gateway.put("b", "3").unwrap();
    member.restart().unwrap();
    assert_eq!(gateway.get("a").unwrap(), Some(b"1".to_vec()));
    assert_eq!(gateway.keys("a").unwrap(), ["a", "ab"]);
    assert_eq!(gateway.keys("").unwrap(), ["a", "ab", "b"]);
    assert!(gateway.delete("a").unwrap());
    assert_eq!(gateway.keys("").unwrap(), ["ab", "b"]);

    assert!(member.wipe().is_err());
    member.terminate().unwrap();
    assert!(gateway.get("ab").is_err());
    member.wipe().unwrap();
    member.restart().unwrap();
    assert_eq!(gateway.keys("").unwrap(), Vec::<String>::new());
}

#[test]
fn a_key_that_has_a_lease_is_spared() {
    let member = Member::start().unwrap();
    let gateway = member.gateway();
    let grant = gateway.call("lease/grant", &json!({ "TTL": 60 })).unwrap();
    // `a` and `b`, in base64.
    let put = json!({ "key": "YQ==", "lease": grant["ID"] });
    gateway.call("kv/put", &put).unwrap();
    gateway.put("b", "").unwrap();
    for key in ["a", "b", "c"] {
        gateway.delete_without_lease(key).unwrap();
    }
    assert_eq!(gateway.keys("").unwrap(), ["a"]);
}

#[test]
fn a_snapshot_brings_its_data_back() {
    let member = Member::start().unwrap();
    let gateway = member.gateway();
    gateway.put("then", "").unwrap();
    let file = member.file("snapshot");
    member.snapshot(&file).unwrap();
    gateway.put("since", "").unwrap();
    member.kill().unwrap();
    member.restore(&file).unwrap();
    member.restart().unwrap();
    assert_eq!(gateway.keys("").unwrap(), ["then"]);
}

#[test]
fn a_frozen_member_answers_once_it_goes_on() {
    let member = Member::start().unwrap();
    let impatient = member.gateway().limit(Duration::from_millis(200));
    member.stop().unwrap();
    assert!(impatient.status().is_err());
    member.cont().unwrap();
    assert!(member.gateway().status().is_ok());
    member.stop().unwrap();
    member.kill().unwrap();
    assert!(member.stop().is_err());
}

#[test]
fn leases_are_listed_and_revoked_with_their_keys() {
    let member = Member::start().unwrap();
    let gateway = member.gateway();
    let granted = gateway.call("lease/grant", &json!({ "TTL": 60 })).unwrap();
    let lease: i64 = granted["ID"].as_str().unwrap().parse().unwrap();
    let put = json!({ "key": "aw==", "value": "", "lease": lease });
    gateway.call("kv/put", &put).unwrap();
    assert_eq!(gateway.leases().unwrap(), [lease]);
    assert_eq!(gateway.keys("k").unwrap(), ["k"]);
    gateway.revoke(lease).unwrap();
    assert_eq!(gateway.leases().unwrap(), Vec::<i64>::new());
    assert_eq!(gateway.keys("k").unwrap(), Vec::<String>::new());
}

#[test]
fn an_alarm_refuses_puts_until_it_is_lowered() {
    let member = Member::start().unwrap();
    let gateway = member.gateway();
    gateway.no_space(true).unwrap();
    let error = gateway.put("k", "").unwrap_err();
    assert!(error.contains("database space exceeded"), "{error}");
    gateway.no_space(false).unwrap();
    gateway.put("k", "").unwrap();
    gateway.delete_all("").unwrap();
    let revision = gateway.status().unwrap().revision;
    gateway.compact(revision).unwrap();
    assert!(gateway.compact(revision).is_err());
}

#[test]
fn a_user_logs_in_where_others_are_refused() {
    let member = Member::start().unwrap();
    let gateway = member.gateway();
    let call = |method, request| gateway.call(method, &request).unwrap();
    call("auth/user/add", json!({ "name": "root", "password": "pw" }));
    call("auth/role/add", json!({ "name": "root" }));
    call("auth/user/grant", json!({ "user": "root", "role": "root" }));
    call("auth/enable", json!({}));
    let error = gateway.get("k").unwrap_err();
    assert!(error.contains("user name is empty"), "{error}");
    assert!(gateway.login("root", "wrong").is_err());
    gateway.login("root", "pw").unwrap().put("k", "").unwrap();
    member.restart().unwrap();
}

#[test]
fn an_etcd_that_does_not_start_says_why() {
    let setup = Setup::default().flags(["--no-such-flag=1"]);
    let error = setup.start().unwrap_err();
    assert!(error.contains("etcd has ended"), "{error}");
    let error = Setup::default().binary("/no/etcd").start().unwrap_err();
    assert!(error.contains("does not start"), "{error}");
}

#[test]
fn a_member_is_started_as_another_binary() {
    let member = Member::start().unwrap();
    assert!(member.restart_with("/no/etcd").is_err());
    member.restart_with(binary::etcd()).unwrap();
}

/// Set for the process that [`ends_with_a_process_that_is_killed`] starts and kills.
const OWNER: &str = "ETCD_LOCKED_DEVKIT_OWNER";

#[test]
fn owns_a_member_until_it_is_killed() {
    if std::env::var_os(OWNER).is_some() {
        let member = Member::start().unwrap();
        println!("\nmember {}", member.file("").display());
        let mut input = String::new();
        std::io::stdin().read_line(&mut input).unwrap();
        panic!("it was not killed: {member:?}");
    }
}

#[test]
fn ends_with_a_process_that_is_killed() {
    let mut owner = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "owns_a_member_until_it_is_killed", "--nocapture"])
        .env(OWNER, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(owner.stdout.take().unwrap()).lines();
    let place = lines
        .map_while(Result::ok)
        .find_map(|line| line.strip_prefix("member ").map(str::to_owned))
        .expect("the owner starts a member");
    let place = place.trim_end_matches('/');
    let runs = || {
        let mut processes = std::fs::read_dir("/proc").unwrap().flatten();
        processes.any(|process| {
            let command = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&command).contains(&format!("{place}/data"))
        })
    };
    assert!(runs() && Path::new(place).is_dir());
    owner.kill().unwrap();
    owner.wait().unwrap();
    until("etcd has ended", LIMIT, || !runs()).unwrap();
    until("its data are gone", LIMIT, || !Path::new(place).exists()).unwrap();
}
