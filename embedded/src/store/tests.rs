//! Tests of the store against the rules of etcd 3.5. The differential test shows that etcd has these rules.

use std::time::Duration;

use etcd_client::proto::{
    PbCompactionRequest, PbCompare, PbCompareTarget, PbDeleteRequest, PbKeyValue,
    PbLeaseGrantRequest, PbLeaseRevokeRequest, PbLeaseTimeToLiveRequest, PbPutRequest,
    PbRangeRequest, PbTargetUnion, PbTxnOpRequest, PbTxnOpResponse, PbTxnRequest, PbTxnRequestOp,
};
use etcd_client::{CompareOp, SortOrder, SortTarget};

use super::*;

const START: Duration = Duration::ZERO;

fn put(key: &str, value: &str) -> PbPutRequest {
    PbPutRequest {
        key: key.into(),
        value: value.into(),
        ..PbPutRequest::default()
    }
}

fn put_with(key: &str, lease: i64) -> PbPutRequest {
    PbPutRequest {
        lease,
        ..put(key, "")
    }
}

fn get(key: &str) -> PbRangeRequest {
    PbRangeRequest {
        key: key.into(),
        ..PbRangeRequest::default()
    }
}

fn all() -> PbRangeRequest {
    PbRangeRequest {
        range_end: vec![0],
        ..get("\0")
    }
}

fn delete(key: &str, range_end: &str) -> PbDeleteRequest {
    PbDeleteRequest {
        key: key.into(),
        range_end: range_end.into(),
        prev_kv: true,
    }
}

fn op(request: impl Into<Operation>) -> PbTxnRequestOp {
    PbTxnRequestOp {
        request: Some(request.into().0),
    }
}

struct Operation(PbTxnOpRequest);

macro_rules! operations {
    ($($request:ty => $variant:ident),*) => {
        $(impl From<$request> for Operation {
            fn from(request: $request) -> Self {
                Self(PbTxnOpRequest::$variant(request))
            }
        })*
    };
}
operations! {
    PbPutRequest => RequestPut, PbRangeRequest => RequestRange,
    PbDeleteRequest => RequestDeleteRange, PbTxnRequest => RequestTxn
}

fn txn(success: Vec<PbTxnRequestOp>) -> PbTxnRequest {
    PbTxnRequest {
        success,
        ..PbTxnRequest::default()
    }
}

fn created(key: &str, revision: i64) -> PbCompare {
    PbCompare {
        result: CompareOp::Equal as i32,
        target: PbCompareTarget::Create as i32,
        key: key.into(),
        target_union: Some(PbTargetUnion::CreateRevision(revision)),
        range_end: Vec::new(),
    }
}

fn compact(revision: i64) -> PbCompactionRequest {
    PbCompactionRequest {
        revision,
        physical: false,
    }
}

fn grant(store: &mut Store, ttl: i64) -> i64 {
    let request = PbLeaseGrantRequest { ttl, id: 0 };
    store.lease_grant(START, &request).unwrap().id
}

fn names(kvs: &[PbKeyValue]) -> Vec<&str> {
    kvs.iter()
        .map(|kv| std::str::from_utf8(&kv.key).unwrap())
        .collect()
}

/// Shows all events as `revision:+key` or `revision:-key`; events of one revision share a string.
fn events(store: &Store, from: i64) -> Vec<String> {
    let shown = |event: &etcd_client::proto::PbEvent| {
        let kv = event.kv.as_ref().unwrap();
        let sign = if event.r#type == 0 { '+' } else { '-' };
        format!(
            "{}:{sign}{}",
            kv.mod_revision,
            String::from_utf8_lossy(&kv.key)
        )
    };
    store
        .events(b"\0", b"\0", from, false)
        .unwrap()
        .iter()
        .map(|revision| revision.iter().map(shown).collect::<Vec<_>>().join(" "))
        .collect()
}

#[test]
fn key_counts_its_versions_until_deleted() {
    let mut store = Store::new();
    assert_eq!(store.revision(), 1);
    store.put(&put("a", "1")).unwrap();
    store.put(&put("a", "2")).unwrap();
    let kv = store.range(&get("a")).unwrap().kvs.remove(0);
    assert_eq!((kv.create_revision, kv.mod_revision, kv.version), (2, 3, 2));
    assert_eq!(store.delete_range(&delete("a", "")).unwrap().deleted, 1);
    assert_eq!(store.delete_range(&delete("a", "")).unwrap().deleted, 0);
    assert_eq!(store.revision(), 4, "nothing deleted is no revision");
    store.put(&put("a", "3")).unwrap();
    let kv = store.range(&get("a")).unwrap().kvs.remove(0);
    assert_eq!((kv.create_revision, kv.version), (5, 1));
    let past = PbRangeRequest {
        revision: 2,
        ..get("a")
    };
    assert_eq!(store.range(&past).unwrap().kvs[0].value, b"1");
}

