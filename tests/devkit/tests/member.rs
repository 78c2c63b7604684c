//! Tests of a single member: its leases, and starts that fail.

use etcd_locked_devkit::{Member, Setup};
use serde_json::json;

/// Otherwise a test that looks for leases would find none, and torture would delete holders' keys, both silently.
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
