//! Conversion between transactions and responses of the core and those of etcd-client (rules P8, P20).

use std::panic::{AssertUnwindSafe, catch_unwind};

use etcd_client::{
    CompareOp, Error, GetOptions, KeyValue, LeaseTimeToLiveOptions, PutOptions, ResponseHeader,
    SortOrder, SortTarget, TxnOp, TxnOpResponse,
};
use etcd_locked_core::{Compare, Kv, LeaseId, Op, Response, Revision, Txn, TxnAnswer};
use tonic::{Code, Status};

use super::endpoint::Connection;
use super::errors::NO_LEASE;

/// Maximum size of a response. A range over a long queue exceeds tonic's 4 MiB.
pub(super) const MAX_ANSWER: usize = 64 << 20;

pub(super) async fn send(connection: Connection, txn: &Txn) -> Result<TxnAnswer, Error> {
    let request = etcd_client::Txn::new()
        .when(txn.when.iter().map(compare).collect::<Vec<_>>())
        .and_then(txn.then.iter().map(operation).collect::<Vec<_>>())
        .or_else(txn.or_else.iter().map(operation).collect::<Vec<_>>());
    let mut kv = connection.client.kv_client().max_decoding_message_size(MAX_ANSWER);
    let answer = kv.txn(request).await?;
    let revision = answer.header().map(ResponseHeader::revision);
    let revision = revision.and_then(Revision::new).ok_or_else(malformed)?;
    let succeeded = answer.succeeded();
    let asked = if succeeded { &txn.then } else { &txn.or_else };
    // etcd-client panics if an operation's response lacks content; that must not end the engine's thread.
    let answers =
        catch_unwind(AssertUnwindSafe(|| answer.op_responses())).map_err(|_| malformed())?;
    if answers.len() != asked.len() {
        return Err(malformed());
    }
    let answers = asked
        .iter()
        .zip(answers)
        .map(|(op, answer)| op_answer(op, answer))
        .collect::<Option<_>>()
        .ok_or_else(malformed)?;
    Ok(TxnAnswer { revision, stale: false, succeeded, answers })
}

/// Lists the keys of a lease, by a member that may lag or no longer lead. No keys are listed if they exceed 4 MiB, because etcd-client
/// cannot receive more, or if etcd or a proxy does not allow the list.
pub(super) async fn keys_under(connection: Connection, lease: LeaseId) -> Result<Response, Error> {
    let options = LeaseTimeToLiveOptions::new().with_keys();
    let mut leases = connection.client.lease_client();
    match leases.time_to_live(lease, Some(options)).await {
        Ok(answer) if answer.ttl() < 0 => Err(Error::GRpcStatus(Status::not_found(NO_LEASE))),
        Ok(answer) => Ok(Response::Listed(Some(answer.keys().to_vec()))),
        Err(Error::GRpcStatus(status))
            if [Code::OutOfRange, Code::PermissionDenied, Code::Unimplemented]
                .contains(&status.code()) =>
        {
            tracing::debug!(parent: None, lease = format_args!("{lease:x}"), %status, "the keys of a lease cannot be listed");
            Ok(Response::Listed(None))
        }
        Err(error) => Err(error),
    }
}

fn compare(compare: &Compare) -> etcd_client::Compare {
    use etcd_client::Compare as Etcd;

    match compare {
        Compare::Created(key, at) => Etcd::create_revision(&**key, CompareOp::Equal, at.get()),
        Compare::Modified(key, at) => Etcd::mod_revision(&**key, CompareOp::Equal, at.get()),
        Compare::Absent(key) => Etcd::create_revision(&**key, CompareOp::Equal, 0),
        // Over a range, etcd requires every key to match, and no key has create revision 0.
        Compare::NoneUnder(prefix) => {
            Etcd::create_revision(&**prefix, CompareOp::Equal, 0).with_prefix()
        }
    }
}

fn operation(op: &Op) -> TxnOp {
    match op {
        Op::Put { key, value, lease } => {
            TxnOp::put(&**key, &**value, Some(PutOptions::new().with_lease(*lease)))
        }
        Op::Get { key, values } => TxnOp::get(&**key, Some(single(*values))),
        Op::Range { prefix, limit, values, up_to } => {
            let range = single(*values)
                .with_prefix()
                .with_limit(limit.map_or(0, i64::from)) // 0: all
                .with_sort(SortTarget::Create, SortOrder::Ascend)
                .with_max_create_revision(up_to.map_or(0, Revision::get)); // 0: any
            TxnOp::get(&**prefix, Some(range))
        }
        Op::Delete(key) => TxnOp::delete(&**key, None),
    }
}

fn single(values: bool) -> GetOptions {
    if values { GetOptions::new() } else { GetOptions::new().with_keys_only() }
}

fn op_answer(op: &Op, answer: TxnOpResponse) -> Option<Vec<Kv>> {
    let (found, whole) = match (op, answer) {
        (Op::Get { values, .. } | Op::Range { values, .. }, TxnOpResponse::Get(mut get)) => {
            (get.take_kvs(), *values)
        }
        (Op::Put { .. }, TxnOpResponse::Put(_)) | (Op::Delete(_), TxnOpResponse::Delete(_)) => {
            return Some(Vec::new());
        }
        _ => return None,
    };
    let key_value = |kv| {
        let kv = key_value(kv)?;
        let lease = kv.lease.filter(|_| whole);
        Some(Kv { lease, ..kv })
    };
    found.into_iter().map(key_value).collect()
}

/// Converts etcd's key-value to the core's; `None` for a key that does not exist.
pub(super) fn key_value(kv: KeyValue) -> Option<Kv> {
    let create_revision = Revision::new(kv.create_revision())?;
    let mod_revision = Revision::new(kv.mod_revision())?;
    let lease = Some(kv.lease());
    let (key, value) = kv.into_key_value();
    Some(Kv { key, value, create_revision, mod_revision, lease })
}

/// Returns the error for a response that etcd never sends. Its outcome is unknown, like that of any unreadable response.
pub(super) fn malformed() -> Error {
    Error::Internal("malformed response".into())
}
