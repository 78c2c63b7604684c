//! A member on its own: frozen, with a lease, not to be started; and that it goes with the process that started it.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use etcd_locked_devkit::{Member, Setup, until};
use serde_json::json;

const LIMIT: Duration = Duration::from_secs(20);

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

/// Otherwise a test that looks for leases would find none, and torture would delete keys of holders: neither says so.
#[test]
fn a_lease_spares_its_key_until_it_is_revoked() {
    let member = Member::start().unwrap();
    let gateway = member.gateway();
    let granted = gateway.call("lease/grant", &json!({ "TTL": 60 })).unwrap();
    let lease: i64 = granted["ID"].as_str().unwrap().parse().unwrap();
    // `k`, in base64.
    let put = json!({ "key": "aw==", "value": "", "lease": lease });
    gateway.call("kv/put", &put).unwrap();
    gateway.put("a", "").unwrap();
    for key in ["a", "k", "z"] {
        gateway.delete_without_lease(key).unwrap();
    }
    assert_eq!(gateway.leases().unwrap(), [lease]);
    assert_eq!(gateway.keys("").unwrap(), ["k"]);
    gateway.revoke(lease).unwrap();
    assert_eq!(gateway.leases().unwrap(), Vec::<i64>::new());
    assert_eq!(gateway.keys("k").unwrap(), Vec::<String>::new());
}

#[test]
fn an_etcd_that_does_not_start_says_why() {
    let setup = Setup::default().flags(["--no-such-flag=1"]);
    let error = setup.start().unwrap_err();
    assert!(error.contains("etcd has ended"), "{error}");
    let error = Setup::default().binary("/no/etcd").start().unwrap_err();
    assert!(error.contains("does not start"), "{error}");
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
