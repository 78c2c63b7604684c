//! Checks of requests that do not depend on the store. They follow etcd's order, so the first mistake that etcd finds is named.

use std::collections::BTreeSet;

use etcd_client::proto::{
    PbDeleteRequest, PbPutRequest, PbRangeRequest, PbTxnOpRequest, PbTxnRequest, PbTxnRequestOp,
};
use etcd_client::{SortOrder, SortTarget};
use prost::Message;

use super::Refusal;
use super::span::Span;

/// etcd's `--max-txn-ops`.
const MAX_TXN_OPS: usize = 128;

/// etcd's `--max-request-bytes`.
const MAX_REQUEST: usize = 1_572_864;

/// Bytes by which etcd lets a gRPC message exceed the limit of a request.
const GRPC_OVERHEAD: usize = 512 * 1024;

/// Bytes that raft adds to a request: a header with an id, and the tag of one field. For half of all member ids the header
/// is one byte shorter.
const RAFT_HEADER: usize = 15;

/// Checks the limit of etcd's gRPC layer, and returns the size of the message.
pub(super) fn sent(request: &impl Message) -> Result<usize, Refusal> {
    let (size, limit) = (request.encoded_len(), MAX_REQUEST + GRPC_OVERHEAD);
    if size > limit {
        return Err(Refusal::message_too_large(size, limit));
    }
    Ok(size)
}

/// Checks the limit of raft, through which reads do not go.
pub(super) fn proposed(size: usize) -> Result<(), Refusal> {
    if RAFT_HEADER + prost::length_delimiter_len(size) + size > MAX_REQUEST {
        return Err(Refusal::TOO_LARGE.into());
    }
    Ok(())
}

pub(super) fn range(request: &PbRangeRequest) -> Result<(), Refusal> {
    key(&request.key)?;
    SortOrder::try_from(request.sort_order).map_err(|_| Refusal::INVALID_SORT)?;
    SortTarget::try_from(request.sort_target).map_err(|_| Refusal::INVALID_SORT)?;
    Ok(())
}

pub(super) fn put(request: &PbPutRequest) -> Result<(), Refusal> {
    key(&request.key)?;
    if request.ignore_value && !request.value.is_empty() {
        return Err(Refusal::VALUE_PROVIDED.into());
    }
    if request.ignore_lease && request.lease != 0 {
        return Err(Refusal::LEASE_PROVIDED.into());
    }
    Ok(())
}

pub(super) fn delete(request: &PbDeleteRequest) -> Result<(), Refusal> {
    key(&request.key)
}

pub(super) fn txn(request: &PbTxnRequest) -> Result<(), Refusal> {
    operations(request, MAX_TXN_OPS)?;
    Overlaps::of(&request.success)?;
    Overlaps::of(&request.failure)?;
    Ok(())
}

fn key(key: &[u8]) -> Result<(), Refusal> {
    if key.is_empty() {
        return Err(Refusal::EMPTY_KEY.into());
    }
    Ok(())
}

/// Checks the operations of a transaction. A nested one may have as many as the outer one left over.
fn operations(request: &PbTxnRequest, limit: usize) -> Result<(), Refusal> {
    let most = request.compare.len().max(request.success.len()).max(request.failure.len());
    let Some(left) = limit.checked_sub(most) else {
        return Err(Refusal::TOO_MANY_OPERATIONS.into());
    };
    for compare in &request.compare {
        key(&compare.key)?;
    }
    for op in request.success.iter().chain(&request.failure) {
        match &op.request {
            Some(PbTxnOpRequest::RequestRange(request)) => range(request)?,
            Some(PbTxnOpRequest::RequestPut(request)) => put(request)?,
            Some(PbTxnOpRequest::RequestDeleteRange(request)) => delete(request)?,
            Some(PbTxnOpRequest::RequestTxn(request)) => operations(request, left)?,
            None => return Err(Refusal::KEY_NOT_FOUND.into()),
        }
    }
    Ok(())
}

/// Puts and deletions of a branch. A key must not be put twice, or put and deleted.
///
/// Like etcd, it misses a deletion of "this key and all greater ones", whose `range_end` is one zero byte. It also misses a
/// put in a nested transaction that a later nested one deletes.
#[derive(Default)]
struct Overlaps<'a> {
    puts: BTreeSet<&'a [u8]>,
    deletions: Vec<Span<'a>>,
}

impl<'a> Overlaps<'a> {
    fn of(ops: &'a [PbTxnRequestOp]) -> Result<Self, Refusal> {
        let mut all = Self::default();
        for op in ops {
            if let Some(PbTxnOpRequest::RequestDeleteRange(request)) = &op.request {
                match Span::new(&request.key, &request.range_end) {
                    Span::From(_) => {}
                    span => all.deletions.push(span),
                }
            }
        }
        for op in ops {
            let Some(PbTxnOpRequest::RequestTxn(request)) = &op.request else {
                continue;
            };
            let success = Self::of(&request.success)?;
            let failure = Self::of(&request.failure)?;
            for key in &success.puts {
                all.put(key)?;
            }
            for key in &failure.puts {
                if success.puts.contains(key) {
                    all.not_deleted(key)?; // only one of the two branches is taken
                } else {
                    all.put(key)?;
                }
            }
            all.deletions.extend(success.deletions);
            all.deletions.extend(failure.deletions);
        }
        for op in ops {
            if let Some(PbTxnOpRequest::RequestPut(request)) = &op.request {
                all.put(&request.key)?;
            }
        }
        Ok(all)
    }

    fn put(&mut self, key: &'a [u8]) -> Result<(), Refusal> {
        self.not_deleted(key)?;
        if !self.puts.insert(key) {
            return Err(Refusal::DUPLICATE_KEY.into());
        }
        Ok(())
    }

    fn not_deleted(&self, key: &[u8]) -> Result<(), Refusal> {
        if self.deletions.iter().any(|span| span.contains(key)) {
            return Err(Refusal::DUPLICATE_KEY.into());
        }
        Ok(())
    }
}
