//! Refusals of requests, with etcd's codes and messages.

use std::error::Error;
use std::fmt;

use tonic::Code;

/// Refusal of a request: nothing was applied. Code and message are etcd's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// gRPC code.
    pub code: Code,
    /// gRPC message.
    pub message: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for Refusal {}

impl From<Refusal> for tonic::Status {
    fn from(refusal: Refusal) -> Self {
        Self::new(refusal.code, refusal.message)
    }
}

/// Refusal whose message is always the same.
type Known = (Code, &'static str);

impl From<Known> for Refusal {
    fn from((code, message): Known) -> Self {
        Self { code, message: message.to_owned() }
    }
}

impl Refusal {
    pub(super) const EMPTY_KEY: Known = (Code::InvalidArgument, "etcdserver: key is not provided");
    pub(super) const KEY_NOT_FOUND: Known = (Code::InvalidArgument, "etcdserver: key not found");
    pub(super) const VALUE_PROVIDED: Known =
        (Code::InvalidArgument, "etcdserver: value is provided");
    pub(super) const LEASE_PROVIDED: Known =
        (Code::InvalidArgument, "etcdserver: lease is provided");
    pub(super) const TOO_MANY_OPERATIONS: Known =
        (Code::InvalidArgument, "etcdserver: too many operations in txn request");
    pub(super) const DUPLICATE_KEY: Known =
        (Code::InvalidArgument, "etcdserver: duplicate key given in txn request");
    pub(super) const INVALID_SORT: Known =
        (Code::InvalidArgument, "etcdserver: invalid sort option");
    pub(super) const COMPACTED: Known =
        (Code::OutOfRange, "etcdserver: mvcc: required revision has been compacted");
    pub(super) const FUTURE_REVISION: Known =
        (Code::OutOfRange, "etcdserver: mvcc: required revision is a future revision");
    pub(super) const LEASE_NOT_FOUND: Known =
        (Code::NotFound, "etcdserver: requested lease not found");
    pub(super) const LEASE_EXISTS: Known =
        (Code::FailedPrecondition, "etcdserver: lease already exists");
    pub(super) const TTL_TOO_LARGE: Known = (Code::OutOfRange, "etcdserver: too large lease TTL");
    pub(super) const TOO_LARGE: Known = (Code::InvalidArgument, "etcdserver: request is too large");

    /// Refuses a message as etcd's gRPC layer does, before etcd sees the request.
    pub(super) fn message_too_large(size: usize, limit: usize) -> Self {
        let message = format!("grpc: received message larger than max ({size} vs. {limit})");
        Self { code: Code::ResourceExhausted, message }
    }
}
