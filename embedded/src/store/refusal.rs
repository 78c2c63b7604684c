//! Refusals of requests, with etcd's codes and messages.

use std::error::Error;
use std::fmt;

use tonic::Code;

/// A refused request: nothing was applied. Code and message are etcd's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The gRPC code.
    pub code: Code,
    /// The gRPC message.
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

impl Refusal {
    fn new(code: Code, message: &str) -> Self {
        Self { code, message: message.to_owned() }
    }

    pub(super) fn empty_key() -> Self {
        Self::new(Code::InvalidArgument, "etcdserver: key is not provided")
    }

    pub(super) fn key_not_found() -> Self {
        Self::new(Code::InvalidArgument, "etcdserver: key not found")
    }

    pub(super) fn value_provided() -> Self {
        Self::new(Code::InvalidArgument, "etcdserver: value is provided")
    }

    pub(super) fn lease_provided() -> Self {
        Self::new(Code::InvalidArgument, "etcdserver: lease is provided")
    }

    pub(super) fn too_many_operations() -> Self {
        Self::new(Code::InvalidArgument, "etcdserver: too many operations in txn request")
    }

    pub(super) fn duplicate_key() -> Self {
        Self::new(Code::InvalidArgument, "etcdserver: duplicate key given in txn request")
    }

    pub(super) fn invalid_sort() -> Self {
        Self::new(Code::InvalidArgument, "etcdserver: invalid sort option")
    }

    pub(super) fn compacted() -> Self {
        Self::new(Code::OutOfRange, "etcdserver: mvcc: required revision has been compacted")
    }

    pub(super) fn future_revision() -> Self {
        Self::new(Code::OutOfRange, "etcdserver: mvcc: required revision is a future revision")
    }

    pub(super) fn lease_not_found() -> Self {
        Self::new(Code::NotFound, "etcdserver: requested lease not found")
    }

    pub(super) fn lease_exists() -> Self {
        Self::new(Code::FailedPrecondition, "etcdserver: lease already exists")
    }

    pub(super) fn ttl_too_large() -> Self {
        Self::new(Code::OutOfRange, "etcdserver: too large lease TTL")
    }

    pub(super) fn too_large() -> Self {
        Self::new(Code::InvalidArgument, "etcdserver: request is too large")
    }

    /// Refuses a message as etcd's gRPC layer does, before etcd sees the request.
    pub(super) fn message_too_large(size: usize, limit: usize) -> Self {
        Self::new(
            Code::ResourceExhausted,
            &format!("grpc: received message larger than max ({size} vs. {limit})"),
        )
    }
}
