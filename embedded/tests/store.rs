//! Store tests: promises that a comparison with a real etcd cannot check.

use std::time::Duration;

use etcd_client::proto::{PbLeaseGrantRequest, PbPutRequest, PbRangeRequest};
use etcd_locked_embedded::store::Store;

fn grant(store: &mut Store) -> i64 {
    let request = PbLeaseGrantRequest { ttl: 5, id: 0 };
    let granted = store.lease_grant(Duration::ZERO, &request);
    granted.expect("a lease").id
}

#[test]
fn new_leader_renews_every_lease() {
    let mut store = Store::new();
    let put =
        PbPutRequest { key: b"a".into(), lease: grant(&mut store), ..PbPutRequest::default() };
    store.put(&put).unwrap();
    store.promote(Duration::from_secs(4));
    assert_eq!(store.term(), 3);
    assert_eq!(store.next_expiry(), Some(Duration::from_secs(9)));
    store.expire(Duration::from_millis(8_999));
    assert_eq!(store.revision(), 2);
    store.expire(Duration::from_secs(9));
    assert_eq!(store.revision(), 3, "the key was deleted");
}

#[test]
fn equal_stores_choose_equal_lease_ids() {
    let first = grant(&mut Store::new());
    let mut store = Store::new();
    assert_eq!(grant(&mut store), first);
    assert_ne!(grant(&mut store), first);
}

// etcd-client cannot send such a request.
#[test]
fn unknown_sort_option_is_refused() {
    for (sort_target, sort_order) in [(9, 0), (0, 9)] {
        let request = PbRangeRequest {
            key: b"a".into(),
            sort_target,
            sort_order,
            ..PbRangeRequest::default()
        };
        let refusal = Store::new().range(&request).unwrap_err();
        assert_eq!(refusal.message, "etcdserver: invalid sort option");
    }
}