#[test]
fn range_end_follows_etcds_rules() {
    let mut store = Store::new();
    for key in ["a", "b", "c"] {
        store.put(&put(key, "")).unwrap();
    }
    let range = |key: &str, end: &[u8]| {
        let request = PbRangeRequest {
            range_end: end.to_vec(),
            ..get(key)
        };
        store.range(&request).unwrap().count
    };
    assert_eq!(range("a", b"c"), 2);
    assert_eq!(range("b", b"\0"), 2);
    assert_eq!(range("c", b"a"), 0);
    assert_eq!(range("\0", b"\0"), 3);
}

#[test]
fn range_applies_limit_order_and_bounds() {
    let mut store = Store::new();
    for (key, value) in [("b", "1"), ("a", "3"), ("c", "2")] {
        store.put(&put(key, value)).unwrap();
    }
    let found = |request: PbRangeRequest| {
        let found = store.range(&request).unwrap();
        (names(&found.kvs).concat(), found.more, found.count)
    };
    let sorted = |target: SortTarget, order: SortOrder, limit| PbRangeRequest {
        sort_target: target as i32,
        sort_order: order as i32,
        limit,
        ..all()
    };
    assert_eq!(
        found(sorted(SortTarget::Create, SortOrder::Descend, 2)),
        ("ca".into(), true, 3)
    );
    assert_eq!(
        found(sorted(SortTarget::Value, SortOrder::Ascend, 0)),
        ("bca".into(), false, 3)
    );
    // A target without an order sorts what was found by name, one key more than the limit.
    assert_eq!(
        found(sorted(SortTarget::Value, SortOrder::None, 1)),
        ("b".into(), true, 3)
    );
    let bounded = PbRangeRequest {
        max_create_revision: 3,
        min_create_revision: 3,
        ..all()
    };
    assert_eq!(found(bounded), ("a".into(), false, 3));
    let counted = PbRangeRequest {
        count_only: true,
        limit: 1,
        ..all()
    };
    assert_eq!(found(counted), (String::new(), false, 3));
    let keys_only = PbRangeRequest {
        keys_only: true,
        ..get("a")
    };
    assert_eq!(store.range(&keys_only).unwrap().kvs[0].value, b"");
    let unknown = PbRangeRequest {
        sort_target: 9,
        ..all()
    };
    assert_eq!(
        store.range(&unknown).unwrap_err().message,
        "etcdserver: invalid sort option"
    );
}

