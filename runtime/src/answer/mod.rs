//! Answers of a service to its clients for a [`LockError`]: one table, which every framework's answer is made from.
//!
//! A client gets less than the log: no host, no process, no endpoint, and of a name the template only.

#[cfg(feature = "actix")]
mod actix;
#[cfg(feature = "axum")]
mod axum;
#[cfg(feature = "tonic")]
mod tonic;

use ::tonic::Code;

use crate::values::error::LockError;
use crate::values::name::Name;

/// One row of the table in `docs/answers.md`, which a test keeps true.
#[derive(Debug, PartialEq)]
#[allow(dead_code)] // each framework reads its own part; the page's test all of it
struct Row {
    /// The first word of the text, for programs.
    reason: &'static str,
    http: u16,
    grpc: Code,
    /// When the same request may be worth another try, in seconds.
    retry_after: Option<u8>,
    /// What is said of the lock, or, where there is none, altogether.
    says: &'static str,
    because: &'static str,
}

const HELD: Row = Row {
    reason: "LOCK_HELD",
    http: 423,
    grpc: Code::Aborted,
    retry_after: None,
    says: "is held",
    because: "another call has it, for an unknown time; the body has not begun",
};

const TIMEOUT: Row = Row {
    reason: "LOCK_TIMEOUT",
    http: 423,
    grpc: Code::Aborted,
    retry_after: None,
    says: "was not free in time",
    because: "the same after a wait. Not `DEADLINE_EXCEEDED`, which leaves open whether the body has begun",
};

const LOST: Row = Row {
    reason: "LOCK_LOST",
    http: 503,
    grpc: Code::Aborted,
    retry_after: Some(1),
    says: "was lost while the request was served, part of which may be done",
    because: "etcd failed, an operator stepped in, the grace of a shutdown was over, or a fenced transaction came too late. Not \
              `UNAVAILABLE`, which clients repeat unasked: the body had begun",
};

const HOLD_LIMIT: Row = Row {
    reason: "LOCK_HOLD_LIMIT",
    http: 504,
    grpc: Code::DeadlineExceeded,
    retry_after: None,
    says: "was held for as long as it may be, and part of the request may be done",
    because: "the work took too long, and what took too long once may do so again",
};

const DEADLOCK: Row = Row {
    reason: "LOCK_DEADLOCK",
    http: 503,
    grpc: Code::Aborted,
    retry_after: Some(1),
    says: "could not be had without a deadlock",
    because: "with the answer the request has let go of what it held, so the cycle is open and another try is right; \
              the same as an aborted transaction",
};

const OVERLOADED: Row = Row {
    reason: "LOCK_OVERLOADED",
    http: 503,
    grpc: Code::ResourceExhausted,
    retry_after: Some(1),
    says: "was not queued for, as too many requests wait",
    because: "it is this process that has too much to do. Not 429, which blames the client",
};

const SHUTTING_DOWN: Row = Row {
    reason: "LOCK_SHUTTING_DOWN",
    http: 503,
    grpc: Code::Unavailable,
    retry_after: Some(1),
    says: "the server is shutting down",
    because: "another replica will serve it; the body has not begun, so clients and proxies may repeat it unasked",
};

const BACKEND: Row = Row {
    reason: "LOCK_BACKEND",
    http: 503,
    grpc: Code::Unavailable,
    retry_after: Some(5),
    says: "the lock service cannot be reached",
    because: "etcd is out of reach; the body has not begun (do not answer with the error of `LockGuard::release`), and as a new attempt to \
              connect takes its time, later is better. If an operator has to mend something first (credentials, certificates, \
              endpoints of two clusters), it is a `LOCK_FAULT` like those below",
};

const INVALID_NAME: Row = Row {
    reason: "LOCK_INVALID_NAME",
    http: 400,
    grpc: Code::InvalidArgument,
    retry_after: None,
    says: "cannot have this value in its name",
    because: "the template was checked by the compiler, so it is the value, empty or too long, and that came with the request",
};

/// Whatever the client asks, it will be so until an operator mends the service.
const fn fault(because: &'static str) -> Row {
    Row {
        reason: "LOCK_FAULT",
        http: 500,
        grpc: Code::Internal,
        retry_after: None,
        says: "failed for a reason that is in the log",
        because,
    }
}

const NOT_INITIALIZED: Row = fault("the service does not know where etcd is");
const ALREADY_INITIALIZED: Row = fault("a mistake in the service's start");
const CONFIG: Row = fault("a mistake in the service's configuration");
const MISCONFIGURED: Row = fault("a mistake in the service's configuration, which etcd refuses");
const SELF_DEADLOCK: Row = fault("a mistake in the code: the request would wait for itself");
const ORDER_INVERSION: Row = fault("the same; only under test");
const PERMISSION_DENIED: Row =
    fault("the service's own user at etcd may not lock this. Not 403, which is about the client");

/// The row of an error, and the lock it is about.
fn row(error: &LockError) -> (&'static Row, Option<&Name>) {
    match error {
        LockError::Held { name, .. } => (&HELD, Some(name)),
        LockError::Timeout { name, .. } => (&TIMEOUT, Some(name)),
        LockError::Lost { name, .. } => (&LOST, Some(name)),
        LockError::HoldLimit { name, .. } => (&HOLD_LIMIT, Some(name)),
        LockError::Deadlock { name, .. } => (&DEADLOCK, Some(name)),
        LockError::Overloaded { name } => (&OVERLOADED, Some(name)),
        LockError::ShuttingDown => (&SHUTTING_DOWN, None),
        LockError::Backend { .. } if error.is_retryable() => (&BACKEND, None),
        LockError::Backend { .. } => (&MISCONFIGURED, None),
        LockError::InvalidName { name, .. } => (&INVALID_NAME, Some(name)),
        LockError::NotInitialized { .. } => (&NOT_INITIALIZED, None),
        LockError::AlreadyInitialized => (&ALREADY_INITIALIZED, None),
        LockError::Config { .. } => (&CONFIG, None),
        LockError::SelfDeadlock { name } => (&SELF_DEADLOCK, Some(name)),
        LockError::OrderInversion { name, .. } => (&ORDER_INVERSION, Some(name)),
        LockError::PermissionDenied { name, .. } => (&PERMISSION_DENIED, name.as_ref()),
    }
}

/// What a client gets for an error, in every framework's words.
#[derive(Debug)]
struct Answer {
    row: &'static Row,
    /// Body, or message.
    text: String,
}

impl Answer {
    /// Logs what the client does not get and an operator has to mend.
    fn to(error: &LockError) -> Self {
        let (row, name) = row(error);
        if row.reason == CONFIG.reason {
            tracing::error!(code = "request.failed", %error, "a request failed: its lock could not be used");
        }
        if row.reason == BACKEND.reason {
            // The engine has one warning for all of them.
            tracing::debug!(%error, "a request was refused: etcd does not serve it");
        }
        let (reason, says) = (row.reason, row.says);
        let text = match name {
            Some(name) => format!("{reason}: lock `{name}` {says}"),
            None if row.reason == CONFIG.reason => format!("{reason}: the request {says}"),
            None => format!("{reason}: {says}"),
        };
        Self { row, text }
    }
}

#[cfg(test)]
mod tests;
