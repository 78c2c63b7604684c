//! Conversion of the core's requests to etcd's messages, and of etcd's responses to the core's values.

use std::sync::Arc;

use etcd_client::proto::{
    PbCompare, PbCompareTarget, PbDeleteRequest, PbEvent, PbKeyValue, PbPutRequest, PbRangeRequest,
    PbTargetUnion, PbTxnOpRequest, PbTxnOpResponse, PbTxnRequest, PbTxnRequestOp, PbTxnResponse,
};
use etcd_client::{CompareOp, EventType, SortOrder, SortTarget};
use etcd_locked_embedded::store;

use crate::world::revision;
use etcd_locked_core::{Compare, Event, Failure, Kv, Op, Refusal, Txn, TxnAnswer};

pub(crate) fn txn(txn: &Txn) -> PbTxnRequest {
    PbTxnRequest {
        compare: txn.when.iter().map(compare).collect(),
        success: txn.then.iter().map(operation).collect(),
        failure: txn.or_else.iter().map(operation).collect(),
    }
}

fn compare(compare: &Compare) -> PbCompare {
    let (key, target, union) = match compare {
        Compare::Created(key, revision) => {
            (key, PbCompareTarget::Create, PbTargetUnion::CreateRevision(revision.get()))
        }
        Compare::Modified(key, revision) => {
            (key, PbCompareTarget::Mod, PbTargetUnion::ModRevision(revision.get()))
        }
        Compare::Absent(key) | Compare::NoneUnder(key) => {
            (key, PbCompareTarget::Create, PbTargetUnion::CreateRevision(0))
        }
    };
    let range_end = match compare {
        Compare::NoneUnder(prefix) => end_of(prefix.as_bytes()),
        _ => Vec::new(),
    };
    PbCompare {
        result: CompareOp::Equal as i32,
        target: target.into(),
        key: key.as_bytes().into(),
        range_end,
        target_union: Some(union),
    }
}

fn operation(op: &Op) -> PbTxnRequestOp {
    let request = match op {
        Op::Put { key, value, lease } => PbTxnOpRequest::RequestPut(PbPutRequest {
            key: key.as_bytes().into(),
            value: value.to_vec(),
            lease: *lease,
            ..PbPutRequest::default()
        }),
        Op::Delete(key) => PbTxnOpRequest::RequestDeleteRange(PbDeleteRequest {
            key: key.as_bytes().into(),
            ..PbDeleteRequest::default()
        }),
        Op::Get { .. } | Op::Range { .. } => PbTxnOpRequest::RequestRange(range(op)),
    };
    PbTxnRequestOp { request: Some(request) }
}

/// Returns a read of a transaction as a range.
pub(crate) fn range(op: &Op) -> PbRangeRequest {
    match op {
        Op::Get { key, values } => PbRangeRequest {
            key: key.as_bytes().into(),
            keys_only: !values,
            ..PbRangeRequest::default()
        },
        Op::Range { prefix, limit, values, up_to } => PbRangeRequest {
            key: prefix.as_bytes().into(),
            range_end: end_of(prefix.as_bytes()),
            limit: limit.map_or(0, i64::from),
            keys_only: !values,
            sort_target: SortTarget::Create as i32,
            sort_order: SortOrder::Ascend as i32,
            max_create_revision: up_to.map_or(0, |to| to.get()),
            ..PbRangeRequest::default()
        },
        Op::Put { .. } | Op::Delete(..) => unreachable!("not a read"),
    }
}

/// Returns the end of the range of all keys with a prefix, which must not end in 0xff.
pub(crate) fn end_of(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}

pub(crate) fn answer(txn: &Txn, answer: PbTxnResponse) -> TxnAnswer {
    let ops = match answer.succeeded {
        true => &txn.then,
        false => &txn.or_else,
    };
    let answers = answer.responses.into_iter().filter_map(|op| op.response);
    let answers = answers.zip(ops).map(|(answer, op)| match answer {
        PbTxnOpResponse::ResponseRange(range) => found(op, range.kvs),
        PbTxnOpResponse::ResponsePut(_) | PbTxnOpResponse::ResponseDeleteRange(_) => Vec::new(),
        PbTxnOpResponse::ResponseTxn(_) => unreachable!("transactions are flat"),
    });
    TxnAnswer {
        revision: revision(answer.header.map_or(1, |header| header.revision)),
        stale: false,
        succeeded: answer.succeeded,
        answers: answers.collect(),
    }
}

/// Converts what a read has found. Without values, it has no leases either.
pub(crate) fn found(read: &Op, kvs: Vec<PbKeyValue>) -> Vec<Kv> {
    let values = !range(read).keys_only;
    let kvs = kvs.into_iter().map(kv);
    kvs.map(|kv| Kv { lease: kv.lease.filter(|_| values), ..kv }).collect()
}

fn kv(kv: PbKeyValue) -> Kv {
    Kv {
        key: kv.key,
        value: kv.value,
        create_revision: revision(kv.create_revision),
        mod_revision: revision(kv.mod_revision),
        lease: Some(kv.lease),
    }
}

pub(crate) fn event(event: PbEvent) -> Event {
    let deleted = event.r#type == EventType::Delete as i32;
    let of = event.kv.unwrap_or_default();
    match deleted {
        true => Event::Delete { revision: revision(of.mod_revision), key: of.key },
        false => Event::Put(kv(of)),
    }
}

/// Converts a refusal. The store applies nothing of what it refuses.
pub(crate) fn failure(refusal: store::Refusal) -> Failure {
    let kind = match refusal.message.as_str() {
        "etcdserver: requested lease not found" => Refusal::LeaseNotFound,
        _ => Refusal::Other,
    };
    Failure::Refused(kind, Arc::new(refusal))
}