#[test]
fn transaction_is_one_revision() {
    let mut store = Store::new();
    let request = txn(vec![
        op(get("a")),
        op(put("b", "")),
        op(put("a", "")),
        op(get("a")),
        op(delete("c", "")),
    ]);
    let answer = store.txn(&request).unwrap();
    assert!(answer.succeeded, "no condition is a condition that holds");
    assert_eq!((answer.header.unwrap().revision, store.revision()), (2, 2));
    let read = |n: usize| match &answer.responses[n].response {
        Some(PbTxnOpResponse::ResponseRange(range)) => {
            (range.header.as_ref().unwrap().revision, range.count)
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(
        (read(0), read(3)),
        ((1, 0), (2, 1)),
        "its own writes are seen"
    );
    assert_eq!(events(&store, 1), ["2:+b 2:+a"]);
    store.txn(&txn(vec![op(get("a"))])).unwrap();
    store.txn(&txn(Vec::new())).unwrap();
    assert_eq!(store.revision(), 2, "nothing changed");
}

#[test]
fn nested_conditions_see_the_state_before() {
    let mut store = Store::new();
    let nested = PbTxnRequest {
        compare: vec![created("a", 0)],
        success: vec![op(put("b", ""))],
        failure: vec![],
    };
    let answer = store.txn(&txn(vec![op(put("a", "")), op(nested)])).unwrap();
    match &answer.responses[1].response {
        Some(PbTxnOpResponse::ResponseTxn(nested)) => {
            assert!(nested.succeeded);
            assert_eq!(nested.header.as_ref().unwrap().revision, 0);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(events(&store, 1), ["2:+a 2:+b"]);
}

#[test]
fn range_condition_holds_for_every_key() {
    let mut store = Store::new();
    store.put(&put("p/1", "x")).unwrap();
    store.put(&put("p/2", "y")).unwrap();
    let mut holds = |compare: PbCompare| {
        let request = PbTxnRequest {
            compare: vec![compare],
            ..PbTxnRequest::default()
        };
        store.txn(&request).unwrap().succeeded
    };
    let below = |key: &str, result: CompareOp, revision| PbCompare {
        result: result as i32,
        range_end: b"p0".to_vec(),
        ..created(key, revision)
    };
    assert!(holds(below("p/", CompareOp::Greater, 1)));
    assert!(!holds(below("p/", CompareOp::Greater, 2)));
    assert!(holds(below("p/3", CompareOp::Equal, 0)), "no key there");
    let value = |key: &str, result: CompareOp, value: &str| PbCompare {
        result: result as i32,
        target: PbCompareTarget::Value as i32,
        target_union: Some(PbTargetUnion::Value(value.into())),
        ..created(key, 0)
    };
    assert!(holds(value("p/1", CompareOp::Equal, "x")));
    assert!(holds(value("p/1", CompareOp::Less, "xx")));
    assert!(!holds(value("q", CompareOp::NotEqual, "x")), "no value");
}

#[test]
fn refusals_have_etcds_codes_and_messages() {
    let mut store = Store::new();
    let says = |refused: Result<_, Refusal>, code, message: &str| {
        let refusal: Refusal = refused.unwrap_err();
        assert_eq!((refusal.code, &*refusal.message), (code, message));
    };
    use tonic::Code::{InvalidArgument, NotFound, OutOfRange, ResourceExhausted};
    let no_key = "etcdserver: key is not provided";
    says(store.put(&put("", "")).map(drop), InvalidArgument, no_key);
    says(store.range(&get("")).map(drop), InvalidArgument, no_key);
    says(
        store.put(&put_with("a", 7)).map(drop),
        NotFound,
        "etcdserver: requested lease not found",
    );
    let keeps = PbPutRequest {
        ignore_value: true,
        ..put("a", "")
    };
    let not_found = "etcdserver: key not found";
    says(store.put(&keeps).map(drop), InvalidArgument, not_found);
    says(
        store.txn(&txn(vec![op(keeps)])).map(drop),
        InvalidArgument,
        not_found,
    );
    says(
        store
            .put(&PbPutRequest {
                ignore_value: true,
                ..put("a", "x")
            })
            .map(drop),
        InvalidArgument,
        "etcdserver: value is provided",
    );
    let twice = "etcdserver: duplicate key given in txn request";
    for ops in [
        vec![op(put("a", "")), op(put("a", ""))],
        vec![op(put("b", "")), op(delete("a", "c"))],
        vec![op(put("a", "")), op(txn(vec![op(put("a", ""))]))],
    ] {
        says(store.txn(&txn(ops)).map(drop), InvalidArgument, twice);
    }
    let many =
        |n: usize| -> PbTxnRequest { txn((0..n).map(|n| op(put(&n.to_string(), ""))).collect()) };
    let too_many = "etcdserver: too many operations in txn request";
    says(store.txn(&many(129)).map(drop), InvalidArgument, too_many);
    says(
        store.txn(&txn(vec![op(many(128))])).map(drop),
        InvalidArgument,
        too_many,
    );
    store.txn(&txn(vec![op(many(127))])).unwrap();
    let future = "etcdserver: mvcc: required revision is a future revision";
    let at = |revision| PbRangeRequest {
        revision,
        ..get("a")
    };
    says(store.range(&at(3)).map(drop), OutOfRange, future);
    let large = |size: usize| put("a", &"x".repeat(size));
    says(
        store.put(&large(1_572_864)).map(drop),
        InvalidArgument,
        "etcdserver: request is too large",
    );
    says(
        store.put(&large(2_097_152)).map(drop),
        ResourceExhausted,
        "grpc: received message larger than max (2097160 vs. 2097152)",
    );
    assert_eq!(store.revision(), 2);
}

#[test]
fn compaction_forgets_earlier_revisions() {
    let mut store = Store::new();
    for value in ["1", "2", "3"] {
        store.put(&put("a", value)).unwrap();
    }
    store.put(&put("b", "")).unwrap();
    store.delete_range(&delete("b", "")).unwrap();
    let code = |refused: Refusal| refused.message;
    let compacted = "etcdserver: mvcc: required revision has been compacted";
    assert_eq!(
        code(store.compact(&compact(7)).unwrap_err()),
        "etcdserver: mvcc: required revision is a future revision"
    );
    store.compact(&compact(3)).unwrap();
    assert_eq!(code(store.compact(&compact(3)).unwrap_err()), compacted);
    let at = |revision| PbRangeRequest {
        revision,
        ..get("a")
    };
    assert_eq!(code(store.range(&at(2)).unwrap_err()), compacted);
    assert_eq!(store.range(&at(3)).unwrap().kvs[0].value, b"2");
    assert_eq!(
        store.events(b"a", b"", 2, false).unwrap_err(),
        Compacted { revision: 3 }
    );
    assert_eq!(events(&store, 3), ["3:+a", "4:+a", "5:+b", "6:-b"]);
    store.compact(&compact(6)).unwrap();
    assert_eq!(names(&store.range(&all()).unwrap().kvs), ["a"]);
    assert_eq!(events(&store, 6), ["6:-b"]);
    let before = store.events(b"b", b"", 6, true).unwrap();
    assert_eq!(before[0][0].prev_kv, None, "that is forgotten");
    store.put(&put("a", "4")).unwrap();
    let after = store.events(b"a", b"", 6, true).unwrap();
    assert_eq!(after[0][0].prev_kv.as_ref().unwrap().value, b"3");
}

#[test]
fn lease_ends_with_its_keys_in_one_revision() {
    let mut store = Store::new();
    let lease = grant(&mut store, 1);
    for key in ["c", "a", "b"] {
        store.put(&put_with(key, lease)).unwrap();
    }
    let other = grant(&mut store, 60);
    store.put(&put_with("b", other)).unwrap();
    let asked = PbLeaseTimeToLiveRequest {
        id: lease,
        keys: true,
    };
    let left = store.lease_time_to_live(Duration::from_millis(500), &asked);
    assert_eq!((left.ttl, left.granted_ttl), (1, 2), "two seconds at least");
    assert_eq!(left.keys, [b"a".to_vec(), b"c".to_vec()]);
    assert_eq!(store.next_expiry(), Some(Duration::from_secs(2)));

    assert_eq!(store.lease_keep_alive(Duration::from_secs(1), lease).ttl, 2);
    store.expire(Duration::from_millis(2_999));
    assert_eq!(store.revision(), 5);
    store.expire(Duration::from_secs(3));
    assert_eq!(events(&store, 6), ["6:-a 6:-c"]);
    assert_eq!(store.lease_keep_alive(START, lease).ttl, 0);
    assert_eq!(store.lease_time_to_live(START, &asked).ttl, -1);

    let revoke = PbLeaseRevokeRequest { id: other };
    assert_eq!(
        store
            .lease_revoke(&revoke)
            .unwrap()
            .header
            .unwrap()
            .revision,
        7
    );
    assert_eq!(
        store.lease_revoke(&revoke).unwrap_err().message,
        "etcdserver: requested lease not found"
    );
    let idle = grant(&mut store, 5);
    store.expire(Duration::from_secs(5));
    assert_eq!(store.revision(), 7, "without keys, no revision");
    assert_eq!(store.lease_keep_alive(START, idle).ttl, 0);
}

#[test]
fn lease_ids_are_unique() {
    let mut store = Store::new();
    let taken = PbLeaseGrantRequest { ttl: 5, id: 42 };
    store.lease_grant(START, &taken).unwrap();
    assert_eq!(
        store.lease_grant(START, &taken).unwrap_err().message,
        "etcdserver: lease already exists"
    );
    let long = PbLeaseGrantRequest {
        ttl: 9_000_000_001,
        id: 0,
    };
    assert_eq!(
        store.lease_grant(START, &long).unwrap_err().message,
        "etcdserver: too large lease TTL"
    );
    let (first, second) = (grant(&mut store, 5), grant(&mut store, 5));
    assert!(first > 0 && second > first);
    assert_eq!(store.lease_leases().leases.len(), 3);
    let mut again = Store::new();
    assert_eq!(grant(&mut again, 5), first, "the same store, the same ids");
}

#[test]
fn new_leader_renews_every_lease() {
    let mut store = Store::new();
    grant(&mut store, 5);
    store.promote(Duration::from_secs(4));
    assert_eq!(store.next_expiry(), Some(Duration::from_secs(9)));
    assert_eq!(store.term(), 3);
}
